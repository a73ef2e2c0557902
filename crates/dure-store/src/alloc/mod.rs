//! Which core allocates where: the policies of `alloc=`.
//!
//! **Problem.** A core that allocates nodes, inodes, blocks and orphan slots out of what other
//! cores use shares their nodes and segments from then on, and with them their locks and, with
//! whole-node records, their transactions. How much that costs can be measured only if it can be
//! switched on. **Structure.** A policy says which partition (pools of inode numbers, node ids and
//! orphan slots, open segments) serves a core. One file per policy:
//!
//! | policy | partition | origin |
//! |---|---|---|
//! | `global` | one for all cores: one shared cursor | ext4 without affinity, the baseline |
//! | `local` | the core's own | Z-Journal's block-group affinity ("low sharing"), pNOVA |
//!
//! In which region of persistent memory: `numa`.
//!
//! **Invariants.** Only *where* differs: reservations, limits and what is durable are the same.
//! Which journal a core uses is not decided here. **On a crash** nothing of this is remembered.

mod active_logs;
mod global;
mod local;
mod numa;

use dure_sync::CoreId;

pub use active_logs::ActiveLogs;
pub use active_logs::Temperature;
pub(crate) use numa::Homes;
pub use numa::{Numa, NumaPolicy};

/// Which partition serves a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AllocPolicy {
    /// All cores allocate at one shared place.
    Global,
    /// Each core allocates in its own groups.
    #[default]
    Local,
}

impl AllocPolicy {
    /// The partition that serves the core of partition `own`.
    pub fn partition(self, own: CoreId) -> CoreId {
        match self {
            AllocPolicy::Global => global::partition(),
            AllocPolicy::Local => local::partition(own),
        }
    }
}
