//! Writing, appending, and the room that is kept for what others have accepted.

use dure_store::error::Result;

use crate::file::{Room, Stamp, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

impl FileSystem {
    /// Writes `data` at `offset`, extending the file as needed. Fewer bytes than given are written
    /// only when the rest fails.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Stopped`; `Corrupt` and device errors when part of a
    /// page is written whose rest cannot be read; `Invalid` when the inode is not a regular file.
    pub fn write(&self, inode: &InodeRef, offset: u64, data: &[u8], stamp: Stamp) -> Result<usize> {
        self.0
            .files
            .write(Room::Part, regular(inode)?, (offset, data), stamp)
    }

    /// Like [`FileSystem::write`], but when there is no room for all of at most 1 MiB (a quarter of
    /// the page cache, if that is less) nothing is written.
    ///
    /// # Errors
    /// Those of [`FileSystem::write`].
    pub fn write_whole(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<usize> {
        self.0
            .files
            .write(Room::Whole, regular(inode)?, (offset, data), stamp)
    }

    /// Writes what has been accepted already, by the kernel's cache for instance: it may take of
    /// the blocks that [`FileSystem::promise_room`] keeps. Otherwise as [`FileSystem::write`].
    ///
    /// # Errors
    /// Those of [`FileSystem::write`].
    pub fn write_promised(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<usize> {
        self.0
            .files
            .write(Room::Promised, regular(inode)?, (offset, data), stamp)
    }

    /// Keeps `blocks` free blocks of 4 KiB for [`FileSystem::write_promised`], in place of as many as
    /// before: no other call gets them, and [`FileSystem::statistics`] counts them as free but not as
    /// available. If fewer are free, those that come back are kept. Returns how many are kept now.
    ///
    /// A page takes a block, and up to three more if it is the first of a part of its file: each
    /// 4 KiB of the map serves 256 pages or so.
    pub fn promise_room(&self, blocks: u64) -> u64 {
        self.0.store.space.promise(blocks)
    }

    /// Blocks of 4 KiB that any call can have, less a few that each core has set aside. Reads one
    /// cache line; [`FileSystem::statistics`] is exact.
    #[must_use]
    pub fn room_at_hand(&self) -> u64 {
        self.0.store.space.pool()
    }

    /// Whether a write of so many bytes would wait for the medium or for another task, or sleep
    /// because too much is dirty, as far as can be told without waiting. It may be different a
    /// moment later.
    #[must_use]
    pub fn write_waits(&self, inode: &InodeRef, offset: u64, len: usize) -> bool {
        regular(inode).is_ok_and(|inode| {
            let body = self.0.files.body;
            body.write_waits(&self.0.files, inode, (offset, len))
        })
    }

    /// Writes `data` at the end of the file; says where that was. Appends of up to 4 MiB (a quarter
    /// of the page cache, if that is less) are atomic; longer ones are several.
    ///
    /// # Errors
    /// Those of [`FileSystem::write`].
    pub fn append(&self, inode: &InodeRef, data: &[u8]) -> Result<(u64, usize)> {
        self.0.files.append(regular(inode)?, data)
    }
}
