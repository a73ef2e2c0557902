//! How much of what cores copy from and to persistent memory is on their own NUMA node.
//!
//! **Structure.** The node of each medium, the machine's table, and counters per core. **Invariants.**
//! Counting writes a line of the core's own. **Crash.** Starts at zero.

use dure_sync::{Arc, Counter, Topology, current_core};

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

    /// So many bytes were read from a medium.
    #[inline]
    pub(super) fn read(&self, medium: usize, bytes: usize) {
        self.count(medium, bytes, [&self.local_read, &self.remote_read]);
    }

    /// They were written.
    #[inline]
    pub(super) fn wrote(&self, medium: usize, bytes: usize) {
        self.count(medium, bytes, [&self.local_written, &self.remote_written]);
    }

    #[inline]
    fn count(&self, medium: usize, bytes: usize, [local, remote]: [&Counter; 2]) {
        let Some(node) = self.of_medium[medium] else {
            return;
        };
        let near = self.topology.node_of(current_core()) == node;
        let counter = if near { local } else { remote };
        counter.add(i64::try_from(bytes).expect("a buffer has so many"));
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
