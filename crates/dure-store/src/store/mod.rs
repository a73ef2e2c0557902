//! The store: what is on the media of a mounted volume, and how it changes atomically.
//!
//! **Structure.** [`Store`] owns the journal, the NAT, the node cache, the space map and the data
//! log; `mkfs` and `mount` are its beginning, `service` has small services for all modules, `room`
//! the ways to find blocks, `checkpoint` and `grow` what lets logs go on, `trim` what the device is told of free blocks. Operations
//! ([`crate::op`]) stand on it. It knows no inode in memory, no path and no page: what it needs
//! from the file system it asks through [`Above`].
//!
//! **Invariants.** After the first failed write of a log, header, NAT, SIT or image, and after a
//! failed flush, the store is *stopped*: nothing is written any more, every change is refused with
//! the reason, reads go on from memory and medium.
//!
//! **On a crash** see `recovery`.

mod above;
mod checkpoint;
mod copies;
mod features;
mod flags;
mod grow;
mod harden;
mod info;
mod journals;
mod kind;
mod mkfs;
mod mount;
mod past;
mod preload;
mod recovered;
mod replace;
mod resize;
mod room;
mod scrub;
mod service;
mod snapshots;
#[cfg(test)]
pub(crate) mod tests;
mod trim;

pub use above::Above;
pub use flags::turn_on;
pub use grow::IMAGES_MIN;
pub use info::{VolumeInfo, VolumeState};
pub use journals::{JournalInfo, JournalsInfo, LoggedCounts, RecoveryPlan};
pub use kind::OpKind;
pub use mkfs::{RING_SEGMENTS, make_volume};
pub use mount::Mount;
pub use past::Past;
pub use recovered::RecoveryStatistics;
pub use resize::{grow_volume, grown};
pub use scrub::{Damage, Place, Scrubbed};
pub(crate) use service::LogRoom;
use trim::TrimGate;

use std::fmt;

use dure_journal::Journal;
use dure_sync::atomic::{AtomicBool, AtomicU64};
use dure_sync::{Arc, Counter, Mutex, OnceLock};

use crate::backlog::Backlog;
use crate::checkpoint::CheckpointState;
use crate::checkpoint::crew::Crew;
use crate::data_log::DataLog;
use crate::layout::Layout;
use crate::media::Region;
use crate::node::cache::NodeCache;
use crate::node::nat::Nat;
use crate::options::StoreOptions;
use crate::placement::Placement;
use crate::ranks::CHECKPOINT;
use crate::settle::Settler;
use crate::snapshot::Snapshots;
use crate::space::Space;

/// What is counted about a store since it was mounted.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Checkpoints completed.
    pub checkpoints: Counter,
    /// Segments added to log rings.
    pub rings_grown: Counter,
    /// Node images written by checkpoints.
    pub images: Counter,
    /// Calls of commit by fsync and sync.
    pub(crate) commits: Counter,
}

/// The store of a mounted volume.
pub struct Store {
    /// Where everything lies.
    pub layout: Layout,
    /// Where its blocks lie.
    pub region: Arc<Region>,
    pub(crate) options: StoreOptions,
    /// Set once: at the end of a read-write mount. A read-only mount has none.
    journal: OnceLock<Journal<Settler>>,
    /// Which blocks are free.
    pub space: Arc<Space>,
    /// Where images of nodes lie.
    pub nat: Arc<Nat>,
    /// Nodes in memory.
    pub nodes: NodeCache,
    /// Data that is in a log and not yet in its block.
    pub data_log: Arc<DataLog>,
    /// Where pages go, and where they are.
    pub placement: Placement,
    late: harden::LateOperations,
    /// The volume as it was at some checkpoints.
    pub snapshots: Arc<Snapshots>,
    /// Held by the one checkpoint at a time.
    pub checkpoint: Mutex<CHECKPOINT, CheckpointState>,
    /// The tasks that make a checkpoint together.
    crew: Crew,
    /// Number of the checkpoint that runs, or ran last; written under its lock.
    checkpoint_number: AtomicU64,
    /// The first failure of a durable write, once there was one.
    stopped: OnceLock<String>,
    /// Set when the volume has been unmounted.
    closed: AtomicBool,
    /// Blocks that got an owner since the last checkpoint.
    pub owners: Backlog,
    /// Bytes of one journal's records that may wait.
    record_bytes_max: u64,
    /// What is counted.
    pub counters: StoreCounters,
    /// What the mount recovered; nothing of a volume that had been unmounted.
    pub recovered: Option<RecoveryStatistics>,
    /// Inodes in use as the mount found them.
    pub inodes_found: i64,
    /// Inodes may have projects: the superblock says so. Set once, before the first has. Relaxed: the
    /// task that sets it gives projects afterwards, under locks of inodes.
    projects: AtomicBool,
    /// Lets one task at a time take free blocks to trim them.
    trims: TrimGate,
    /// Unreserved blocks when a task last gave up to wait for more; `u64::MAX`: never. Only a task that
    /// gets ENOSPC writes it.
    stuck_at: AtomicU64,
    /// Set once, when what uses the store is complete.
    above: OnceLock<Box<dyn Above>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("blocks", &self.layout.total_blocks)
            .field("stopped", &self.stopped.get())
            .finish_non_exhaustive()
    }
}
