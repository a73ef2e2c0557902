//! The scan: from the headers to all that is in the logs.
//!
//! **Problem.** Find every complete transaction, in whatever state the medium is. **Structure.** Per
//! journal: its header, the walk from the tail to the end of the log ([`super::walk`]), and the
//! transactions after the end ([`super::beyond`]), which tell whether the log was longer; several
//! journals in parallel. **Invariants.** The result does not depend on the number of threads.
//! **Crash.** Nothing is written.

use std::collections::BTreeMap;

use dure_block::Lba;
use dure_sync::thread;

use super::durable;
use super::headers::read_header;
use super::walk::Walk;
use crate::error::Result;
use crate::format::{Expected, LoggedRecords, TailPosition};
use crate::ids::{JournalId, Mark};
use crate::journal::RingStart;
use crate::medium::LogMedium;
use crate::rules::Rules;

/// What the volume header records about the logs.
#[derive(Debug, Clone)]
pub struct LogLayout {
    /// Seed of all checksums.
    pub seed: u32,
    /// Blocks of a log segment.
    pub segment_blocks: u32,
    /// First handle number of the epoch.
    pub first_number: u64,
    /// Size of the device.
    pub device_blocks: u64,
    /// The header pairs, by journal.
    pub headers: Vec<Lba>,
    /// The volume was unmounted: its logs are empty, and nothing is searched after their ends.
    pub clean: bool,
    /// Test-only.
    #[doc(hidden)]
    pub rules: Rules,
}

/// A complete transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Its journal.
    pub journal: JournalId,
    /// Its sequence within its journal and epoch.
    pub sequence: u64,
    /// First handle number.
    pub first: u64,
    /// Last handle number.
    pub last: u64,
    /// What it depends on.
    pub marks: Vec<Mark>,
    /// Handles of its journal that were durable, with all they depend on, when it was written.
    pub durable_upto: u64,
    /// The records of its handles, in join order.
    pub records: LoggedRecords,
}

/// What the scan found of one journal besides its transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedRing {
    /// Pair, generation and segments: what the next epoch starts with.
    pub start: RingStart,
    /// Epoch of the header.
    pub header_epoch: u64,
    /// Where the log begins.
    pub tail: TailPosition,
    /// Handles known to have been durable, with all they depend on.
    pub durable_upto: u64,
    /// The checkpoint that the header names, 0 if the header is of an older epoch.
    pub checkpoint: u64,
    /// Number of the first handle that is not there.
    pub next_number: u64,
    /// Sequence of the transaction that is not there.
    pub next_sequence: u64,
    /// Where it should be, if not at the start of another segment.
    pub end: Lba,
    /// Blocks of its complete transactions.
    pub blocks: u64,
}

/// All logs after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    pub(super) rings: Vec<ScannedRing>,
    /// By journal, then by sequence.
    pub(super) transactions: Vec<LoggedTransaction>,
    /// Complete transactions after the end of their log, by journal and then by sequence.
    pub(super) beyond: Vec<LoggedTransaction>,
    pub(super) discarded: Vec<bool>,
    /// Holes are skipped.
    pub(super) tolerant: bool,
    pub(super) rules: Rules,
}

impl Scan {
    /// All complete transactions, by journal and then by sequence.
    #[must_use]
    pub fn transactions(&self) -> &[LoggedTransaction] {
        &self.transactions
    }

    /// The rings, by journal.
    #[must_use]
    pub fn rings(&self) -> &[ScannedRing] {
        &self.rings
    }

    /// Excludes transaction `index` from those that may survive.
    pub fn discard(&mut self, index: usize) {
        self.discarded[index] = true;
    }

    /// Handles of `journal` up to this number were durable, data included, before the crash.
    #[must_use]
    pub fn durable_upto(&self, journal: JournalId) -> u64 {
        self.rings[journal.index()].durable_upto
    }

