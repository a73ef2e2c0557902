//! The mounted volume: the store below, and what files have in memory above it.
//!
//! **Structure.** [`Volume`] has the owners of its state, from the [`Store`] up to names and
//! background work; [`FileSystem`] is the public handle to it. `mount` makes and ends them,
//! `memory` divides the bytes of the caches.
//!
//! **Invariants.** When the store stops ([`Store`] says when), the volume stops: changes are
//! refused, reads still work. **On a crash** the next mount recovers the store, and then finishes
//! what the orphan slots name.

mod activity;
mod memory;
mod mount;
mod nvram;
mod options;
mod owners;
pub(crate) mod quotas;
mod rules;
mod service;
mod statistics;
#[cfg(test)]
mod tests;

pub use activity::{Absorbed, Activity};
pub use nvram::{NvramAbsorb, NvramLow, NvramOptions};
pub use options::{
    AccessTime, Background, CrashGuarantee, DataMode, DirtyLimit, FsyncScope, MountOptions,
    PageCaching, Preset, RangeWait, Said,
};
pub use rules::{AttributeRule, DirectoryRule, RangeRule, VolumeRules};
pub use statistics::{RoomTaken, Statistics};

use std::fmt;

use dure_store::Store;
use dure_sync::Arc;

use crate::background::BackgroundWork;
use crate::cleaner::Cleaner;
use crate::directory::Directories;
use crate::file::Files;
use crate::inode::Inodes;
use crate::namespace::Names;
use crate::xattr::Xattrs;

/// A mounted volume: the owners of its state. Each has those below it that it uses, so what a
/// function can reach is what its own type has.
pub(crate) struct Volume {
    pub(crate) options: MountOptions,
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) directories: Arc<Directories>,
    pub(crate) xattrs: Arc<Xattrs>,
    pub(crate) files: Arc<Files>,
    pub(crate) names: Names,
    pub(crate) cleaner: Arc<Cleaner>,
    pub(crate) background: Arc<BackgroundWork>,
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
