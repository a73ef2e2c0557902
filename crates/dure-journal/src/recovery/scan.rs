//! The scan: from header to the end of each log.
//!
//! **Problem.** Find every complete transaction, in whatever state the medium is. **Structure.**
//! From the tail on, the transaction with the expected sequence stands directly behind the last
//! one or at the start of another segment of the ring; where neither holds, the log ends.
//! **Invariants.** Sequences and handle numbers follow each other without a gap, and a place holds
//! one sequence, so the scan visits each block at most once and ends. Every length is checked
//! before it is used. **Crash.** Nothing is written.

use std::collections::BTreeMap;

use dure_block::{Lba, Queue};
use dure_sync::thread;

use super::headers::read_header;
use super::reader::Reader;
use crate::error::Result;
use crate::format::{
    Expected, JournalHeader, LoggedRecords, ParsedTransaction, TailPosition, open, peek,
};
use crate::ids::{JournalId, Mark};
use crate::journal::RingStart;
use crate::rules::Rules;
use crate::units::{BLOCK_BYTES_U32, to_usize};

/// What the volume header says about the logs.
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
    /// Test-only.
    #[doc(hidden)]
    pub rules: Rules,
}

/// A complete transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Its journal.
    pub journal: JournalId,
    /// Which of its journal in this epoch.
    pub sequence: u64,
    /// First handle number.
    pub first: u64,
    /// Last handle number.
    pub last: u64,
    /// What it depends on.
    pub marks: Vec<Mark>,
    /// Handles of its journal that were durable when it was written.
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
    /// Handles known to have been durable.
    pub durable_upto: u64,
    /// The checkpoint that the header names, 0 if the header is of an older epoch.
    pub checkpoint: u64,
    /// Number of the first handle that is not there.
    pub next_number: u64,
    /// Blocks of its complete transactions.
    pub blocks: u64,
}

/// All logs after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    pub(super) rings: Vec<ScannedRing>,
    /// By journal, then by sequence.
    pub(super) transactions: Vec<LoggedTransaction>,
    pub(super) discarded: Vec<bool>,
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

    /// Takes transaction `index` out of those that may survive.
    pub fn discard(&mut self, index: usize) {
        self.discarded[index] = true;
    }

    /// Handles of `journal` up to this number were durable, data included, before the crash.
    #[must_use]
    pub fn durable_upto(&self, journal: JournalId) -> u64 {
        self.rings[journal.index()].durable_upto
    }

    /// The rules it was read by.
    #[doc(hidden)]
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The greatest handle number of any journal that the medium knows of, in a header, a
    /// transaction or a mark. The next epoch starts above it.
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

/// Reads all logs of `epoch` with `threads` threads (1: on the caller alone).
///
/// # Errors
/// [`crate::Error::Corrupt`] if both slots of a header are bad or a sealed header is impossible,
/// [`crate::Error::Device`] if a read fails. A bad transaction is no error: it ends its log.
pub fn scan(queue: &Queue, layout: &LogLayout, epoch: u64, threads: usize) -> Result<Scan> {
    let journals = layout.headers.len();
    let workers = threads.clamp(1, journals.max(1));
    let share = |worker: usize| -> Result<Vec<(usize, Log)>> {
        (worker..journals)
            .step_by(workers)
            .map(|index| Ok((index, scan_journal(queue, layout, epoch, index)?)))
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
    for log in logs.into_values() {
        rings.push(log.ring);
        transactions.extend(log.transactions);
    }
    let discarded = vec![false; transactions.len()];
    Ok(Scan {
        rings,
        transactions,
        discarded,
        rules: layout.rules,
    })
}

struct Log {
    ring: ScannedRing,
    transactions: Vec<LoggedTransaction>,
}

fn scan_journal(queue: &Queue, layout: &LogLayout, epoch: u64, index: usize) -> Result<Log> {
    let journal = JournalId::from_index(index);
    let header = read_header(queue, layout, journal)?;
    // A header of another epoch: a mount writes none, so the log of this epoch may stand behind
    // it, from the first segment on.
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
    let (transactions, blocks) = Walk::new(queue, &header, &expected).run(tail)?;
    let durable_upto = transactions
        .iter()
        .map(|transaction| transaction.durable_upto)
        .fold(before, u64::max);
    let ring = ScannedRing {
        start: RingStart {
            header: layout.headers[index],
            generation: header.generation,
            segments: header.segments,
        },
        header_epoch: header.epoch,
        tail,
        durable_upto,
        checkpoint: if of_this_epoch { header.checkpoint } else { 0 },
        next_number: transactions
            .last()
            .map_or(tail.number, |last| last.last + 1),
        blocks,
    };
    Ok(Log { ring, transactions })
}

/// The walk through one log.
struct Walk<'a> {
    reader: Reader<'a>,
    segments: &'a [Lba],
    segment_blocks: u32,
    expected: &'a Expected,
    /// Which sequence seems to stand at the start of which segment; read when first needed.
    starts: Option<BTreeMap<u64, usize>>,
}

