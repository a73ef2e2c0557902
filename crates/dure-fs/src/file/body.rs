//! Where the content of files is, and what the rest of dure-fs asks of it.
//!
//! **Problem.** Data on a device of blocks is read and written through pages in memory, and
//! write-back brings it to its blocks later. Data in persistent memory needs neither copy nor
//! write-back: it is read and written where it lies. Arguments, ranges, map, holes and the
//! end of an inode are the same in both cases.
//!
//! **Structure.** [`Body`] says which of them a volume has: chosen by the mount, for all its
//! files. Its methods are all that is asked of a body, each one `match`. The calls of
//! [`FileSystem`](crate::volume::FileSystem) check their arguments and take ranges, then they ask
//! here; so do callers outside `file`. Where `Direct` does what `Cached` does, no page is in memory:
//! there is nothing to write back, to drop or to look at besides the map. What is not asked:
//! preallocation, which is a change of the
//! map, and the bound on memory with its eviction, which only [`cached`](super::cached) knows.
//!
//! | verb | the caller holds |
//! |---|---|
//! | `read`, `truncate`, `seek`, `sync`, `read_waits`, `write_waits` | nothing of the inode |
//! | `write_back`, `write_back_all`, `write_back_over`, `write_back_reserved`, `settle` | nothing of the inode |
//! | `write`, `append`, `zero` | the range, if the file has a range lock and the range was free |
//! | `place_reserved` | the write-back mutex |
//! | `discard`, `discard_behind` | the write-back mutex, and the inode exclusively |
//! | `end_allocation` | the range, as for `write` |
//! | `forget` | the inode exclusively |
//!
//! A body takes the other locks itself, in the order range < write-back mutex < inode. A writer
//! without a range excludes the others by the exclusive inode lock.
//!
//! # Invariants
//! * Reads. A read sees each page at one moment, never half of a write; what a write, truncate or
//!   allocation has returned is there for every later read, seek and size. Writes of up to 64
//!   pages and appends of up to 4 MiB are never mixed with other writes or truncates.
//! * Room. What was accepted finds its blocks: they, and those of map nodes, are reserved before
//!   the first change. A write that fails has changed nothing behind what it says it wrote.
//! * Zeroes. Bytes of a page behind the end of the file are zero, wherever the page is.
//! * Size and hints. [`SeekHint`](super::SeekHint) is told first, by the task that makes pages data
//!   or moves the end, and has the size that calls see; `FileState::size` may be less until a task holds
//!   the inode exclusively. The inode's data never has a size that covers bytes which are not on
//!   the medium.
//! * Map. It changes only under the write-back lock and the exclusive inode lock, in an operation;
//!   but for slots of a contended file without a page cache ([`direct`](super::direct)). While
//!   `FileState::cut` is set, slots behind it do not count.
//! * Sync. When the marks it returns are valid, everything that was written before it began is
//!   durable, with the size that takes. Data is written before the operation that names it joins
//!   the journal, or is in that operation, so the flush of the commit covers both.
//!
//! **On a crash** each page of a file is as it was synced, or as a later call left it (with
//! `data=writeback` perhaps zero), never a mixture, and never what was in its block before.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use dure_sync::{Arc, CoreId};

use super::Readings;
use super::bytes::split;
use super::marks::PendingMarks;
use super::ranges::Range as HeldRange;
use super::read::{Begun, ReadMode};
use super::seek_hint::SeekTarget;
use super::state::{FileState, Stamp};
use super::sync::SyncScope;
use super::write::Room;
use crate::file::Files;
use crate::inode::{Inode, InodeState};
use crate::volume::PageCaching;

/// Where the content of a volume's files is; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// In blocks of a device, through pages in memory ([`super::cached`]).
    Cached,
    /// In persistent memory, used where it lies ([`super::direct`]).
    Direct,
}

impl Body {
    /// That of a volume whose files are in memory, or not.
    pub(crate) fn of(pages: PageCaching) -> Body {
        match pages {
            PageCaching::Dram | PageCaching::Nvram => Body::Cached,
            PageCaching::None => Body::Direct,
        }
    }
}

/// What calls on a file ask.
impl Body {
    /// Reads into `buf` from `offset` on; fewer bytes than asked for only at the end of the file,
    /// or in front of a page that cannot be read. Notes the read for the access time.
    #[inline]
    pub(crate) fn read(
        self,
        files: &Files,
        inode: &Arc<Inode>,
        (offset, buf): (u64, &mut [u8]),
        mode: ReadMode,
    ) -> Result<usize> {
        match self {
            Body::Cached => files.read_cached(inode, (offset, buf), mode),
            Body::Direct => files.read_direct(inode, (offset, buf)),
        }
    }

