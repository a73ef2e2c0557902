//! File data: map, page cache, reading, writing, write-back, truncation, allocation, syncing.
//!
//! **Problem.** Overwrites and reads of cached pages must cost a copy and little more, on any
//! number of cores; what fsync promised must survive a crash, and no crash may show a page or a
//! size that never was.
//!
//! **Structure.** [`map`] finds slots; `seek`, `truncate` and `allocate` are calls, and `sync` makes
//! what they did durable. [`cached`] has all that is about pages in memory, with the calls that
//! read and write.
//!
//! **Policies.** `cache=dram`: pages live in DRAM and dirty ones are lost by a crash unless synced.
//! `range_lock=inode`, the baseline: the inode's reader/writer lock is the range lock. Readers of a
//! file hold it shared, a writer exclusively. `tree`, `bitmap`, `segment`: writers of a contended
//! file lock [`ranges`].
//!
//! # Invariants
//! Lock order: range < write-back mutex < inode < lists. `file.size` >= `data.size`, and
//! `seek_hint` has at least that; the data always equals what was logged. The map changes only
//! under both the write-back mutex and the inode lock; but a checkpoint that cannot place a page of
//! the data log names another block, with no lock but the inode's.
//!
//! **On a crash** see `writeback` and `truncate`.

mod allocate;
mod cached;
mod extents;
pub(crate) mod map;
mod marks;
mod ranges;
mod run;
mod seek;
mod seek_hint;
mod sharing;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod truncate;

pub use allocate::AllocateMode;
pub(crate) use cached::read::NextRead;
pub use cached::read::ReadMode;
pub use extents::Extents;
pub use map::FILE_BYTES_MAX;
pub use seek::SeekTarget;
pub use state::Stamp;
pub use sync::SyncScope;

pub(crate) use cached::cache::{PAGE_BYTES, PageCache};
pub(crate) use cached::pending_pages::PendingPages;
pub(crate) use marks::PendingMarks;
pub(crate) use seek_hint::{SeekHint, VisibleSize};
pub(crate) use sharing::Sharing;
pub(crate) use state::FileState;

use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_sync::Arc;

use crate::inode::{Inode, InodeRef};

/// The inode, if it is a regular file.
fn regular(inode: &InodeRef) -> Result<&Arc<Inode>> {
    match inode.kind() {
        FileKind::File => Ok(inode.inode()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}
