//! The journals of a volume that is not mounted: headers, rings, what is in the logs, and what the
//! next mount would make of it. For `dure info --journal`.
//!
//! **Structure.** The scan and the recovery of a read-only mount, which write nothing.
//! **Invariants.** What is said of recovery is what it would do: the same functions say it.
//! **Crash.** Nothing is written.

use dure_block::Device;
use dure_journal::JournalId;
use dure_journal::recovery::{LoggedTransaction, Record, Scan, ScannedRing, scan};
use dure_sync::Arc;

use super::Mount;
use crate::error::{Error, Result};
use crate::format::note::DATA;
use crate::format::volume::{STATE_CLEAN, STATE_UNLOGGED};
use crate::headers::{log_layout, read_header, read_layout};
use crate::media::Region;
use crate::options::StoreOptions;
use crate::units::{BlockNo, to_u64};

/// Transactions in a log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LoggedCounts {
    /// Complete ones behind the tail.
    pub complete: u64,
    /// Complete ones known to have been flushed.
    pub durable: u64,
    /// The others: written, and flushed or not.
    pub written: u64,
    /// Complete ones that recovery would apply.
    pub valid: u64,
    /// Those it would leave out because something they depend on is not there.
    pub lacking_marks: u64,
    /// Those it would leave out because data that they, or what they depend on, name is not there.
    pub lacking_data: u64,
    /// Handles in the complete ones: from the first number to the last.
    pub handles: u64,
    /// Records in them.
    pub records: u64,
    /// Records that are copies of whole nodes (compound transactions).
    pub images: u64,
    /// Records that are pages of file data (`data=journal`, and small fsyncs).
    pub data_pages: u64,
    /// Marks in them.
    pub marks: u64,
}

/// One journal as it lies on the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalInfo {
    /// Which one.
    pub journal: JournalId,
    /// First block of the pair of its header.
    pub header_block: u64,
    /// Generation of the newest header.
    pub generation: u64,
    /// Epoch of that header. If it is not the volume's, the log begins at the ring's first block.
    pub header_epoch: u64,
    /// The checkpoint that wrote it; 0 if it is of another epoch.
    pub checkpoint: u64,
    /// First blocks of the segments of its ring.
    pub segments: Vec<u64>,
    /// Segment (its place in `segments`) and block in it where the log begins.
    pub tail: (u32, u32),
    /// Sequence of the transaction expected there.
    pub tail_sequence: u64,
    /// Number of the first handle expected there.
    pub tail_number: u64,
    /// Handles known to have been flushed.
    pub durable_upto: u64,
    /// The first handle number that is not in the log.
    pub next_number: u64,
    /// What is in the log.
    pub transactions: LoggedCounts,
}

/// What the next mount would do about the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryPlan {
    /// Transactions to apply.
    pub apply: u64,
    /// Transactions to leave out.
    pub leave_out: u64,
    /// Nodes whose images would change.
    pub nodes_changed: u64,
    /// Nodes that would be free.
    pub nodes_freed: u64,
    /// Runs of blocks that records name.
    pub runs_named: u64,
}

/// All journals of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalsInfo {
    /// The volume was unmounted: nothing in the logs counts.
    pub clean: bool,
    /// The volume's epoch.
    pub epoch: u64,
    /// First handle number of the epoch.
    pub first_number: u64,
    /// The last completed checkpoint.
    pub checkpoint: u64,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// By journal.
    pub journals: Vec<JournalInfo>,
    /// `None` for a volume that was unmounted. The error is what the mount would fail with.
    pub recovery: Option<std::result::Result<RecoveryPlan, String>>,
}

