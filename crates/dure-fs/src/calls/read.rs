//! Reading.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::units::to_u64;

use crate::file::{Advice, Begun, ReadMode, UnderWay, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

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
        let inode = regular(inode)?;
        self.0
            .files
            .body
            .read(&self.0.files, inode, (offset, buf), mode)
    }

    /// Begins to read into `buf` from `offset` on, through the page cache. What is not in memory is
    /// submitted to the device, and the call returns meanwhile.
    ///
    /// # Errors
    /// Those of [`FileSystem::read`].
    pub fn begin_read(&self, inode: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<Begun> {
        let inode = regular(inode)?;
        let begun = self
            .0
            .files
            .body
            .begin_read(&self.0.files, inode, (offset, buf))?;
        Ok(match begun {
            Begun::Read(count) => Begun::Read(count),
            Begun::UnderWay(count, readings) => Begun::UnderWay(count, UnderWay(readings)),
        })
    }

    /// Ends a read of `buf` from `offset` on, of which `read` bytes were read when it was begun.
    /// Returns how many bytes are read; waits for the device.
    ///
    /// # Errors
    /// Those of [`FileSystem::read`].
    pub fn end_read(
        &self,
        inode: &InodeRef,
        (read, under_way): (usize, UnderWay),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let file = regular(inode)?;
        self.0.files.end_readings(file, under_way.0);
        let at = offset.saturating_add(to_u64(read));
        match self.read(inode, at, &mut buf[read..], ReadMode::Cached) {
            Ok(more) => Ok(read + more),
            Err(_) if read > 0 => Ok(read),
            Err(error) => Err(error),
        }
    }

    /// Ends a read whose bytes are not wanted any more; waits for nothing.
    pub fn cancel_read(&self, under_way: UnderWay) {
        self.0.files.give_readings_up(under_way.0);
    }

    /// Waits until a read that this core has begun may have got further. False: none of them is
    /// under way as far as can be told, so that one of them is to be ended.
    #[must_use]
    pub fn wait_for_reads(&self) -> bool {
        self.0.store.region.wait_any()
    }

    /// Looks whether reads that were begun have got further, and waits for nothing.
    pub fn poll_reads(&self) {
        self.0.store.region.poll();
    }

    /// Takes a hint about `bytes` of a file: pages that will be needed are read ahead, as many as a
    /// part of the page cache holds, and those that will not leave memory if they were written back.
    /// Nothing is waited for but the inode lock; without a page cache nothing happens.
    ///
    /// # Errors
    /// `Invalid` when the inode is not a regular file.
    pub fn advise(&self, inode: &InodeRef, bytes: Range<u64>, advice: Advice) -> Result<()> {
        self.0.files.advise(regular(inode)?, &bytes, advice);
        Ok(())
    }

    /// Whether such a read would wait for the medium or for another task, as far as can be told
    /// without waiting. It may be different a moment later.
    #[must_use]
    pub fn read_waits(&self, inode: &InodeRef, offset: u64, len: usize) -> bool {
        regular(inode).is_ok_and(|inode| {
            let body = self.0.files.body;
            body.read_waits(&self.0.files, inode, (offset, len))
        })
    }
}
