//! Writing and appending: what is the same wherever the data goes.
//!
//! **Structure.** A call checks its arguments and takes the range of its bytes, if the file has a
//! range lock ([`super::ranges`]); the rest is the [body](super::body::Body)'s.

use dure_store::error::{Error, Result};
use dure_store::space::OpClass;
use dure_store::units::to_usize;

use super::map::FILE_BYTES_MAX;
use super::state::Stamp;
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};

/// What becomes of a write for which there is not room enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The last free blocks take a part of it, as POSIX has it.
    Part,
    /// It fails.
    Whole,
    /// It takes of what was promised ([`FileSystem::promise_room`]), then as `Part`.
    Promised,
}

impl Room {
    /// What the blocks of pages that have none are reserved as.
    pub(super) fn class(self) -> OpClass {
        match self {
            Room::Part | Room::Whole => OpClass::Normal,
            Room::Promised => OpClass::Promised,
        }
    }

    /// Whether a part of the write is better than nothing.
    pub(super) fn takes_parts(self) -> bool {
        self != Room::Whole
    }
}

impl FileSystem {
    /// Writes `data` at `offset`, extending the file as needed. Fewer bytes than given are written
    /// only when the rest fails.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Stopped`; `Corrupt` and device errors when part of a
    /// page is written whose rest cannot be read; `Invalid` when the inode is not a regular file.
    pub fn write(&self, inode: &InodeRef, offset: u64, data: &[u8], stamp: Stamp) -> Result<usize> {
        self.write_in(Room::Part, inode, (offset, data), stamp)
    }

    /// The same, but when there is no room for all of at most 1 MiB (a quarter of the page cache,
    /// if that is less) nothing is written.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn write_whole(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<usize> {
        self.write_in(Room::Whole, inode, (offset, data), stamp)
    }

    /// Writes what somebody else has accepted already, the kernel's cache for instance: it may take of
    /// the blocks that [`FileSystem::promise_room`] keeps. Otherwise as [`FileSystem::write`].
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn write_promised(
        &self,
        inode: &InodeRef,
        offset: u64,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<usize> {
        self.write_in(Room::Promised, inode, (offset, data), stamp)
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
        crate::file::regular(inode).is_ok_and(|inode| {
            let body = self.0.files.body;
            body.write_waits(&self.0.files, inode, (offset, len))
        })
    }

    #[inline]
    fn write_in(
        &self,
        room: Room,
        inode: &InodeRef,
        (offset, data): (u64, &[u8]),
        stamp: Stamp,
    ) -> Result<usize> {
        let inode = crate::file::regular(inode)?;
        self.0.store.check_writable()?;
        let left = FILE_BYTES_MAX.saturating_sub(offset);
        if left == 0 && !data.is_empty() {
            return Err(Error::TooLarge);
        }
        let data = &data[..data.len().min(to_usize(left))];
        let ranges = inode.ranges_in(&self.0.files);
        let range = match self.0.options.volume_rules.ranges {
            RangeRule::Broken(left_out) => ranges.take_elsewhere(left_out),
            _ => {
                let (from, len) = self.0.files.body.claim(offset, data.len());
                ranges.take(from, len)
            }
        };
        let to = (inode, range);
        let done = self
            .0
            .files
            .body
            .write(&self.0.files, to, (offset, data), room, stamp)?;
        self.0.files.end_data_call(inode)?;
        Ok(done)
    }

    /// Writes `data` at the end of the file; says where that was. Appends of up to 4 MiB (a quarter
    /// of the page cache, if that is less) are atomic; longer ones are several.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn append(&self, inode: &InodeRef, data: &[u8]) -> Result<(u64, usize)> {
        let inode = crate::file::regular(inode)?;
        self.0.store.check_writable()?;
        if data.is_empty() {
            return Ok((inode.state().seek_hint().size(), 0));
        }
        inode.ranges_in(&self.0.files);
        let range = inode.take_end(u64::MAX);
        let done = self
            .0
            .files
            .body
            .append(&self.0.files, (inode, range), data)?;
        self.0.files.end_data_call(inode)?;
        Ok(done)
    }
}
