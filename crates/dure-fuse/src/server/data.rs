//! File content, durability, and the volume's room.

use std::ops::Range;

use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{AllocateMode, InodeRef, ReadMode, Stamp, SyncScope};

use super::refused::Refused;
use super::{Answer, Server, errno};
use crate::nodes;

/// Bytes copied at a time by COPY_FILE_RANGE.
const COPY_BYTES: usize = 1 << 20;

/// Converts the bytes of a request, which has at most a megabyte.
fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize has 64 bits")
}

/// What statfs shows, in 4 KiB blocks.
#[derive(Debug, Clone, Copy)]
pub struct Statistics {
    /// Blocks of the volume that can hold data or nodes.
    pub blocks: u64,
    /// Free blocks among `blocks`.
    pub free: u64,
    /// Free blocks that a new file can have, without those for its inode and map.
    pub available: u64,
    /// Inodes there can be.
    pub files: u64,
    /// Free inodes among `files`.
    pub files_free: u64,
}

impl Server {
    /// READ. Clean pages go straight from the device to the kernel, which caches them: they are not
    /// cached a second time here, but for those that are read ahead of it. The kernel takes a short
    /// read for the end of the file, and shows zeroes behind it: a page that cannot be read fails
    /// all of the request, and the kernel then asks page by page.
    ///
    /// # Errors
    /// An errno.
    pub fn read(&self, node: u64, offset: u64, out: &mut [u8]) -> Answer<usize> {
        let inode = self.inode(node)?;
        let read = |offset, out: &mut [u8]| {
            let read = self.volume.read(&inode, offset, out, ReadMode::Bypass);
            read.map_err(errno)
        };
        let mut done = read(offset, out)?;
        // What stops a read in front of a page stops the next one at once; most files end elsewhere.
        while done > 0
            && done < out.len()
            && (offset + to_u64(done)).is_multiple_of(BLOCK_BYTES_U64)
        {
            match read(offset + to_u64(done), &mut out[done..])? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }

    /// WRITE of a caller that is told how much was taken: all, unless a page cannot be read. When
    /// there is no room for all of it nothing is written, because not every program checks the
    /// result of write(2).
    ///
    /// # Errors
    /// ENOSPC and the like; never a device error.
    pub fn write(&self, node: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        self.volume
            .write_whole(&self.inode(node)?, offset, data, Stamp::Set)
            .map_err(errno)
    }

    /// WRITE at the end of the file, wherever that is.
    ///
    /// # Errors
    /// ENOSPC and the like; never a device error.
    pub fn append(&self, node: u64, data: &[u8]) -> Answer<usize> {
        let appended = self.volume.append(&self.inode(node)?, data);
        appended.map(|(_, taken)| taken).map_err(errno)
    }

    /// WRITE of pages of the kernel's cache: all of them, or an error, which makes the next
    /// fsync(2) fail. The kernel ignores a short count, so a part that was not taken would be lost
    /// silently.
    ///
    /// # Errors
    /// ENOSPC and the like; never a device error.
    pub fn write_pages(&self, node: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let inode = self.inode(node)?;
        // A kernel with a write-back cache sets the times itself, by SETATTR.
        let stamp = match self.kernel_collects {
            true => Stamp::Keep,
            false => Stamp::Set,
        };
        let written = self.write_all(&inode, offset, data, stamp);
        if self.kernel_collects && written == Err(libc::ENOSPC) {
            Refused::note(&self.refused, node);
        }
        if let Some(cache) = &self.kernel_cache {
            cache.came(to_u64(data.len()), &self.volume);
        }
        written
    }

    fn write_all(&self, inode: &InodeRef, at: u64, data: &[u8], stamp: Stamp) -> Answer<()> {
        let (mut offset, mut left) = (at, data);
        while !left.is_empty() {
            let taken = self.volume.write_promised(inode, offset, left, stamp);
            // After a short write, the next round returns the error that stopped it.
            let taken = taken.map_err(errno)?;
            offset += to_u64(taken);
            left = &left[taken..];
        }
        Ok(())
    }

    /// FSYNC and FSYNCDIR.
    ///
    /// # Errors
    /// An errno; repeated by each call until the data could be written.
    pub fn fsync(&self, node: u64, scope: SyncScope) -> Answer<()> {
        if nodes::is_hidden(node) {
            return Ok(());
        }
        self.volume.fsync(&self.inode(node)?, scope).map_err(errno)
    }

    /// SYNCFS: everything that was done before is durable.
    ///
    /// # Errors
    /// An errno.
    pub fn sync(&self) -> Answer<()> {
        self.volume.sync().map_err(errno)
    }

    /// FALLOCATE with the mode bits of fallocate(2).
    ///
    /// # Errors
    /// An errno.
    pub fn allocate(&self, node: u64, offset: u64, len: u64, mode: i32) -> Answer<()> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let mode = match mode {
            0 => AllocateMode::Extend,
            libc::FALLOC_FL_KEEP_SIZE => AllocateMode::KeepSize,
            PUNCH => AllocateMode::Punch,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::Zero,
            ZERO_KEEP => AllocateMode::ZeroKeepSize,
            _ => return Err(libc::EOPNOTSUPP),
        };
        self.volume
            .allocate(&self.inode(node)?, mode, offset, len)
            .map_err(errno)
    }

