//! An open file of the volume: what `open(2)` has made in the kernel, and the library's file for it.
//!
//! **Problem.** Descriptors that were duplicated share a position, also with other processes, so the
//! position has to stay the kernel's. **Structure.** A call that uses it asks for it, does its work at
//! that offset, and sets it, under a lock. **Invariants.** Once another process may have the
//! description, such calls are the kernel's, which has its own lock for them. **On a crash** nothing
//! of it is kept.

use std::os::fd::BorrowedFd;

use dure::{Deduped, File, Metadata, Seek};
use dure_sync::Mutex;
use dure_sync::atomic::{AtomicBool, Ordering};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::mapped;
use crate::table::How;

/// Rank of the position of a description: held over the read or write that moves it.
const POSITION: u8 = 24;

/// What a call returns, or its errno.
pub(crate) type Answer = Result<usize, i32>;

/// See the module.
pub(crate) struct Description {
    file: File,
    /// Number of the device that `stat` shows.
    device: u64,
    appends: bool,
    position: Mutex<POSITION, ()>,
    /// Set once, under the lock, before the other process is made: Relaxed.
    shared: AtomicBool,
}

fn refused<T>(result: dure::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.errno())
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a usize fits in 64 bits")
}

impl Description {
    pub(crate) fn new(file: File, device: u64, appends: bool) -> Description {
        Description {
            file,
            device,
            appends,
            position: Mutex::new(()),
            shared: AtomicBool::new(false),
        }
    }

    /// It is about to be mapped.
    pub(crate) fn becomes_mapped(&self, fd: BorrowedFd<'_>) {
        mapped::begin(self.file.ino(), fd);
    }

    /// Another process is about to have it.
    pub(crate) fn becomes_shared(&self) {
        // A call that moves the position ends before.
        let _lock = self.position.lock();
        self.shared.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Answer {
        refused(self.file.read_at(bytes, offset))
    }

    /// At the end if it is open for appending, as Linux does.
    #[inline]
    pub(crate) fn write_at(&self, fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Answer {
        let count = refused(self.file.write_at(bytes, offset))?;
        let end = if self.appends {
            u64::MAX
        } else {
            offset + wide(count)
        };
        mapped::written(self.file.ino(), fd, end);
        Ok(count)
    }

    /// Reads at the position of `fd`.
    pub(crate) fn read(&self, fd: BorrowedFd<'_>, bytes: &mut [u8]) -> How<Answer> {
        self.at_position(fd, |offset| {
            let count = self.read_at(bytes, offset)?;
            Ok((count, offset + wide(count)))
        })
    }

    /// Writes at the position of `fd`, or at the end.
    pub(crate) fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> How<Answer> {
        self.at_position(fd, |offset| {
            if self.appends {
                let count = refused(self.file.write_next(bytes))?;
                let end = refused(self.file.seek_to(Seek::Current(0)))?;
                mapped::written(self.file.ino(), fd, end);
                return Ok((count, end));
            }
            let count = self.write_at(fd, bytes, offset)?;
            Ok((count, offset + wide(count)))
        })
    }

    /// Does something at the position, which says where it is then.
    fn at_position(
        &self,
        fd: BorrowedFd<'_>,
        body: impl FnOnce(u64) -> Result<(usize, u64), i32>,
    ) -> How<Answer> {
        let _lock = self.position.lock();
        if self.shared.load(Ordering::Relaxed) {
            return How::Long;
        }
        let moved = rustix::fs::seek(fd, SeekFrom::Current(0))
            .map_err(Errno::raw_os_error)
            .and_then(body)
            .and_then(|(count, end)| {
                let set = rustix::fs::seek(fd, SeekFrom::Start(end));
                set.map_err(Errno::raw_os_error).map(|_| count)
            });
        How::Short(moved)
    }

    pub(crate) fn sync(&self, data_only: bool) -> Answer {
        let synced = match data_only {
            true => self.file.sync_data(),
            false => self.file.sync_all(),
        };
        refused(synced).map(|()| 0)
    }

    pub(crate) fn truncate(&self, fd: BorrowedFd<'_>, len: u64) -> Answer {
        refused(self.file.set_len(len))?;
        mapped::resized(self.file.ino(), fd);
        Ok(0)
    }

    /// Shares the pages of `source` from `from` on, from `to` on; `len` 0: up to the end of `source`.
    pub(crate) fn clone_from(
        &self,
        (source, from): (&Description, u64),
        (fd, to): (BorrowedFd<'_>, u64),
        len: u64,
    ) -> Result<(), i32> {
        refused(self.file.clone_range(&source.file, from, to, len))?;
        mapped::resized(self.file.ino(), fd);
        Ok(())
    }

    /// Shares pages with `source` that are the same.
    pub(crate) fn dedupe_from(
        &self,
        (source, from): (&Description, u64),
        to: u64,
        len: u64,
    ) -> Result<Deduped, i32> {
        refused(self.file.dedupe_range(&source.file, from, to, len))
    }

    /// Attributes, and the number of the device.
    pub(crate) fn metadata(&self) -> Result<(Metadata, u64), i32> {
        Ok((refused(self.file.metadata())?, self.device))
    }
}
