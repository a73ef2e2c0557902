//! File data: map, page cache, reading, writing, write-back, truncation, allocation, syncing.
//!
//! **Problem.** Overwrites and reads of cached pages must cost a copy and little more, on any
//! number of cores; what fsync promised must survive a crash, and no crash may show a page or a
//! size that never was.
//!
//! **Structure.** [`Files`] owns all of it. [`map`] finds slots; `write`, `seek`, `truncate` and
//! `allocate` change and find data, and `sync` makes it durable. They check their arguments, take
//! [`ranges`], and ask the [`body`], which says where the content is: [`cached`], with pages in memory,
//! or [`direct`], in persistent memory. `placing` is what both need before pages get other blocks.
//! `delete` frees what an inode owns when its last user leaves, and `relieve` makes room for inodes.
//!
//! **Policies.** `page_cache=dram`: pages live in DRAM and dirty ones are lost by a crash unless synced.
//! `page_cache=none`: they are read and written where they lie.
//! `range_lock=inode`, and `rwsem`, the baseline, whose readers have one count: the inode's
//! reader/writer lock is the range lock. Readers of a file hold it shared, a writer exclusively.
//! `tree`, `bitmap`, `segment`: writers of a contended file lock [`ranges`].
//!
//! # Invariants
//! Lock order: range < write-back mutex < inode < lists. `file.size` >= `data.size`, and
//! `seek_hint` has at least that; the data always equals what was logged. The map changes only
//! under both the write-back mutex and the inode lock; but a checkpoint that cannot place a page of
//! the data log names another block, with no lock but the inode's.
//!
//! **On a crash** see `cached::writeback` and `truncate`.

mod advise;
mod allocate;
pub(crate) mod body;
mod bytes;
mod cached;
mod changed;
mod clone;
mod contended;
mod delete;
mod direct;
mod extents;
pub(crate) mod map;
mod marks;
mod placing;
mod ranges;
mod read;
mod relieve;
mod run;
mod seek;
mod seek_hint;
mod sharing;
mod state;
mod stored_time;
mod sync;
mod sync_rounds;
#[cfg(test)]
mod tests;
mod truncate;
mod write;

pub use advise::Advice;
pub use allocate::AllocateMode;
pub use clone::Deduped;
pub use extents::Extents;
pub use map::FILE_BYTES_MAX;
pub use read::{Begun, ReadMode, UnderWay};
pub use seek_hint::SeekTarget;
pub use state::Stamp;
pub use sync::SyncScope;
pub(crate) use write::Room;

pub(crate) use cached::{Growth, Misses, PAGE_BYTES, PageCache, ReadAhead, Readings};
pub(crate) use marks::PendingMarks;
pub(crate) use relieve::FilesOfInodes;
pub(crate) use seek_hint::{SeekHint, VisibleSize};
pub(crate) use sharing::Sharing;
pub(crate) use state::FileState;

use dure_journal::Order;
use dure_store::Store;
use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_store::format::quota::Usage;
use dure_store::placement::Tier;
use dure_sync::range_lock::Config as RangeLock;
use dure_sync::{Arc, CoreId};

use crate::background::workers::Workers;
use crate::inode::{Inode, InodeRef, Inodes};
use crate::quota::Charged;
use crate::volume::{DataMode, FsyncScope, RangeWait, VolumeRules};
use body::Body;

/// What the mount options say about the content of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOptions {
    pub(crate) data: DataMode,
    /// Whether buffered writes are operations of the journal.
    pub(crate) pages_join: bool,
    pub(crate) order: Order,
    pub(crate) fsync: FsyncScope,
    /// Pages of an fsync that may go into the log.
    pub(crate) pages_in_log: u32,
    /// Whether a call returns once its data is in persistent memory.
    pub(crate) absorbs_all: bool,
    /// Whether data that is in persistent memory before it moves to the device is not in DRAM.
    pub(crate) absorbed_leaves_dram: bool,
    /// Whether each write to persistent memory looks whether data is to be moved.
    pub(crate) each_write_looks: bool,
    /// Where pages go that are written back for an fsync, and others.
    pub(crate) tiers: (Tier, Tier),
    /// Segments of absorbed data above which some are moved to the device, if data is absorbed.
    pub(crate) absorbed_high: Option<u32>,
    /// The range lock of a contended file.
    pub(crate) range_lock: RangeLock,
    /// What a task does that finds its range taken.
    pub(crate) range_wait: RangeWait,
    /// Whether tasks queue for ranges of files.
    pub(crate) ranges_queue: bool,
    pub(crate) rules: VolumeRules,
}

impl FileOptions {
    /// Where pages go that are written back for an fsync, or not.
    fn tier(&self, for_sync: bool) -> Tier {
        match for_sync {
            true => self.tiers.0,
            false => self.tiers.1,
        }
    }
}

/// The content of a volume's files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    /// Woken by what is dirty or misplaced.
    pub(crate) workers: Arc<Workers>,
    pub(crate) options: FileOptions,
    /// Where the content is.
    pub(crate) body: Body,
    pub(crate) pages: PageCache,
    /// Pages that tasks are reading.
    pub(crate) misses: Misses,
    /// Parts of files that the device is reading ahead.
    pub(crate) read_ahead: ReadAhead,
}

/// The inode, if it is a regular file.
pub(crate) fn regular(inode: &InodeRef) -> Result<&Arc<Inode>> {
    match inode.kind() {
        FileKind::File => Ok(inode.inode()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

impl Files {
    /// Charges the owner of a file for blocks; without quotas, callers have none to charge.
    ///
    /// # Errors
    /// `Quota`.
    #[inline]
    fn charge(&self, inode: &Inode, blocks: u32) -> Result<Charged<'_>> {
        match blocks {
            0 => Ok(Charged::none()),
            _ => self.charge_blocks(inode, blocks),
        }
    }

    /// Out of the way of writes without quotas.
    #[cold]
    fn charge_blocks(&self, inode: &Inode, blocks: u32) -> Result<Charged<'_>> {
        let usage = Usage {
            blocks: blocks.into(),
            inodes: 0,
        };
        Charged::charge(self.inodes.quotas(), || inode.attributes(), usage)
    }

    /// Pages of a file were dropped or written: no more blocks are charged than pages wait.
    fn cap_charge(&self, file: &mut FileState) {
        if let Some(quotas) = self.inodes.quotas()
            && let Some(charge) = &mut file.charge
        {
            quotas.waiting_at_most(charge, file.pages.unclean());
        }
    }

    /// Gives reserved blocks back.
    fn unreserve(&self, core: CoreId, blocks: u32) {
        if blocks > 0 {
            self.store.space.unreserve(core, blocks);
        }
    }
}
