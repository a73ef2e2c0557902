//! Sizes, holes and extents.

use dure_store::error::Result;

use crate::file::{Extents, SeekTarget, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

impl FileSystem {
    /// The size of a regular file. Cheaper than its attributes, and not kept waiting by tasks that
    /// change these.
    ///
    /// # Errors
    /// `Invalid` for another type of inode.
    pub fn size(&self, inode: &InodeRef) -> Result<u64> {
        Ok(regular(inode)?.state().seek_hint().size())
    }

    /// The first offset at or behind `offset` that is data, or a hole. `None` when there is none:
    /// the offset is at or behind the end of the file, or only a hole follows.
    ///
    /// # Errors
    /// `Corrupt` and device errors of reading the map; `Invalid` for another type of inode.
    pub fn seek(&self, inode: &InodeRef, offset: u64, target: SeekTarget) -> Result<Option<u64>> {
        self.0.files.seek(regular(inode)?, offset, target)
    }

    /// Where the blocks of a regular file lie, counted. Pages that were not written back yet count
    /// as they are on the device. Another task may change the file meanwhile.
    ///
    /// # Errors
    /// `Corrupt` and device errors of reading the map; `IsDirectory`, `Invalid` for another type of
    /// inode.
    pub fn extents(&self, inode: &InodeRef) -> Result<Extents> {
        self.0.files.extents(regular(inode)?)
    }
}
