//! Clones and copies of ranges.

use dure_fs::{Deduped, FileKind};
use rustix::io::Errno;

use super::File;
use crate::error::Result;
use crate::walk;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

impl File {
    /// Makes `len` bytes from `to` on what `source` has from `from` on, by sharing its blocks
    /// (`FICLONERANGE`): nothing is copied, and what is written to one of the two later leaves the other
    /// as it is. `len` 0: up to the end of `source`. Holes become holes. A sync makes the clone durable.
    ///
    /// # Errors
    /// `EBADF` unless `source` is open for reading and this file for writing, `EXDEV` for files of two
    /// volumes; `EINVAL` for what is no regular file, for one file twice, for `from` and `to` that are no
    /// multiples of 4096, and for an end within a page, unless it is that of `source` and not in
    /// front of that of this file; `EOPNOTSUPP` without a page cache. `ENOSPC`: too few free blocks to
    /// list the slots in; the start of the range may be cloned.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/seed", &[7; 100_000])?;
    /// let (seed, field) = (session.open("/seed")?, session.create("/field")?);
    /// field.clone_range(&seed, 0, 0, 0)?;
    /// assert_eq!(session.read("/field")?, [7; 100_000]);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn clone_range(&self, source: &File, from: u64, to: u64, len: u64) -> Result<()> {
        let clone = || {
            let size = self.check_pair(source)?;
            let len = match len {
                0 => size.saturating_sub(from),
                len => len,
            };
            let target = self.check_pages(source, (from, to, len), size)?;
            let end = to.saturating_add(len);
            if !len.is_multiple_of(4096) && end < target {
                return Err(Errno::INVAL.into());
            }
            match self.share(source, from, (to, len))? {
                done if done == len => Ok(()),
                0 if !self.0.origin.shared().fs.can_clone() => Err(Errno::OPNOTSUPP.into()),
                _ => Err(Errno::NOSPC.into()),
            }
        };
        self.told("clone to", clone())
    }

    /// Lets `len` bytes of this file from `to` on share the blocks of `source` from `from` on, as far as
    /// they are the same (`FIDEDUPERANGE`): the bytes are compared, from the start of the range on, and
    /// nobody sees a difference, in times neither. Pages of zeroes that are a hole in one of the files stay as
    /// they are, and count as the same.
    ///
    /// # Errors
    /// Those of [`File::clone_range`], but for `ENOSPC`, and `EINVAL` for a range that goes beyond the end
    /// of this file, and for an end within a page, unless both files end there.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/one", &[7; 100_000])?;
    /// session.write("/two", &[7; 100_000])?;
    /// let (one, two) = (session.open("/one")?, dure::OpenOptions::new().write(true).open(&session, "/two")?);
    /// let found = two.dedupe_range(&one, 0, 0, 100_000)?;
    /// assert_eq!((found.same, found.differs), (100_000, false));
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn dedupe_range(&self, source: &File, from: u64, to: u64, len: u64) -> Result<Deduped> {
        let dedupe = || {
            let size = self.check_pair(source)?;
            let target = self.check_pages(source, (from, to, len), size)?;
            let end = to.checked_add(len).filter(|end| *end <= target);
            let end = end.ok_or(Errno::INVAL)?;
            if !len.is_multiple_of(4096) && end != target {
                return Err(Errno::INVAL.into());
            }
            let shared = self.0.origin.shared();
            if !shared.fs.can_clone() {
                return Err(Errno::OPNOTSUPP.into());
            }
            if len == 0 {
                return Ok(Deduped::default());
            }
            Ok(shared.dedupe_range((&source.0.inode, from), (&self.0.inode, to), len)?)
        };
        self.told("share the pages of", dedupe())
    }

    /// Copies up to `len` bytes of `source` from `from` on to this file, from `to` on
    /// (`copy_file_range`): what can be is cloned, the rest copied. Returns how many; fewer at the end of
    /// `source`, and when an error comes behind the first.
    ///
    /// # Errors
    /// `EBADF`, `EXDEV` and `EINVAL` as [`File::clone_range`], `EINVAL` for ranges of one file that overlap; those of
    /// reading and writing.
    pub fn copy_range(&self, source: &File, from: u64, to: u64, len: u64) -> Result<u64> {
        let cloned = || {
            let size = self.check_pair(source)?;
            let len = len.min(size.saturating_sub(from));
            if self.ino() == source.ino() && from.abs_diff(to) < len {
                return Err(Errno::INVAL.into());
            }
            Ok((self.share(source, from, (to, len))?, len))
        };
        let (mut done, len) = self.told("copy to", cloned())?;
        let mut buffer = Vec::new();
        while done < len {
            let left = usize::try_from(len - done).unwrap_or(CHUNK);
            buffer.resize(left.min(CHUNK), 0);
            let read = source.read_at(&mut buffer, from + done);
            let written = read.and_then(|read| self.write_at(&buffer[..read], to + done));
            match written {
                Ok(0) => break,
                Ok(count) => done += u64::try_from(count).expect("a usize fits in 64 bits"),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Lets this file share as much of the first `size` bytes of `source` as it can; how many bytes.
    pub(crate) fn copy_from_start(&self, source: &File, size: u64) -> Result<u64> {
        self.told("copy to", self.share(source, 0, (0, size)))
    }

    /// Whether `source` can be copied to this file; its size.
    fn check_pair(&self, source: &File) -> walk::Result<u64> {
        if !self.0.writes || !source.0.reads || self.0.append {
            return Err(Errno::BADF.into());
        }
        let (own, other) = (self.0.origin.shared(), source.0.origin.shared());
        if !std::ptr::eq(own, other) {
            return Err(Errno::XDEV.into());
        }
        let files = [&self.0.inode, &source.0.inode];
        if files.iter().any(|inode| inode.kind() != FileKind::File) {
            return Err(Errno::INVAL.into());
        }
        Ok(own.fs.size(&source.0.inode)?)
    }

    /// Whether `len` bytes of `source`, which has `size`, are pages that can be shared: (from, to, len); the
    /// size of this file.
    fn check_pages(
        &self,
        source: &File,
        (from, to, len): (u64, u64, u64),
        size: u64,
    ) -> walk::Result<u64> {
        let whole = |at: u64| at.is_multiple_of(4096);
        let end = from.checked_add(len).filter(|end| *end <= size);
        let end = end.ok_or(Errno::INVAL)?;
        let is_one = self.ino() == source.ino();
        if is_one || !whole(from) || !whole(to) || !(whole(end) || end == size) {
            return Err(Errno::INVAL.into());
        }
        Ok(self.0.origin.shared().fs.size(&self.0.inode)?)
    }

    fn share(&self, source: &File, from: u64, (to, len): (u64, u64)) -> walk::Result<u64> {
        if len == 0 {
            return Ok(0);
        }
        if !self.0.origin.caller.is_root() {
            self.content_changes()?;
        }
        let shared = self.0.origin.shared();
        Ok(shared.clone_range((&source.0.inode, from), (&self.0.inode, to), len)?)
    }
}
