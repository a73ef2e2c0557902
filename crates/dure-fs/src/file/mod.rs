//! File data: map, page cache, reading, writing, write-back, truncation, allocation, syncing.
//!
//! **Problem.** Overwrites and reads of cached pages must cost a copy and little more, on any
//! number of cores; what fsync promised must survive a crash, and no crash may show a page or a
//! size that never was.
//!
//! **Structure.** [`map`] finds slots; `read`, `write`, `seek`, `truncate` and `allocate` are the
//! calls, and `sync` makes what they did durable. They check their arguments, take [`ranges`], and
//! ask the [`body`], which says where the content is: [`cached`], with pages in memory, or [`direct`],
//! in persistent memory. `placing` is what both need before pages get other blocks.
//!
//! **Policies.** `page_cache=dram`: pages live in DRAM and dirty ones are lost by a crash unless synced.
//! `page_cache=none`: they are read and written where they lie.
//! `range_lock=inode`, and `rwsem`, the baseline, whose readers have one count: the inode's
//! reader/writer lock is the range lock. Readers of a file hold it shared, a writer exclusively. `tree`, `bitmap`, `segment`: writers of a contended
//! file lock [`ranges`].
//!
//! # Invariants
//! Lock order: range < write-back mutex < inode < lists. `file.size` >= `data.size`, and
//! `seek_hint` has at least that; the data always equals what was logged. The map changes only
//! under both the write-back mutex and the inode lock; but a checkpoint that cannot place a page of
//! the data log names another block, with no lock but the inode's.
//!
//! **On a crash** see `cached::writeback` and `truncate`.

mod allocate;
pub(crate) mod body;
mod bytes;
mod cached;
mod direct;
mod extents;
pub(crate) mod map;
mod marks;
mod placing;
mod ranges;
mod read;
mod run;
mod seek;
mod seek_hint;
mod sharing;
mod state;
mod sync;
mod sync_rounds;
#[cfg(test)]
mod tests;
mod truncate;
mod write;

pub use allocate::AllocateMode;
pub use extents::Extents;
pub use map::FILE_BYTES_MAX;
pub use read::{Begun, ReadMode, UnderWay};
pub use seek::SeekTarget;
pub use state::Stamp;
pub use sync::SyncScope;

pub(crate) use cached::{Growth, PAGE_BYTES, PageCache, ReadAhead, Readings};
pub(crate) use marks::PendingMarks;
pub(crate) use seek_hint::{SeekHint, VisibleSize};
pub(crate) use sharing::Sharing;
pub(crate) use state::FileState;

use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_sync::{Arc, CoreId};

use crate::inode::{Inode, InodeRef};
use crate::volume::Volume;

/// The inode, if it is a regular file.
fn regular(inode: &InodeRef) -> Result<&Arc<Inode>> {
    match inode.kind() {
        FileKind::File => Ok(inode.inode()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

impl Volume {
    /// Gives reserved blocks back.
    fn unreserve(&self, core: CoreId, blocks: u32) {
        if blocks > 0 {
            self.space.unreserve(core, blocks);
        }
    }
}
