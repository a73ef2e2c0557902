//! What is counted, by the task that counts it.
//!
//! **Problem.** A counter with one writer costs a store, one with many a contended line.
//! **Structure.** A group of tallies per writer, each on lines of its own. **Invariants.** Only the
//! holder of the group's lock adds to it; to that of committers, any of them. **Crash.** All start
//! at zero.

use dure_sync::{CachePadded, Histogram, Tally, clock};

use super::{OPERATION_KINDS, Stall};
use crate::log::{Joined, Link, Writer};
use crate::ring::Ring;
use crate::units::to_u64;

/// Transactions of a journal between written and valid whose times are kept; of more, some are not
/// timed.
const TIMED: usize = 64;

/// Handles of one kind of operation, and the bytes they logged.
#[derive(Debug, Default)]
pub(super) struct OperationTallies {
    pub(super) handles: Tally,
    pub(super) bytes: Tally,
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
    pub(super) taken: Tally,
    pub(super) taken_bytes: Tally,
    pub(super) taken_transactions: Tally,
    pub(super) valid_transactions: Tally,
    pub(super) operations: [OperationTallies; OPERATION_KINDS],
    pub(super) running: Histogram,
    pub(super) writing: Histogram,
    pub(super) written: Histogram,
    pub(super) durable: Histogram,
    pub(super) valid: Histogram,
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
    /// Policy `image`: commits whose rounds did not end.
    pub(crate) at_once: Tally,
    pub(super) stalls: [Histogram; Stall::ALL.len()],
    pub(super) durable_transactions: Tally,
    /// When transaction `sequence` became durable, at `sequence % TIMED`.
    durable_ns: [Tally; TIMED],
}

impl Default for CommitTallies {
    fn default() -> Self {
        Self {
            commits: Tally::new(0),
            journals: Tally::new(0),
            flushes: Tally::new(0),
            at_once: Tally::new(0),
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
