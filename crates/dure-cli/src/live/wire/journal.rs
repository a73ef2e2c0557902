//! The counts of a journal.
//!
//! Histograms have buckets of powers of two: the first counts zeros, the n-th after it what is at
//! least 2^(n-1) and below 2^n; empty ones at the end are left out.

use std::collections::BTreeMap;

use dure_fs::{LogStatistics, OpKind, Stall};
use dure_sync::HistogramCounts;
use serde::{Deserialize, Serialize};

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) buckets: Vec<u64>,
}

/// Transactions of a journal by state; `checkpointed` only rises, the others are as of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct States {
    pub(crate) running_handles: u64,
    pub(crate) running_bytes: u64,
    pub(crate) writing: u64,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) valid: u64,
    pub(crate) checkpointed: u64,
}

/// How long transactions stayed in each state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateTimes {
    pub(crate) running: Times,
    pub(crate) writing: Times,
    pub(crate) written: Times,
    pub(crate) durable: Times,
    pub(crate) valid: Times,
}

/// Handles and bytes of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logged {
    pub(crate) handles: u64,
    pub(crate) bytes: u64,
}

/// One journal, or the sum of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalCounts {
    pub(crate) journal: u16,
    pub(crate) handles_begun: u64,
    pub(crate) handles_joined: u64,
    pub(crate) handles_dropped: u64,
    pub(crate) handles_open: u64,
    pub(crate) marks_given: u64,
    pub(crate) marks_joined: u64,
    pub(crate) marks_written: u64,
    pub(crate) marks_not_needed: u64,
    pub(crate) bytes_joined: u64,
    pub(crate) record_bytes_written: u64,
    pub(crate) operations: BTreeMap<String, Logged>,
    pub(crate) transactions: States,
    pub(crate) times: StateTimes,
    pub(crate) writes: u64,
    pub(crate) blocks_written: u64,
    pub(crate) blocks_skipped: u64,
    pub(crate) headers_written: u64,
    pub(crate) commits: u64,
    pub(crate) commit_journals: u64,
    pub(crate) flushes: u64,
    pub(crate) stalls: BTreeMap<String, Times>,
    pub(crate) log_full_at_begin: u64,
    pub(crate) log_full_at_commit: u64,
    pub(crate) effects: u64,
    /// With compound transactions: images logged, images frozen for a commit, marks in both
    /// directions, commits that closed all journals at one moment.
    pub(crate) images: u64,
    pub(crate) images_frozen: u64,
    pub(crate) marks_two_way: u64,
    pub(crate) commits_at_once: u64,
    pub(crate) ring_blocks_used: u64,
    pub(crate) ring_blocks: u64,
}

impl Times {
    fn of(counts: &HistogramCounts) -> Times {
        let used = counts.buckets.iter().rposition(|count| *count > 0);
        Times {
            count: counts.count(),
            sum_ns: counts.sum,
            buckets: counts.buckets[..used.map_or(0, |last| last + 1)].to_vec(),
        }
    }

    /// The mean; `None` of nothing.
    pub(crate) fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }

    fn combine(&mut self, other: &Times, change: fn(u64, u64) -> u64) {
        self.count = change(self.count, other.count);
        self.sum_ns = change(self.sum_ns, other.sum_ns);
        let len = self.buckets.len().max(other.buckets.len());
        self.buckets.resize(len, 0);
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = change(*own, *other);
        }
    }
}

