//! Reading.

use dure_store::error::Result;

use crate::inode::InodeRef;
use crate::volume::FileSystem;

/// Whether a read goes through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Pages read stay in memory.
    Cached,
    /// What is in memory is used, the rest comes from the device and is not kept: there is a cache
    /// above.
    Bypass,
}

impl FileSystem {
    /// Reads into `buf` from `offset` on; fewer bytes than asked for only at the end of the file,
    /// or in front of a page that cannot be read.
    ///
    /// # Errors
    /// `Corrupt` when a page is not what was written, errors of the device, `Invalid` when the
    /// inode is not a regular file.
    pub fn read(
        &self,
        inode: &InodeRef,
        offset: u64,
        buf: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize> {
        let inode = super::regular(inode)?;
        self.0.body.read(&self.0, inode, (offset, buf), mode)
    }

    /// Whether such a read would wait for the medium or for another task, as far as can be told
    /// without waiting. It may be different a moment later.
    #[must_use]
    pub fn read_waits(&self, inode: &InodeRef, offset: u64, len: usize) -> bool {
        super::regular(inode).is_ok_and(|inode| {
            let body = self.0.body;
            body.read_waits(&self.0, inode, (offset, len))
        })
    }
}
