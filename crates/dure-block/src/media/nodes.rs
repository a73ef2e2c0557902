//! How much of what cores copy from and to persistent memory is on their own NUMA node.
//!
//! **Structure.** The node of each medium, the machine's table, and counters per core. **Invariants.**
//! Counting writes a line of the core's own. **Crash.** Starts at zero.

use dure_sync::{Arc, Counter, Topology, current_core};

use super::pace::Copy;

/// The counters.
#[derive(Debug)]
pub(super) struct Nodes {
    topology: Arc<Topology>,
    /// By medium; `None`: on none.
    of_medium: Vec<Option<u32>>,
    local_read: Counter,
    remote_read: Counter,
    local_written: Counter,
    remote_written: Counter,
}

/// Bytes that were copied from and to persistent memory on the node of the calling core, and on
/// others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct NodeCounters {
    /// Read on the own node.
    pub local_read: u64,
    /// Read on another.
    pub remote_read: u64,
    /// Written on the own node.
    pub local_written: u64,
    /// Written on another.
    pub remote_written: u64,
}

impl Nodes {
    pub(super) fn new(of_medium: &[Option<u32>], topology: Arc<Topology>) -> Nodes {
        Nodes {
            topology,
            of_medium: of_medium.to_vec(),
            local_read: Counter::new(),
            remote_read: Counter::new(),
            local_written: Counter::new(),
            remote_written: Counter::new(),
        }
    }

    /// Counts a copy from or to a medium. Returns whether that is on another node.
    #[inline]
    pub(super) fn count(&self, medium: usize, copy: Copy) -> bool {
        let Some(node) = self.of_medium[medium] else {
            return false;
        };
        let (bytes, [local, remote]) = match copy {
            Copy::Read(bytes) => (bytes, [&self.local_read, &self.remote_read]),
            Copy::Write(bytes) => (bytes, [&self.local_written, &self.remote_written]),
        };
        let is_remote = self.topology.node_of(current_core()) != node;
        let counter = if is_remote { remote } else { local };
        counter.add(i64::try_from(bytes).expect("a buffer has so many"));
        is_remote
    }

    pub(super) fn counters(&self) -> NodeCounters {
        let sum = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        NodeCounters {
            local_read: sum(&self.local_read),
            remote_read: sum(&self.remote_read),
            local_written: sum(&self.local_written),
            remote_written: sum(&self.remote_written),
        }
    }
}