impl<'a> Walk<'a> {
    fn new(queue: &'a Queue, header: &'a JournalHeader, expected: &'a Expected) -> Self {
        Self {
            reader: Reader::new(queue),
            segments: &header.segments,
            segment_blocks: header.segment_blocks,
            expected,
            starts: None,
        }
    }

    /// The complete transactions, and the blocks they take.
    fn run(mut self, tail: TailPosition) -> Result<(Vec<LoggedTransaction>, u64)> {
        let mut found: Vec<LoggedTransaction> = Vec::new();
        let mut blocks_of_all = 0;
        let mut segment = to_usize(tail.segment);
        let mut offset = tail.offset;
        let mut sequence = tail.sequence;
        let mut number = tail.number;
        loop {
            let mut here = self.transaction_at(segment, offset, sequence, number)?;
            if here.is_none()
                && let Some(start) = self.segment_starting_with(sequence)?
            {
                (segment, offset) = (start, 0);
                here = self.transaction_at(segment, offset, sequence, number)?;
            }
            let Some((parsed, blocks)) = here else {
                return Ok((found, blocks_of_all));
            };
            offset += blocks;
            blocks_of_all += u64::from(blocks);
            sequence += 1;
            number = parsed.last + 1;
            found.push(LoggedTransaction {
                journal: self.expected.journal,
                sequence: parsed.sequence,
                first: parsed.first,
                last: parsed.last,
                marks: parsed.marks,
                durable_upto: parsed.durable_upto,
                records: parsed.records,
            });
        }
    }

    /// The transaction at a place and its length, if it is complete and the expected one.
    fn transaction_at(
        &mut self,
        segment: usize,
        offset: u32,
        sequence: u64,
        number: u64,
    ) -> Result<Option<(ParsedTransaction, u32)>> {
        let left = self.segment_blocks - offset;
        if left == 0 {
            return Ok(None);
        }
        let at = self.segments[segment].offset(offset.into());
        let head = peek(self.reader.blocks(at, 1, left)?, at, self.expected);
        let Some((found, blocks)) = head else {
            return Ok(None);
        };
        if found != sequence || blocks > left {
            return Ok(None);
        }
        assert!(
            blocks <= u32::MAX / BLOCK_BYTES_U32,
            "a segment is far smaller"
        );
        let parsed = open(self.reader.blocks(at, blocks, left)?, self.expected);
        Ok(parsed
            .filter(|parsed| parsed.first == number)
            .map(|parsed| (parsed, blocks)))
    }

    /// The segment whose start seems to hold transaction `sequence`.
    fn segment_starting_with(&mut self, sequence: u64) -> Result<Option<usize>> {
        if self.starts.is_none() {
            let mut starts = BTreeMap::new();
            for (index, segment) in self.segments.iter().enumerate() {
                let block = self.reader.blocks(*segment, 1, 1)?;
                if let Some((found, _)) = peek(block, *segment, self.expected) {
                    starts.insert(found, index);
                }
            }
            self.starts = Some(starts);
        }
        Ok(self
            .starts
            .as_ref()
            .and_then(|starts| starts.get(&sequence).copied()))
    }
}
