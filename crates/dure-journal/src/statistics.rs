//! What each journal counts, and how long its transactions stay in each state.
//!
//! **Problem.** Counters must not become a contended line themselves, and must be readable while a
//! device hangs and with it the holder of a lock. **Structure.** Tallies per journal, in three
//! groups by their writer: the holder of `joined`, the holder of `writer`, and committers on the
//! cores of the journal. [`Journal::statistics`] reads them without a lock.
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

use dure_sync::{CachePadded, CoreId, Histogram, HistogramCounts, Tally, clock};

use crate::ids::JournalId;
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Link, Writer};
use crate::ring::Ring;
use crate::trace::TraceEvent;
use crate::units::to_u64;

/// How many kinds of operations are distinguished.
pub const OPERATION_KINDS: usize = 16;
/// Transactions of a journal between written and valid whose times are kept; of more, some are not
/// timed.
const TIMED: usize = 64;

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

/// Handles of one kind of operation, and the bytes they logged.
#[derive(Debug, Default)]
struct OperationTallies {
    handles: Tally,
    bytes: Tally,
}

/// Written by the holder of `joined`.
#[derive(Debug, Default)]
pub(crate) struct JoinTallies {
    pub(crate) begun: Tally,
    pub(crate) joined: Tally,
    pub(crate) dropped: Tally,
    pub(crate) log_full: Tally,
    pub(crate) effects: Tally,
    /// Marks that handles were given, and those left without each handle's own duplicates.
    pub(crate) marks_given: Tally,
    pub(crate) marks_joined: Tally,
    pub(crate) bytes: Tally,
    /// Policy `image`: images captured, images frozen, changes of another running transaction's
    /// buffer.
    pub(crate) images: Tally,
    pub(crate) frozen: Tally,
    pub(crate) two_way: Tally,
    pub(crate) close_full: Tally,
    taken: Tally,
    taken_bytes: Tally,
    taken_transactions: Tally,
    valid_transactions: Tally,
    operations: [OperationTallies; OPERATION_KINDS],
    running: Histogram,
    writing: Histogram,
    written: Histogram,
    durable: Histogram,
    valid: Histogram,
}

impl JoinTallies {
    /// A handle has joined with this many bytes of records and marks.
    #[inline]
    pub(crate) fn joined(&self, operation: u8, bytes: u64) {
        self.joined.add(1);
        self.bytes.add(bytes);
        let operation = &self.operations[usize::from(operation)];
        operation.handles.add(1);
        operation.bytes.add(bytes);
    }

    /// A commit has taken these handles and bytes, as `transactions` transactions.
    pub(crate) fn took(&self, handles: usize, bytes: u64, transactions: usize) {
        self.taken.add(to_u64(handles));
        self.taken_bytes.add(bytes);
        self.taken_transactions.add(to_u64(transactions));
    }
}

/// Written by the holder of `writer`.
#[derive(Debug)]
pub(crate) struct WriteTallies {
    pub(crate) transactions: Tally,
    pub(crate) blocks: Tally,
    pub(crate) record_bytes: Tally,
    pub(crate) marks: Tally,
    pub(crate) marks_dropped: Tally,
    pub(crate) gap_blocks: Tally,
    pub(crate) log_full: Tally,
    /// Written by the holder of the lock over all headers.
    pub(crate) headers: Tally,
    pub(crate) checkpointed: Tally,
    pub(crate) ring_used: Tally,
    pub(crate) ring_capacity: Tally,
    /// When transaction `sequence` was written, at `sequence % TIMED`.
    written_ns: [Tally; TIMED],
}

impl Default for WriteTallies {
    fn default() -> Self {
        let zero = || Tally::new(0);
        Self {
            transactions: zero(),
            blocks: zero(),
            record_bytes: zero(),
            marks: zero(),
            marks_dropped: zero(),
            gap_blocks: zero(),
            log_full: zero(),
            headers: zero(),
            checkpointed: zero(),
            ring_used: zero(),
            ring_capacity: zero(),
            written_ns: [const { Tally::new(0) }; TIMED],
        }
    }
}

