//! The statistics of a journal as plain numbers.
//!
//! **Problem.** Code that prints or compares numbers must not depend on how they are counted.
//! **Structure.** [`LogStatistics`], all that one journal counts. **Invariants.** The numbers are
//! loaded one by one, so they need not be of the same moment. **Crash.** Nothing.

use dure_sync::HistogramCounts;

use super::{OPERATION_KINDS, Stall};
use crate::ids::JournalId;

/// Handles and bytes of one kind of operation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OperationCounts {
    /// Handles that joined.
    pub handles: u64,
    /// Bytes of their records and marks.
    pub bytes: u64,
}

/// Transactions by state, as of now.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Handles of the running transaction: joined, not taken by a commit.
    pub running_handles: u64,
    /// Bytes of its records and marks.
    pub running_bytes: u64,
    /// Taken by a commit that is writing them.
    pub writing: u64,
    /// Written, not known to be flushed.
    pub written: u64,
    /// Durable, not known to be valid.
    pub durable: u64,
    /// Valid, not yet passed by the tail.
    pub valid: u64,
    /// Passed by the tail since the start.
    pub checkpointed: u64,
}

/// Nanoseconds that transactions stayed in each state they have left.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StateTimes {
    /// Collecting handles.
    pub running: HistogramCounts,
    /// Being written.
    pub writing: HistogramCounts,
    /// Waiting for the end of a flush.
    pub written: HistogramCounts,
    /// Waiting for the rest of a closure.
    pub durable: HistogramCounts,
    /// Waiting for a checkpoint.
    pub valid: HistogramCounts,
}

/// One journal since the start. Numbers of different groups are read one after another and may
/// differ by some handles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatistics {
    /// Which one.
    pub journal: JournalId,
    /// Handles begun.
    pub begun: u64,
    /// Handles joined.
    pub joined: u64,
    /// Handles dropped; the rest is open.
    pub dropped: u64,
    /// Marks that handles were given.
    pub marks_given: u64,
    /// Marks left when each handle had dropped its own duplicates.
    pub marks_joined: u64,
    /// Marks written.
    pub marks_written: u64,
    /// Marks that a written transaction did not need.
    pub marks_dropped: u64,
    /// Bytes of records and marks of joined handles.
    pub bytes_joined: u64,
    /// Bytes of records written.
    pub record_bytes: u64,
    /// By the number that [`crate::Handle::set_operation`] was given.
    pub operations: [OperationCounts; OPERATION_KINDS],
    /// Transactions by state.
    pub transactions: TransactionCounts,
    /// How long they stayed there.
    pub times: StateTimes,
    /// Transactions written.
    pub writes: u64,
    /// Blocks of them.
    pub blocks: u64,
    /// Blocks left empty at the ends of segments.
    pub gap_blocks: u64,
    /// Journal headers written.
    pub headers: u64,
    /// Commits by cores of this journal that had something to write or flush.
    pub commits: u64,
    /// Journals that these commits covered.
    pub commit_journals: u64,
    /// Flushes that these commits, and checkpoints, asked the medium for.
    pub flushes: u64,
    /// Commits by cores of this journal that closed all journals at one moment, since their rounds
    /// did not end (policy `image`).
    pub commits_at_once: u64,
    /// Nanoseconds waited, by reason, in the order of [`Stall::ALL`].
    pub stalls: [HistogramCounts; Stall::ALL.len()],
    /// Times that `begin` found the log full.
    pub begin_log_full: u64,
    /// Times that `commit` found the log full.
    pub commit_log_full: u64,
    /// Effects settled.
    pub effects: u64,
    /// Images of buffers logged (policy `image`).
    pub images: u64,
    /// Images frozen for a transaction that was committing (policy `image`).
    pub frozen: u64,
    /// Changes of a buffer that another journal's running transaction had (policy `image`).
    pub two_way: u64,
    /// Blocks of the ring from the tail's segment to the head.
    pub ring_used: u64,
    /// Blocks of the ring.
    pub ring_capacity: u64,
}

impl LogStatistics {
    /// Nanoseconds waited for this reason.
    #[must_use]
    pub fn stall(&self, stall: Stall) -> &HistogramCounts {
        &self.stalls[stall.index()]
    }

    /// Handles that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.begun.saturating_sub(self.joined + self.dropped)
    }
}