    /// COPY_FILE_RANGE: how many bytes were copied, fewer at the end of the source. Blocks are shared
    /// where they can be.
    ///
    /// # Errors
    /// An errno, if nothing was copied.
    pub fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Answer<u64> {
        let (source, target) = (self.inode(from.0)?, self.inode(to.0)?);
        let cloned = self
            .volume
            .clone_range((&source, from.1), (&target, to.1), len);
        let mut done = cloned.map_err(errno)?;
        let mut buffer = Vec::new();
        while done < len {
            let want = usize::try_from(len - done)
                .unwrap_or(COPY_BYTES)
                .min(COPY_BYTES);
            buffer.resize(want, 0);
            let got = self
                .volume
                .read(&source, from.1 + done, &mut buffer, ReadMode::Bypass);
            let put = got.and_then(|got| {
                self.volume
                    .write(&target, to.1 + done, &buffer[..got], Stamp::Set)
            });
            match put {
                Ok(0) => break,
                Ok(put) => done += u64::try_from(put).expect("a request has at most a megabyte"),
                Err(error) if done == 0 => return Err(errno(error)),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// FITRIM by user `uid`: tells the device which blocks of `bytes` are free, in runs of at least
    /// `least` bytes; how many bytes that were.
    ///
    /// # Errors
    /// EPERM for users other than root; EOPNOTSUPP where no device below discards; EINVAL, as of other
    /// file systems, if the range begins behind the end of the volume or is shorter than a block; an
    /// errno.
    pub fn trim(&self, uid: u32, bytes: Range<u64>, least: u64) -> Answer<u64> {
        if uid != 0 {
            return Err(libc::EPERM);
        }
        if !self.volume.can_trim() {
            return Err(libc::EOPNOTSUPP);
        }
        let volume_bytes = self.volume.layout().total_blocks * BLOCK_BYTES_U64;
        if bytes.start >= volume_bytes || bytes.end - bytes.start < BLOCK_BYTES_U64 {
            return Err(libc::EINVAL);
        }
        self.volume.trim(bytes, least).map_err(errno)
    }

    /// STATFS: of the volume, or of what the project of the inode may have of it.
    #[must_use]
    pub fn statistics(&self, node: u64) -> Statistics {
        if let Some(cache) = &self.kernel_cache {
            cache.look(&self.volume);
        }
        let quotas = self.volume.has_quotas();
        let statistics = match quotas.then(|| self.inode(node)) {
            Some(Ok(inode)) => self.volume.statistics_of(&inode),
            _ => self.volume.statistics(),
        };
        Statistics {
            blocks: statistics.blocks,
            free: statistics.blocks_free,
            available: statistics.blocks_available,
            files: statistics.inodes,
            files_free: statistics.inodes_free,
        }
    }
}