fn slot_of(sequence: u64) -> usize {
    usize::try_from(sequence % to_u64(TIMED)).expect("the remainder is the index of a slot")
}

impl WriteTallies {
    /// The ring has changed.
    pub(crate) fn ring(&self, ring: &Ring) {
        let (used, capacity) = ring.used_and_capacity();
        self.ring_used.set(used);
        self.ring_capacity.set(capacity);
    }

    /// The write of the transaction before the head has completed.
    pub(crate) fn wrote(&self, writer: &Writer, blocks: u32, record_bytes: u64, ns: u64) {
        self.blocks.add(u64::from(blocks));
        self.record_bytes.add(record_bytes);
        self.marks.add(to_u64(writer.marks.len()));
        self.ring(&writer.ring);
        let sequence = writer.sequence - 1;
        self.written_ns[slot_of(sequence)].set(ns);
        self.transactions.set(sequence);
    }
}

/// Written by committers on the cores that use the journal.
#[derive(Debug)]
pub(crate) struct CommitTallies {
    pub(crate) commits: Tally,
    pub(crate) journals: Tally,
    pub(crate) flushes: Tally,
    stalls: [Histogram; Stall::ALL.len()],
    durable_transactions: Tally,
    /// When transaction `sequence` became durable, at `sequence % TIMED`.
    durable_ns: [Tally; TIMED],
}

impl Default for CommitTallies {
    fn default() -> Self {
        Self {
            commits: Tally::new(0),
            journals: Tally::new(0),
            flushes: Tally::new(0),
            stalls: [const { Histogram::new() }; Stall::ALL.len()],
            durable_transactions: Tally::new(0),
            durable_ns: [const { Tally::new(0) }; TIMED],
        }
    }
}

impl CommitTallies {
    /// A flush that began when transaction `sequence` was the last one written has completed.
    pub(crate) fn durable(&self, sequence: u64, ns: u64) {
        let before = self.durable_transactions.raise(sequence);
        for sequence in (before + 1).max(sequence.saturating_sub(to_u64(TIMED) - 1))..=sequence {
            self.durable_ns[slot_of(sequence)].set(ns);
        }
    }
}

/// All tallies of one journal.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) join: CachePadded<JoinTallies>,
    pub(crate) write: CachePadded<WriteTallies>,
    pub(crate) commit: CachePadded<CommitTallies>,
}

impl Tallies {
    /// The transaction of `link` has become valid at `ns`: its times go to the histograms. The
    /// caller holds `joined`.
    pub(crate) fn became_valid(&self, link: &Link, ns: u64) {
        let join = &self.join;
        join.valid_transactions.set(link.sequence);
        join.running
            .count(link.taken_ns.saturating_sub(link.since_ns));
        if self.write.transactions.get() >= link.sequence + to_u64(TIMED) {
            // Its slots may already hold the times of a younger one.
            return;
        }
        let written = self.write.written_ns[slot_of(link.sequence)].get();
        let durable = self.commit.durable_ns[slot_of(link.sequence)].get();
        join.writing.count(written.saturating_sub(link.taken_ns));
        join.written.count(durable.saturating_sub(written));
        join.durable.count(ns.saturating_sub(durable));
    }

    /// The tail has passed `count` transactions. The caller holds `joined` and `writer`.
    pub(crate) fn checkpointed<E>(&self, joined: &mut Joined<E>, count: usize) {
        if count == 0 {
            return;
        }
        self.write.checkpointed.add(to_u64(count));
        let ns = clock::monotonic_ns();
        let count = count.min(joined.valid_ns.len());
        for since in joined.valid_ns.drain(..count) {
            self.join.valid.count(ns.saturating_sub(since));
        }
    }
}

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
