//! What each journal counts, and how long its transactions stay in each state.
//!
//! **Problem.** Counters must not become a contended line themselves, and must be readable while a
//! device hangs and with it the holder of a lock. **Structure.** Tallies per journal, in three
//! groups by their writer: the holder of `joined`, the holder of `writer`, and committers on the
//! cores of the journal ([`tallies`]). [`Journal::statistics`] reads them without a lock, into plain
//! numbers ([`counts`]).
//!
//! # States of a transaction
//! A transaction is *running* from its first join (or the take that left handles behind) until a
//! commit takes it, *writing* until its write completes, *written* until a flush covers it,
//! *durable* until its closure is, *valid* until a tail passes it, then *checkpointed*. The clock
//! is read at the first join of a transaction, when it is taken, written and flushed, and when a
//! tail moves: never per handle. The times wait in a slot per sequence until the transaction is
//! valid, and then go to the histograms.
//!
//! **Invariants.** No decision depends on these numbers. **Crash.** All start at zero.

mod counts;
mod tallies;

use dure_sync::CoreId;

pub use counts::{LogStatistics, OperationCounts, StateTimes, TransactionCounts};
pub(crate) use tallies::{CommitTallies, Tallies};

use crate::ids::JournalId;
use crate::journal::{Journal, Settle};
use crate::log::CoreLog;
use crate::trace::TraceEvent;

/// How many kinds of operations are distinguished.
pub const OPERATION_KINDS: usize = 16;

/// Why a task waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stall {
    /// The log was full: a checkpoint had to make room.
    LogFull,
    /// A checkpoint was running, or had to run for lack of blocks.
    Checkpoint,
    /// Another committer was writing the same log.
    Writer,
    /// The device flushed.
    Flush,
    /// Another committer was settling.
    Settle,
}

impl Stall {
    /// All of them.
    pub const ALL: [Stall; 5] = [
        Stall::LogFull,
        Stall::Checkpoint,
        Stall::Writer,
        Stall::Flush,
        Stall::Settle,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Stall::LogFull => "log-full",
            Stall::Checkpoint => "checkpoint",
            Stall::Writer => "writer",
            Stall::Flush => "flush",
            Stall::Settle => "settle",
        }
    }

    const fn index(self) -> usize {
        match self {
            Stall::LogFull => 0,
            Stall::Checkpoint => 1,
            Stall::Writer => 2,
            Stall::Flush => 3,
            Stall::Settle => 4,
        }
    }
}

impl<E> CoreLog<E> {
    fn statistics(&self) -> LogStatistics {
        let (join, write, commit) = (
            &self.tallies.join,
            &self.tallies.write,
            &self.tallies.commit,
        );
        let mut operations = [OperationCounts::default(); OPERATION_KINDS];
        for (out, tallies) in operations.iter_mut().zip(&join.operations) {
            out.handles = tallies.handles.get();
            out.bytes = tallies.bytes.get();
        }
        LogStatistics {
            journal: self.id,
            // Loaded from the last state to the first, so that no difference is negative.
            dropped: join.dropped.get(),
            joined: join.joined.get(),
            begun: join.begun.get(),
            marks_given: join.marks_given.get(),
            marks_joined: join.marks_joined.get(),
            marks_written: write.marks.get(),
            marks_dropped: write.marks_dropped.get(),
            bytes_joined: join.bytes.get(),
            record_bytes: write.record_bytes.get(),
            operations,
            transactions: self.transaction_counts(),
            times: StateTimes {
                running: join.running.get(),
                writing: join.writing.get(),
                written: join.written.get(),
                durable: join.durable.get(),
                valid: join.valid.get(),
            },
            writes: write.transactions.get(),
            blocks: write.blocks.get(),
            gap_blocks: write.gap_blocks.get(),
            headers: write.headers.get(),
            commits: commit.commits.get(),
            commit_journals: commit.journals.get(),
            flushes: commit.flushes.get(),
            commits_at_once: commit.at_once.get(),
            stalls: std::array::from_fn(|index| commit.stalls[index].get()),
            begin_log_full: join.log_full.get(),
            commit_log_full: write.log_full.get() + join.close_full.get(),
            effects: join.effects.get(),
            images: join.images.get(),
            frozen: join.frozen.get(),
            two_way: join.two_way.get(),
            ring_used: write.ring_used.get(),
            ring_capacity: write.ring_capacity.get(),
        }
    }

    fn transaction_counts(&self) -> TransactionCounts {
        let (join, write) = (&self.tallies.join, &self.tallies.write);
        // Sequences begin at 1, so the last one in a state is how many have reached it.
        let checkpointed = write.checkpointed.get();
        let valid = join.valid_transactions.get();
        let durable = self.tallies.commit.durable_transactions.get();
        let written = write.transactions.get();
        let (handles, bytes) = (join.taken.get(), join.taken_bytes.get());
        TransactionCounts {
            running_handles: join.joined.get().saturating_sub(handles),
            running_bytes: join.bytes.get().saturating_sub(bytes),
            writing: join.taken_transactions.get().saturating_sub(written),
            written: written.saturating_sub(durable),
            durable: durable.saturating_sub(valid),
            valid: valid.saturating_sub(checkpointed),
            checkpointed,
        }
    }
}

impl<S: Settle> Journal<S> {
    /// The statistics of every journal since the start. Takes no lock, so it returns while a device
    /// hangs.
    #[must_use]
    pub fn statistics(&self) -> Vec<LogStatistics> {
        self.logs.iter().map(CoreLog::statistics).collect()
    }

    /// Counts, for the journal of `core`, a wait of `ns` for this reason.
    pub fn stalled(&self, core: CoreId, stall: Stall, ns: u64) {
        let journal = self.journal_of(core);
        self.commit_tallies(journal).stalls[stall.index()].count_shared(ns);
        self.trace
            .record(Some(journal), || TraceEvent::Stall { stall, ns });
    }

    /// The tallies for committers of this journal's cores.
    pub(crate) fn commit_tallies(&self, journal: JournalId) -> &CommitTallies {
        &self.log(journal).tallies.commit
    }
}
