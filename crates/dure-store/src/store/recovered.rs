//! What a mount had to recover, and how long that took.

use dure_journal::recovery::Scan;
use dure_sync::clock;

use crate::recovery::replay::Replayed;
use crate::units::{BLOCK_BYTES_U64, to_u64};

/// What the recovery of a mount found and did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStatistics {
    /// Bytes of the complete transactions in all logs.
    pub log_bytes: u64,
    /// Complete transactions.
    pub transactions: u64,
    /// Transactions that were applied.
    pub applied: u64,
    /// Nodes that they changed.
    pub nodes: u64,
    /// Pages of file data that came with the logs and belong to a file.
    pub pages: u64,
    /// Threads it ran on at most.
    pub threads: u64,
    /// Threads that applied the transactions: fewer where there are few records.
    pub threads_applying: u64,
    /// Nanoseconds of reading the logs.
    pub scan_ns: u64,
    /// Nanoseconds of applying transactions in memory, and of comparing data.
    pub apply_ns: u64,
    /// Nanoseconds of writing what changed; 0 for a read-only mount.
    pub write_ns: u64,
}

impl RecoveryStatistics {
    /// Nanoseconds of all of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.scan_ns + self.apply_ns + self.write_ns
    }

    /// MiB of log a second.
    #[must_use]
    pub fn mib_per_second(&self) -> u64 {
        let rate = u128::from(self.log_bytes) * 1_000_000_000 / u128::from(self.total_ns().max(1));
        u64::try_from(rate >> 20).unwrap_or(u64::MAX)
    }
}

/// Takes the times of a recovery.
#[derive(Debug)]
pub(super) struct Stopwatch {
    last_ns: u64,
    pub(super) statistics: RecoveryStatistics,
}

impl Stopwatch {
    pub(super) fn start(threads: usize) -> Stopwatch {
        Stopwatch {
            last_ns: clock::monotonic_ns(),
            statistics: RecoveryStatistics {
                threads: to_u64(threads),
                ..RecoveryStatistics::default()
            },
        }
    }

    fn lap(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        now.saturating_sub(std::mem::replace(&mut self.last_ns, now))
    }

    pub(super) fn scanned(&mut self, logs: &Scan) {
        self.statistics.scan_ns = self.lap();
        let blocks: u64 = logs.rings().iter().map(|ring| ring.blocks).sum();
        self.statistics.log_bytes = blocks * BLOCK_BYTES_U64;
        self.statistics.transactions = to_u64(logs.transactions().len());
    }

    pub(super) fn applied(&mut self, logs: &Scan, replayed: &Replayed) {
        self.statistics.apply_ns = self.lap();
        let applied = logs.survivors().into_iter().filter(|survives| *survives);
        self.statistics.applied = to_u64(applied.count());
        let changed = replayed.nodes.values().filter(|node| node.changed);
        self.statistics.nodes = to_u64(changed.count());
        self.statistics.pages = to_u64(replayed.data.len());
        self.statistics.threads_applying = to_u64(replayed.threads);
    }

    pub(super) fn written(&mut self) {
        self.statistics.write_ns = self.lap();
    }
}
