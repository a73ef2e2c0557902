//! What the store asks of the file system above it.
//!
//! **Problem.** A store knows blocks and nodes, and no file; but whether a slot may change its
//! block, and which pages in memory hold blocks, only files know. **Structure.** One trait, given
//! to the store when the mount is complete. All other calls go from the file system to the store.
//! **Invariants.** Calls are rare (a block that cannot be written, a log or a cache that is half
//! full, a checkpoint, a volume that is full), so they may be dynamic. **On a crash** nothing here matters.

use std::fmt;

use dure_journal::JournalId;
use dure_sync::CoreId;

use super::Store;
use crate::error::{Error, Result};
use crate::units::BlockNo;

/// What is built on a store.
pub trait Above: fmt::Debug + Send + Sync {
    /// Finds another block for data that is in the data log and cannot be written to `block`, and
    /// makes the slot name it by an operation of the checkpoint; false when no slot had to change.
    /// The caller holds the checkpoint lock and no inode.
    ///
    /// # Errors
    /// The last block's error; what the operation reports.
    fn find_home(&self, core: CoreId, block: BlockNo) -> Result<bool>;

    /// The log of `journal` has become half full: a checkpoint soon would save operations from
    /// waiting for one; `checkpoints` were made by now. Returns at once.
    fn want_log_room(&self, journal: JournalId, checkpoints: i64);

    /// Nodes and owners that only memory has are half as many as may be: a checkpoint soon would
    /// save operations from making one. `core` has seen it. Returns at once.
    fn want_memory_room(&self, core: CoreId, checkpoints: i64);

    /// A checkpoint begins, in which several partitions have a share: those that work in the
    /// background may help ([`Store::help_checkpoint`]). Returns at once.
    fn want_checkpoint_help(&self);

    /// Writes back pages in memory that hold reserved blocks. Errors are those of files: their
    /// fsync reports them.
    fn free_reserved(&self);
}

impl Store {
    /// Tells the store what is built on it.
    ///
    /// # Panics
    /// When it was told before.
    pub fn attach(&self, above: Box<dyn Above>) {
        assert!(self.above.set(above).is_ok(), "a volume is mounted once");
    }

    /// Finds another block for a page of the data log; see [`Above::find_home`].
    pub(crate) fn find_home(&self, core: CoreId, block: BlockNo) -> Result<bool> {
        let none = Error::NoSpace {
            what: "blocks for data whose own cannot be written",
        };
        self.above.get().ok_or(none)?.find_home(core, block)
    }

    /// Asks for room in a log; see [`Above::want_log_room`].
    pub(super) fn want_log_room(&self, journal: JournalId) {
        if let Some(above) = self.above.get() {
            above.want_log_room(journal, self.counters.checkpoints.sum());
        }
    }

    /// Asks for a checkpoint; see [`Above::want_memory_room`].
    #[cold]
    pub(super) fn want_memory_room(&self, core: CoreId) {
        if let Some(above) = self.above.get() {
            above.want_memory_room(core, self.counters.checkpoints.sum());
        }
    }

    /// Asks for help with a checkpoint; see [`Above::want_checkpoint_help`].
    pub(super) fn want_checkpoint_help(&self) {
        if let Some(above) = self.above.get() {
            above.want_checkpoint_help();
        }
    }

    /// Asks for blocks that are reserved for pages; see [`Above::free_reserved`].
    pub(super) fn free_reserved(&self) {
        if let Some(above) = self.above.get() {
            above.free_reserved();
        }
    }
}
