//! The mounted volume: the store below, and what files have in memory above it.
//!
//! **Structure.** [`Volume`] owns a [`Store`] and the caches of inodes, names and pages;
//! [`FileSystem`] is the public handle to it. `mount` begins and ends it, `background` works for
//! it, `memory` divides the bytes of the caches.
//!
//! **Invariants.** When the store stops ([`Store`] says when), the volume stops: changes are
//! refused, reads still work. **On a crash** the next mount recovers the store, and then finishes
//! what the orphan slots name.

mod activity;
mod background;
mod memory;
mod mount;
mod nvram;
mod options;
mod rules;
mod service;
mod statistics;
#[cfg(test)]
mod tests;

pub use activity::{Absorbed, Activity};
pub use background::WorkerActivity;
pub use nvram::{NvramAbsorb, NvramOptions};
pub use options::{
    AccessTime, Background, CrashGuarantee, DataMode, DirtyLimit, FsyncScope, MountOptions,
    PageCaching, RangeWait,
};
pub use rules::{AttributeRule, DirectoryRule, RangeRule, VolumeRules};
pub use statistics::Statistics;

use std::fmt;
use std::ops::Deref;

use dure_store::Store;
use dure_sync::range_lock::WordBudget;
use dure_sync::{Arc, CachePadded, Counter, Mutex};

use crate::directory::dentry_cache::DentryCache;
use crate::directory::last_listed::LastListed;
use crate::file::body::Body;
use crate::file::{PageCache, ReadAhead};
use crate::inode::{AccessTimes, AttributeCache, InodeCache, InodePools, Orphans};
use crate::namespace::SymlinkCache;
use crate::ranks::RENAME;

/// Counters of the files of a mounted volume.
#[derive(Debug, Default)]
pub(crate) struct VolumeCounters {
    /// Blocks moved by the cleaner.
    pub(crate) cleaned_blocks: Counter,
    /// Pages moved from persistent memory to the block device.
    pub(crate) moved_blocks: Counter,
    /// Deletions of unlinked inodes that failed and are left to the next mount.
    pub(crate) deletions_left: Counter,
    /// Inodes in use: what the mount found, and what operations have made and freed since.
    pub(crate) inodes: Counter,
}

/// A mounted volume: a store, and what its files have in memory.
///
/// It dereferences to the store: code for files also begins operations, follows nodes and reads
/// blocks, in hundreds of places, and nothing of the store is hidden from it.
pub(crate) struct Volume {
    pub(crate) store: Store,
    pub(crate) options: MountOptions,
    pub(crate) inodes: InodeCache,
    /// The dentry, attribute and symlink caches, which are read without a lock.
    pub(crate) dentries: DentryCache,
    pub(crate) attribute_cache: Arc<AttributeCache>,
    pub(crate) symlinks: SymlinkCache,
    pub(crate) inode_pools: InodePools,
    pub(crate) access_times: AccessTimes,
    /// Where the content of files is.
    pub(crate) body: Body,
    pub(crate) pages: PageCache,
    pub(crate) last_listed: LastListed,
    /// Parts of files that the device is reading ahead.
    pub(crate) read_ahead: ReadAhead,
    /// The words of all files' range locks.
    pub(crate) range_words: Arc<WordBudget>,
    pub(crate) orphans: Orphans,
    /// On a line of its own, apart from what every call reads.
    pub(crate) rename: CachePadded<Mutex<RENAME, ()>>,
    pub(crate) counters: VolumeCounters,
    background: background::Workers,
}

impl Deref for Volume {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// A mounted dure volume. Clones are the same volume; any number of threads may use it. Close it
/// with [`FileSystem::close`]; dropping the last clone without that is like a crash of the process
/// (nothing synced is lost).
#[derive(Clone, Debug)]
pub struct FileSystem(pub(crate) Arc<Volume>);