    /// The rules of the scan.
    #[doc(hidden)]
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The greatest handle number of any journal on the medium, in a header, a transaction or a
    /// mark. The next epoch starts above it.
    #[must_use]
    pub fn max_number(&self) -> u64 {
        let rings = self
            .rings
            .iter()
            .map(|ring| ring.durable_upto.max(ring.next_number - 1));
        let marks = self
            .transactions
            .iter()
            .flat_map(|transaction| &transaction.marks);
        rings
            .chain(marks.map(|mark| mark.number()))
            .max()
            .unwrap_or(0)
    }
}

/// Reads all logs of `epoch` with `threads` threads (1: on the caller only).
///
/// # Errors
/// [`crate::Error::Corrupt`] if both slots of a header are bad or a sealed header is impossible,
/// [`crate::Error::Device`] if a read fails. A bad transaction is no error: it ends its log.
pub fn scan(medium: &LogMedium, layout: &LogLayout, epoch: u64, threads: usize) -> Result<Scan> {
    let journals = layout.headers.len();
    let workers = threads.clamp(1, journals.max(1));
    let share = |worker: usize| -> Result<Vec<(usize, Log)>> {
        (worker..journals)
            .step_by(workers)
            .map(|index| Ok((index, scan_journal(medium, layout, epoch, index)?)))
            .collect()
    };
    let mut shares: Vec<Result<Vec<(usize, Log)>>> = if workers == 1 {
        vec![share(0)]
    } else {
        thread::scope(|scope| {
            let share = &share;
            let started: Vec<_> = (0..workers)
                .map(|worker| scope.spawn(move || share(worker)))
                .collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("the scan does not panic"))
                .collect()
        })
    };
    let mut logs: BTreeMap<usize, Log> = BTreeMap::new();
    for share in shares.drain(..) {
        logs.extend(share?);
    }
    let mut rings = Vec::with_capacity(journals);
    let mut transactions = Vec::new();
    let mut beyond = Vec::new();
    for log in logs.into_values() {
        rings.push(log.ring);
        transactions.extend(log.transactions);
        beyond.extend(log.beyond);
    }
    if layout.rules.recover_marks.holds() {
        durable::follow_marks(&transactions, &mut rings);
    }
    let discarded = vec![false; transactions.len()];
    Ok(Scan {
        rings,
        transactions,
        beyond,
        discarded,
        tolerant: false,
        rules: layout.rules,
    })
}

struct Log {
    ring: ScannedRing,
    transactions: Vec<LoggedTransaction>,
    beyond: Vec<LoggedTransaction>,
}

fn scan_journal(medium: &LogMedium, layout: &LogLayout, epoch: u64, index: usize) -> Result<Log> {
    let journal = JournalId::from_index(index);
    let header = read_header(medium, layout, journal)?;
    // A header of another epoch: a mount writes none, so the log of this epoch may exist
    // nevertheless, from the first segment on.
    let of_this_epoch = header.epoch == epoch;
    let tail = if of_this_epoch {
        header.tail
    } else {
        TailPosition {
            segment: 0,
            offset: 0,
            sequence: 1,
            number: layout.first_number,
        }
    };
    let before = if of_this_epoch {
        header.durable_upto
    } else {
        layout.first_number - 1
    };
    let expected = Expected {
        epoch,
        journal,
        seed: layout.seed,
        rules: layout.rules,
    };
    let mut walk = Walk::new(medium, &header, &expected);
    let (transactions, end) = walk.run(tail)?;
    let beyond = if layout.clean {
        Vec::new()
    } else {
        walk.beyond(&tail, &end)?
    };
    let durable_upto = transactions
        .iter()
        .chain(&beyond)
        .map(|transaction| transaction.durable_upto)
        .fold(before, u64::max);
    let ring = ScannedRing {
        end: header.segments[end.segment].offset(end.offset.into()),
        start: RingStart {
            header: layout.headers[index],
            generation: header.generation,
            segments: header.segments,
        },
        header_epoch: header.epoch,
        tail,
        durable_upto,
        checkpoint: if of_this_epoch { header.checkpoint } else { 0 },
        next_number: end.number,
        next_sequence: end.sequence,
        blocks: end.blocks,
    };
    Ok(Log {
        ring,
        transactions,
        beyond,
    })
}
