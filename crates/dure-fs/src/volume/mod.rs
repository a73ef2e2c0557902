//! The mounted volume: all shared state, and the small services every module asks it for.
//!
//! **Structure.** [`Volume`] owns the journal, the NAT, the node cache, the space map and the inode
//! cache; [`FileSystem`] is the public handle on it. `mkfs`, `mount`, `background` are its life;
//! `service` holds reserve, commit and stop.
//!
//! **Invariants.** After the first failed write of a log, header, NAT, SIT or image, and after a
//! failed flush, the volume is *stopped*: nothing is written any more, every change is refused with
//! the reason, reads go on from memory and medium. **On a crash** see `recovery`.

mod activity;
mod background;
mod journals;
mod memory;
mod mkfs;
mod mount;
mod options;
mod recovered;
mod room;
mod rules;
mod service;
mod statistics;
#[cfg(test)]
mod tests;

pub use activity::Activity;
pub use journals::{JournalInfo, JournalsInfo, LoggedCounts, RecoveryPlan};
pub(crate) use memory::Backlog;
pub(crate) use mkfs::RING_SEGMENTS;
#[cfg(test)]
pub(crate) use mount::read_layout;
pub(crate) use mount::{check_numbers, impossible_count, log_layout, read_header};
pub use options::{
    AccessTime, Background, DataMode, FlushRule, FsyncScope, MountOptions, RecordPolicy, Recover,
};
pub use recovered::RecoveryStatistics;
pub use rules::{AttributeRule, DirectoryRule, RangeRule, VolumeRules};
pub(crate) use service::LogRoom;
pub use statistics::{Statistics, VolumeInfo};

use std::fmt;

use dure_block::Queue;
use dure_journal::{Journal, Settle};
use dure_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use dure_sync::{Arc, CachePadded, CoreId, Counter, Mutex, OnceLock};

use crate::alloc::AllocPolicy;
use crate::checkpoint::CheckpointState;
use crate::directory::known::KnownNames;
use crate::file::PageCache;
use crate::inode::{AccessTimes, InodeCache, InodePools, Orphans, ShownAttributes};
use crate::layout::Layout;
use crate::logged::LoggedBlocks;
use crate::namespace::KnownTargets;
use crate::node::cache::NodeCache;
use crate::node::nat::Nat;
use crate::ranks::{CHECKPOINT, RENAME};
use crate::space::{Effect, Space};

/// Turns the effects of valid handles into free blocks and nids.
#[derive(Debug)]
pub(crate) struct Settler {
    space: Arc<Space>,
    nat: Arc<Nat>,
    logged: Arc<LoggedBlocks>,
    cores: usize,
    alloc: AllocPolicy,
    /// As in the rules of the mount options.
    core: Option<Arc<AtomicUsize>>,
}

impl Settle for Settler {
    type Effect = Effect;

    fn settle(&self, effects: Vec<Effect>) {
        let core = self
            .alloc
            .partition(partition_of(self.cores, self.core.as_deref()));
        for effect in &effects {
            if let Effect::NidFree { nid, version } = *effect {
                self.nat.give(core, nid, version);
            }
        }
        // Before the space map: a block can be allocated again as soon as that has it.
        self.space.settle(self.logged.pass(core, effects));
    }
}

/// The partition (and journal) of the core this runs on, or of the one a test pretends to run on.
fn partition_of(journals: usize, pretended: Option<&AtomicUsize>) -> CoreId {
    let core = match pretended {
        None => dure_sync::current_core().index(),
        // Relaxed: any core is right.
        Some(core) => core.load(Ordering::Relaxed),
    };
    CoreId::new(u16::try_from(core % journals).expect("at most 1000 journals"))
}

/// What is counted about a mounted volume.
#[derive(Debug, Default)]
pub(crate) struct VolumeCounters {
    /// Checkpoints completed.
    pub(crate) checkpoints: Counter,
    /// Segments added to log rings.
    pub(crate) rings_grown: Counter,
    /// Node images written by checkpoints.
    pub(crate) images: Counter,
    /// Blocks moved by the cleaner.
    pub(crate) cleaned_blocks: Counter,
    /// Calls of commit by fsync and sync.
    pub(crate) commits: Counter,
    /// Deletions of unlinked inodes that failed and are left to the next mount.
    pub(crate) deletions_left: Counter,
    /// Inodes in use: what the mount found, and what operations have made and freed since.
    pub(crate) inodes: Counter,
}

/// A mounted volume.
pub(crate) struct Volume {
    pub(crate) layout: Layout,
    pub(crate) queue: Arc<Queue>,
    pub(crate) options: MountOptions,
    /// Set once: at the end of a read-write mount. A read-only mount has none.
    journal: OnceLock<Journal<Settler>>,
    pub(crate) space: Arc<Space>,
    pub(crate) nat: Arc<Nat>,
    pub(crate) nodes: NodeCache,
    pub(crate) inodes: InodeCache,
    /// Names, attributes and targets of symbolic links that are found without a lock.
    pub(crate) known_names: KnownNames,
    pub(crate) shown: Arc<ShownAttributes>,
    pub(crate) known_targets: KnownTargets,
    pub(crate) inode_pools: InodePools,
    pub(crate) access_times: AccessTimes,
    pub(crate) pages: PageCache,
    /// Data that is in a log and not yet in its place.
    pub(crate) logged: Arc<LoggedBlocks>,
    pub(crate) orphans: Orphans,
    pub(crate) checkpoint: Mutex<CHECKPOINT, CheckpointState>,
    /// Apart from what every call reads.
    pub(crate) rename: CachePadded<Mutex<RENAME, ()>>,
    /// The first failure of a durable write, once there was one.
    stopped: OnceLock<String>,
    /// Set when the volume has been unmounted.
    closed: AtomicBool,
    /// Blocks that got an owner since the last checkpoint.
    pub(crate) owners: Backlog,
    /// Bytes of one journal's records that may wait.
    record_bytes_max: u64,
    pub(crate) counters: VolumeCounters,
    background: background::Flusher,
    /// What the mount recovered; nothing of a volume that had been unmounted.
    recovered: Option<RecoveryStatistics>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("blocks", &self.layout.total_blocks)
            .field("stopped", &self.stopped.get())
            .finish_non_exhaustive()
    }
}

/// A mounted dure volume. Clones are the same volume; any number of threads may use it. Close it
/// with [`FileSystem::close`]; dropping the last clone without that is like a crash of the process
/// (nothing synced is lost).
#[derive(Clone, Debug)]
pub struct FileSystem(pub(crate) Arc<Volume>);