    /// Begins a read: what is in memory is copied, and what is not is submitted, if that can be.
    pub(crate) fn begin_read(
        self,
        files: &Files,
        inode: &Arc<Inode>,
        (offset, buf): (u64, &mut [u8]),
    ) -> Result<Begun<Readings>> {
        match self {
            Body::Cached => files.begin_cached_read(inode, (offset, buf)),
            // For a copy at most.
            Body::Direct => files.read_direct(inode, (offset, buf)).map(Begun::Read),
        }
    }

    /// Whether a read would wait for the medium or for another task, as far as can be told.
    pub(crate) fn read_waits(
        self,
        files: &Files,
        inode: &Inode,
        (offset, len): (u64, usize),
    ) -> bool {
        match self {
            Body::Cached => files.read_cached_waits(inode, (offset, len)),
            // For a copy at most.
            Body::Direct => false,
        }
    }

    /// Whether a write would wait for the medium or for another task, as far as can be told.
    pub(crate) fn write_waits(
        self,
        files: &Files,
        inode: &Inode,
        (offset, len): (u64, usize),
    ) -> bool {
        match self {
            Body::Cached => files.write_cached_waits(inode, (offset, len)),
            // For a copy at most.
            Body::Direct => false,
        }
    }

    /// Whether an fsync would wait for the medium or for another task, as far as can be told.
    pub(crate) fn fsync_waits(self, files: &Files, inode: &Inode) -> bool {
        match self {
            Body::Cached => files.fsync_cached_waits(inode),
            // No pages wait for it; its medium is memory.
            Body::Direct => false,
        }
    }

    /// The bytes whose range a read or a write of these takes, as offset and length. Without a page
    /// cache a page is used, and given another block, as a whole.
    #[inline]
    pub(super) fn claim(self, offset: u64, len: usize) -> (u64, usize) {
        match self {
            Body::Cached => (offset, len),
            Body::Direct => {
                let (page, within) = split(offset);
                let whole = (within + len).next_multiple_of(BLOCK_BYTES);
                (page * BLOCK_BYTES_U64, whole)
            }
        }
    }