impl JournalsInfo {
    /// Reads them from `device`, which is not mounted.
    ///
    /// # Errors
    /// `NotDure`, `Unsupported`, `Corrupt`, or a failed read.
    pub fn read(device: Arc<dyn Device>) -> Result<JournalsInfo> {
        let region = Region::open(device);
        let layout = read_layout(&region)?;
        let (header, generation) = read_header(&region, &layout)?;
        let options = StoreOptions {
            read_only: true,
            ..StoreOptions::default()
        };
        let threads = dure_sync::core_count();
        let log = log_layout(&layout, &header, options.rules);
        let mut logs = scan(&region.log_medium(), &log, header.epoch.get(), threads)?;
        let closed = logs.survivors();
        let segment_blocks = layout.segment_blocks;
        let state = header.state.get();
        let clean = state == STATE_CLEAN;
        let recovery = (!clean).then(|| {
            if state == STATE_UNLOGGED {
                return Err(Error::Unlogged);
            }
            crate::recovery::refuse_holes(&logs)?;
            let mount = Mount::new(region, layout.clone(), (header, generation), options)?;
            let space = Arc::new(mount.load_space()?);
            for segment in logs.rings().iter().flat_map(|ring| &ring.start.segments) {
                space.mark_log(BlockNo(segment.number()))?;
            }
            let replayed = mount.recover(&mut logs, &space)?;
            let changed = || replayed.nodes.values().filter(|node| node.changed);
            Ok(RecoveryPlan {
                apply: count(&logs.survivors(), |valid| *valid),
                leave_out: count(&logs.survivors(), |valid| !valid),
                nodes_changed: to_u64(changed().filter(|node| node.image.is_some()).count()),
                nodes_freed: to_u64(changed().filter(|node| node.image.is_none()).count()),
                runs_named: to_u64(replayed.blocks.len()),
            })
        });
        let recovery = recovery.map(|plan: Result<_>| plan.map_err(|error| error.to_string()));
        let journals = logs.rings().iter().enumerate();
        let journals = journals.map(|(index, ring)| journal_info(index, ring, &logs, &closed));
        Ok(JournalsInfo {
            clean,
            epoch: header.epoch.get(),
            first_number: header.first_number.get(),
            checkpoint: header.checkpoint.get(),
            segment_blocks,
            journals: journals.collect(),
            recovery,
        })
    }
}

fn count<T>(all: &[T], which: impl Fn(&T) -> bool) -> u64 {
    to_u64(all.iter().filter(|one| which(one)).count())
}

/// `closed`: what is closed under marks, before data was looked at.
fn journal_info(index: usize, ring: &ScannedRing, logs: &Scan, closed: &[bool]) -> JournalInfo {
    let number = u16::try_from(index).ok();
    let journal = number
        .and_then(JournalId::new)
        .expect("a volume has at most 1000 journals");
    let survivors = logs.survivors();
    let mut counts = LoggedCounts::default();
    let own = |one: &&LoggedTransaction| one.journal == journal;
    let state = closed.iter().zip(&survivors);
    for (one, (closed, valid)) in logs
        .transactions()
        .iter()
        .zip(state)
        .filter(|(t, _)| own(t))
    {
        counts.complete += 1;
        counts.durable += u64::from(one.last <= ring.durable_upto);
        counts.written += u64::from(one.last > ring.durable_upto);
        counts.valid += u64::from(*valid);
        counts.lacking_marks += u64::from(!closed);
        counts.lacking_data += u64::from(*closed && !valid);
        counts.handles += one.last + 1 - one.first;
        counts.records += u64::from(one.records.count());
        let count = |is: fn(&Record<'_>) -> bool| to_u64(one.records.iter().filter(is).count());
        counts.images += count(|record| matches!(record, Record::Image { .. }));
        counts.data_pages += count(|record| matches!(record, Record::Note { kind: DATA, .. }));
        counts.marks += to_u64(one.marks.len());
    }
    let segments = ring.start.segments.iter();
    JournalInfo {
        journal,
        header_block: ring.start.header.number(),
        generation: ring.start.generation,
        header_epoch: ring.header_epoch,
        checkpoint: ring.checkpoint,
        segments: segments.map(|segment| segment.number()).collect(),
        tail: (ring.tail.segment, ring.tail.offset),
        tail_sequence: ring.tail.sequence,
        tail_number: ring.tail.number,
        durable_upto: ring.durable_upto,
        next_number: ring.next_number,
        transactions: counts,
    }
}