impl JournalCounts {
    pub(super) fn of(log: &LogStatistics) -> JournalCounts {
        let (transactions, times) = (&log.transactions, &log.times);
        let named = |kind: &OpKind| {
            let counts = log.operations[usize::from(kind.number())];
            let logged = Logged {
                handles: counts.handles,
                bytes: counts.bytes,
            };
            (counts.handles > 0).then(|| (kind.name().to_owned(), logged))
        };
        let stalled = |stall: &Stall| (stall.name().to_owned(), Times::of(log.stall(*stall)));
        JournalCounts {
            journal: log.journal.number(),
            handles_begun: log.begun,
            handles_joined: log.joined,
            handles_dropped: log.dropped,
            handles_open: log.open(),
            marks_given: log.marks_given,
            marks_joined: log.marks_joined,
            marks_written: log.marks_written,
            marks_not_needed: log.marks_dropped,
            bytes_joined: log.bytes_joined,
            record_bytes_written: log.record_bytes,
            operations: OpKind::ALL.iter().filter_map(named).collect(),
            transactions: States {
                running_handles: transactions.running_handles,
                running_bytes: transactions.running_bytes,
                writing: transactions.writing,
                written: transactions.written,
                durable: transactions.durable,
                valid: transactions.valid,
                checkpointed: transactions.checkpointed,
            },
            times: StateTimes {
                running: Times::of(&times.running),
                writing: Times::of(&times.writing),
                written: Times::of(&times.written),
                durable: Times::of(&times.durable),
                valid: Times::of(&times.valid),
            },
            writes: log.writes,
            blocks_written: log.blocks,
            blocks_skipped: log.gap_blocks,
            headers_written: log.headers,
            commits: log.commits,
            commit_journals: log.commit_journals,
            flushes: log.flushes,
            stalls: Stall::ALL.iter().map(stalled).collect(),
            log_full_at_begin: log.begin_log_full,
            log_full_at_commit: log.commit_log_full,
            effects: log.effects,
            images: log.images,
            images_frozen: log.frozen,
            marks_two_way: log.two_way,
            commits_at_once: log.commits_at_once,
            ring_blocks_used: log.ring_used,
            ring_blocks: log.ring_capacity,
        }
    }

    /// What happened since `before`; states and the ring are as they are now.
    pub(crate) fn since(&self, before: &JournalCounts) -> JournalCounts {
        let mut counts = self.clone();
        counts.combine(before, u64::saturating_sub);
        counts
    }

    /// Adds another journal.
    pub(crate) fn add(&mut self, other: &JournalCounts) {
        self.combine(other, u64::saturating_add);
        let (own, other_states) = (&mut self.transactions, &other.transactions);
        own.running_handles += other_states.running_handles;
        own.running_bytes += other_states.running_bytes;
        own.writing += other_states.writing;
        own.written += other_states.written;
        own.durable += other_states.durable;
        own.valid += other_states.valid;
        self.handles_open += other.handles_open;
        self.ring_blocks_used += other.ring_blocks_used;
        self.ring_blocks += other.ring_blocks;
    }

    /// Combines all counts that only rise.
    fn combine(&mut self, other: &JournalCounts, change: fn(u64, u64) -> u64) {
        for (own, other) in [
            (&mut self.handles_begun, other.handles_begun),
            (&mut self.handles_joined, other.handles_joined),
            (&mut self.handles_dropped, other.handles_dropped),
            (&mut self.marks_given, other.marks_given),
            (&mut self.marks_joined, other.marks_joined),
            (&mut self.marks_written, other.marks_written),
            (&mut self.marks_not_needed, other.marks_not_needed),
            (&mut self.bytes_joined, other.bytes_joined),
            (&mut self.record_bytes_written, other.record_bytes_written),
            (
                &mut self.transactions.checkpointed,
                other.transactions.checkpointed,
            ),
            (&mut self.writes, other.writes),
            (&mut self.blocks_written, other.blocks_written),
            (&mut self.blocks_skipped, other.blocks_skipped),
            (&mut self.headers_written, other.headers_written),
            (&mut self.commits, other.commits),
            (&mut self.commit_journals, other.commit_journals),
            (&mut self.flushes, other.flushes),
            (&mut self.log_full_at_begin, other.log_full_at_begin),
            (&mut self.log_full_at_commit, other.log_full_at_commit),
            (&mut self.effects, other.effects),
            (&mut self.images, other.images),
            (&mut self.images_frozen, other.images_frozen),
            (&mut self.marks_two_way, other.marks_two_way),
            (&mut self.commits_at_once, other.commits_at_once),
        ] {
            *own = change(*own, other);
        }
        let times = &other.times;
        self.times.running.combine(&times.running, change);
        self.times.writing.combine(&times.writing, change);
        self.times.written.combine(&times.written, change);
        self.times.durable.combine(&times.durable, change);
        self.times.valid.combine(&times.valid, change);
        for (name, times) in &other.stalls {
            let own = self.stalls.entry(name.clone()).or_default();
            own.combine(times, change);
        }
        for (name, logged) in &other.operations {
            let own = self.operations.entry(name.clone()).or_default();
            own.handles = change(own.handles, logged.handles);
            own.bytes = change(own.bytes, logged.bytes);
        }
    }
}