    /// Writes `data` at `offset`, which together are no longer than a file may be. Returns how
    /// much; less only when the rest fails.
    #[inline]
    pub(super) fn write(
        self,
        files: &Files,
        (inode, range): (&Arc<Inode>, Option<HeldRange<'_>>),
        (offset, data): (u64, &[u8]),
        room: Room,
        stamp: Stamp,
    ) -> Result<usize> {
        match self {
            Body::Cached => files.write_cached((inode, range), (offset, data), room, stamp),
            Body::Direct => files.write_direct((inode, range), (offset, data), room, stamp),
        }
    }

    /// Writes `data`, at least a byte, at the end of the file; returns where that was, and how
    /// much. The range reaches from the end on.
    pub(super) fn append(
        self,
        files: &Files,
        (inode, range): (&Arc<Inode>, Option<HeldRange<'_>>),
        data: &[u8],
    ) -> Result<(u64, usize)> {
        match self {
            Body::Cached => files.append_cached((inode, range.as_ref()), data),
            Body::Direct => files.append_direct(inode, data),
        }
    }

    /// Sets the size, at most that of the largest file, and the times. A shorter file loses its
    /// slots by [`Files::cut`].
    pub(super) fn truncate(self, files: &Files, inode: &Arc<Inode>, size: u64) -> Result<()> {
        match self {
            Body::Cached => files.truncate_cached(inode, size),
            Body::Direct => files.truncate_direct(inode, size),
        }
    }

    /// Makes bytes within one page zero, as far as the file has them and they are not zero because
    /// nothing is there.
    pub(super) fn zero(
        self,
        files: &Files,
        (inode, range): (&Arc<Inode>, Option<&HeldRange<'_>>),
        bytes: Range<u64>,
    ) -> Result<()> {
        match self {
            Body::Cached => files.zero_cached((inode, range), bytes),
            Body::Direct => files.zero_direct(inode, bytes),
        }
    }

    /// The first offset at or behind `offset` that is data, or a hole, if there is one. No hint has
    /// answered; what is found is kept for the next seek.
    pub(super) fn seek(
        self,
        files: &Files,
        inode: &Inode,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>> {
        match self {
            Body::Cached | Body::Direct => files.seek_cached(inode, offset, target),
        }
    }

    /// For fsync: brings what was written into operations that have joined the journal. Returns
    /// the operations that concerned the inode, apart from the last writers of its granules.
    pub(super) fn sync(
        self,
        files: &Files,
        inode: &Arc<Inode>,
        scope: SyncScope,
    ) -> Result<PendingMarks> {
        match self {
            Body::Cached | Body::Direct => files.sync_cached(inode, scope),
        }
    }
}

/// What changes of the map ask.
impl Body {
    /// The slots of these pages have gone, or say that they are unwritten: what is in memory of
    /// them goes too, unwritten.
    pub(super) fn discard(self, files: &Files, file: &mut FileState, pages: Range<u64>) {
        match self {
            Body::Cached | Body::Direct => files.drop_pages(file, pages),
        }
    }

    /// Like `discard`, for all pages behind byte `size`, where the file ends now. The slot of the
    /// page in which it ends has zeroes behind the end.
    pub(super) fn discard_behind(self, files: &Files, file: &mut FileState, size: u64) {
        match self {
            Body::Cached | Body::Direct => files.drop_behind(file, size),
        }
    }

    /// Brings data to blocks that are reserved for it, since an allocation lacks blocks and may be
    /// about to fill the same holes.
    pub(super) fn place_reserved(self, files: &Files, inode: &Arc<Inode>) -> Result<()> {
        match self {
            Body::Cached | Body::Direct => files.place_dirty(inode),
        }
    }

    /// The end of an allocation: the file has at least `size` bytes, and was changed now.
    pub(super) fn end_allocation(
        self,
        files: &Files,
        inode: &Arc<Inode>,
        size: Option<u64>,
    ) -> Result<()> {
        match self {
            Body::Cached => {
                files.note_end(inode, size);
                Ok(())
            }
            Body::Direct => files.log_end(inode, size),
        }
    }
}

/// What inodes, names and the volume ask.
impl Body {
    /// Brings all that was written, the size and the times into operations. What fails is still
    /// to be written, and every fsync fails until it is.
    pub(crate) fn write_back(self, files: &Files, inode: &Arc<Inode>) -> Result<()> {
        match self {
            Body::Cached | Body::Direct => files.write_back(inode).map(drop),
        }
    }

    /// Like `write_back`, for all files that have something to write when this begins. Returns the
    /// first failure, after all others were tried.
    pub(crate) fn write_back_all(self, files: &Files) -> Result<()> {
        match self {
            Body::Cached | Body::Direct => files.write_back_all(),
        }
    }

    /// Like `write_back`, for the files on the list of `core`, which the caller serves. Adds the
    /// pages written to `pages`.
    pub(crate) fn write_back_list(
        self,
        files: &Files,
        core: CoreId,
        pages: &mut u64,
    ) -> Result<()> {
        match self {
            Body::Cached | Body::Direct => files.write_back_list(core, pages),
        }
    }

    /// Writes back the files on the list of `core`, which the caller serves, if it has more dirty
    /// pages than may wait for the commit interval. Adds the pages written to `pages`; returns
    /// whether there are still too many. What fails is reported by an fsync of its file.
    pub(crate) fn write_back_over(self, files: &Files, core: CoreId, pages: &mut u64) -> bool {
        match self {
            Body::Cached | Body::Direct => files.write_back_over(core, pages),
        }
    }

    /// Writes back files that no task is writing back, to free blocks that are reserved for them.
    pub(crate) fn write_back_reserved(self, files: &Files) -> Result<()> {
        match self {
            Body::Cached | Body::Direct => files.write_back_some(u64::MAX).map(drop),
        }
    }

    /// These inodes should leave memory: brings what is pending into operations, and drops what is
    /// in memory, of those no write-back of which is under way. What fails stays.
    pub(crate) fn settle(self, files: &Files, inodes: &[Arc<Inode>]) {
        match self {
            Body::Cached | Body::Direct => files.settle_files(inodes),
        }
    }

    /// How many inodes to settle together.
    pub(crate) fn settled_together(self, files: &Files) -> usize {
        match self {
            Body::Cached | Body::Direct => files.settled_together(),
        }
    }

    /// An inode leaves memory, since it was deleted or is clean: so does all that it has there of
    /// a file, if it is one.
    pub(crate) fn forget(self, files: &Files, inode: &Inode, state: &mut InodeState) {
        match self {
            Body::Cached | Body::Direct => files.forget_file(inode, state),
        }
    }
}
