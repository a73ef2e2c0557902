//! An open file: an inode, its open mode, and a position. There is no table of descriptors: a
//! [`File`] is the descriptor.

mod attributes;
mod clone;
mod stream;

use std::fmt;
use std::io;
use std::path::Path;

use dure_fs::{
    Advice, AllocateMode, Begun, FileKind, FileSystem, InodeRef, SeekTarget, SyncScope, UnderWay,
};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, Mutex};
use rustix::io::Errno;

use crate::actor::Actor;
use crate::error::{Cause, Context, Result};
use crate::options::{Durability, OpenOptions};
use crate::session::{Origin, Session};
use crate::volume::Volume;
use crate::walk;

/// Rank of a descriptor's position: below every lock of the file system, because it is held over a
/// read or write.
const POSITION: u8 = 30;

/// What clones of a descriptor share.
struct Description {
    origin: Arc<Origin>,
    inode: InodeRef,
    path: Box<Path>,
    reads: bool,
    writes: bool,
    append: bool,
    durability: Durability,
    /// Value of [`crate::volume::Shared::set_ids`] when the file had no set-id bits. Relaxed: a
    /// hint that saves reading the mode; an older value only causes one more read of it.
    set_ids_seen: AtomicU64,
    /// Changed with `moving` held. Relaxed: it publishes nothing.
    position: AtomicU64,
    moving: Mutex<POSITION, ()>,
}

/// Where [`File::seek_to`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// From the start.
    Set(u64),
    /// From the position.
    Current(i64),
    /// From the end.
    End(i64),
    /// To the next data at or after the offset.
    Data(u64),
    /// To the next hole at or after the offset; the end of the file is one.
    Hole(u64),
}

/// An open file or directory.
///
/// [`File::read_at`] and [`File::write_at`] may be called by any number of threads at once and take
/// no lock of the descriptor. `read`, `write` and `seek` share one position between clones.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// use std::io::Write;
/// let mut file = session.create("/notes")?;
/// writeln!(file, "sown together").unwrap();
/// file.write_all_at(b"reap", 5)?;
/// file.sync_all()?; // durable, with its name, when it returns
/// assert_eq!(session.read_to_string("/notes")?, "sown reapther\n");
/// # Ok::<(), dure::Error>(())
/// ```
pub struct File(Arc<Description>);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.0.path)
            .field("ino", &self.0.inode.ino())
            .field("reads", &self.0.reads)
            .field("writes", &self.0.writes)
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(
        session: &Session,
        inode: InodeRef,
        path: &Path,
        options: &OpenOptions,
    ) -> File {
        File(Arc::new(Description {
            origin: Arc::clone(&session.origin),
            inode,
            path: path.into(),
            reads: options.read,
            writes: options.writes(),
            append: options.append,
            durability: options.durability,
            set_ids_seen: AtomicU64::new(0),
            position: AtomicU64::new(0),
            moving: Mutex::new(()),
        }))
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.0.inode
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.0.origin.volume
    }

    /// What it is open for.
    pub(crate) fn options_of_std(&self) -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        let Description {
            reads,
            writes,
            append,
            ..
        } = *self.0;
        options.read(reads).write(writes).append(append);
        options
    }

    /// Another descriptor of the same open file: position and modes are shared (`dup`). Takes no
    /// lock.
    #[must_use]
    pub fn try_clone(&self) -> File {
        File(Arc::clone(&self.0))
    }

    /// Inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.inode.ino().0
    }

    fn actor(&self) -> Actor<'_> {
        self.0.origin.actor()
    }

    /// Adds operation and path to a failure.
    fn told<T>(&self, operation: &'static str, result: walk::Result<T>) -> Result<T> {
        result.at(operation, &self.0.path)
    }

    /// Reads from `offset` (`pread`). Fewer bytes than asked for mean the end of the file.
    ///
    /// # Errors
    /// `EBADF` if not open for reading, `EISDIR`, `EIO`.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/file", b"sown together")?;
    /// let (file, mut bytes) = (session.open("/file")?, [0; 8]);
    /// assert_eq!(file.read_at(&mut bytes, 5)?, 8);
    /// assert_eq!(&bytes, b"together");
    /// # Ok::<(), dure::Error>(())
    /// ```
    #[inline]
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        let description = &*self.0;
        if !description.reads {
            return self.told("read", Err(Errno::BADF.into()));
        }
        let shared = description.origin.shared();
        match shared.read(&description.inode, offset, bytes) {
            Ok(count) => Ok(count),
            Err(error) => self.told("read", Err(error.into())),
        }
    }

    /// Begins to read from `offset` on.
    pub(crate) fn begin_read_at(&self, bytes: &mut [u8], offset: u64) -> Result<Begun> {
        if !self.0.reads {
            return self.told("read", Err(Errno::BADF.into()));
        }
        let shared = self.0.origin.shared();
        let begun = shared.begin_read(&self.0.inode, offset, bytes);
        begun.or_else(|error| self.told("read", Err(error.into())))
    }

    /// Ends what was begun and is under way.
    pub(crate) fn end_read_at(
        &self,
        begun: (usize, UnderWay),
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let read = self.fs().end_read(&self.0.inode, begun, offset, bytes);
        read.or_else(|error| self.told("read", Err(error.into())))
    }

    pub(crate) fn fs(&self) -> &FileSystem {
        &self.0.origin.shared().fs
    }

    /// Writes at `offset` (`pwrite`); at the end if the file is open for appending.
    ///
    /// # Errors
    /// `EBADF` if not open for writing, `ENOSPC`, `EFBIG`, `EIO`.
    #[inline]
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        match self.write_where(bytes, offset) {
            Ok((_, count)) => Ok(count),
            Err(cause) => self.told("write", Err(cause)),
        }
    }

    /// Writes; returns where and how many bytes.
    #[inline]
    fn write_where(&self, bytes: &[u8], offset: u64) -> walk::Result<(u64, usize)> {
        let description = &*self.0;
        if !description.writes {
            return Err(Errno::BADF.into());
        }
        let shared = description.origin.shared();
        if !bytes.is_empty() && !description.origin.caller.is_root() {
            self.content_changes()?;
        }
        let inode = &description.inode;
        let written = if description.append {
            shared.append(inode, bytes)?
        } else {
            (offset, shared.write(inode, offset, bytes)?)
        };
        match description.durability {
            Durability::Later => {}
            Durability::Data => shared.fs.fsync(inode, SyncScope::Data)?,
            Durability::All => shared.fs.fsync(inode, SyncScope::All)?,
        }
        Ok(written)
    }

    /// Clears set-id bits before a caller that is not root changes the content.
    fn content_changes(&self) -> walk::Result<()> {
        let now = self.0.origin.shared().set_ids();
        if self.0.set_ids_seen.load(Ordering::Relaxed) != now {
            self.actor().drop_set_id(&self.0.inode)?;
            self.0.set_ids_seen.store(now, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills all of `bytes` from `offset`.
    ///
    /// # Errors
    /// `EIO` with "failed to fill" if the file ends before, and those of [`File::read_at`].
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let at = offset.saturating_add(u64::try_from(filled).expect("a usize fits in 64 bits"));
            match self.read_at(&mut bytes[filled..], at)? {
                0 => {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return self.told("read", Err(Cause::Host(end)));
                }
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of [`File::write_at`].
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            let at =
                offset.saturating_add(u64::try_from(written).expect("a usize fits in 64 bits"));
            written += self.write_at(&bytes[written..], at)?;
        }
        Ok(())
    }

    /// Moves the position.
    ///
    /// # Errors
    /// `EINVAL` before the start or of a directory, `ENXIO` where there is no data or hole.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// use dure::Seek;
    /// let file = session.create("/file")?;
    /// file.write_all_at(b"sown", 8192)?; // behind a hole
    /// assert_eq!(file.seek_to(Seek::Data(0))?, 8192);
    /// assert_eq!(file.seek_to(Seek::End(-4))?, 8192);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn seek_to(&self, seek: Seek) -> Result<u64> {
        let position = &self.0.position;
        let relative = matches!(seek, Seek::Current(_));
        let moving = relative.then(|| self.0.moving.lock());
        let found = self.told("seek", self.target(seek, position.load(Ordering::Relaxed)))?;
        // Where it is already it stays, and no line is written: a read under way comes later.
        if position.load(Ordering::Relaxed) != found {
            let _moving = moving.unwrap_or_else(|| self.0.moving.lock());
            position.store(found, Ordering::Relaxed);
        }
        Ok(found)
    }

    fn target(&self, seek: Seek, position: u64) -> walk::Result<u64> {
        let actor = self.actor();
        let (fs, inode) = (actor.fs(), &self.0.inode);
        if inode.kind() != FileKind::File {
            return Err(Errno::INVAL.into());
        }
        let (base, delta) = match seek {
            Seek::Set(offset) => (offset, 0),
            Seek::Current(delta) => (position, delta),
            Seek::End(delta) => (fs.size(inode)?, delta),
            Seek::Data(offset) => {
                return Ok(fs
                    .seek(inode, offset, SeekTarget::Data)?
                    .ok_or(Errno::NXIO)?);
            }
            Seek::Hole(offset) => {
                return Ok(fs
                    .seek(inode, offset, SeekTarget::Hole)?
                    .ok_or(Errno::NXIO)?);
            }
        };
        let target = base.checked_add_signed(delta);
        Ok(target
            .filter(|target| i64::try_from(*target).is_ok())
            .ok_or(Errno::INVAL)?)
    }

    /// Reads at the position and moves it.
    ///
    /// # Errors
    /// Those of [`File::read_at`].
    pub fn read_next(&self, bytes: &mut [u8]) -> Result<usize> {
        let _moving = self.0.moving.lock();
        let position = self.0.position.load(Ordering::Relaxed);
        let count = self.read_at(bytes, position)?;
        self.move_to(position, count);
        Ok(count)
    }

    /// Writes at the position (or the end, when appending) and moves it behind what was written.
    ///
    /// # Errors
    /// Those of [`File::write_at`].
    pub fn write_next(&self, bytes: &[u8]) -> Result<usize> {
        let _moving = self.0.moving.lock();
        let position = self.0.position.load(Ordering::Relaxed);
        let (offset, count) = self.told("write", self.write_where(bytes, position))?;
        self.move_to(offset, count);
        Ok(count)
    }

    /// The position is behind `count` bytes from `offset` on. The caller holds `moving`.
    fn move_to(&self, offset: u64, count: usize) {
        let count = u64::try_from(count).expect("a usize fits in 64 bits");
        self.0.position.store(offset + count, Ordering::Relaxed);
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// `EINVAL` if not open for writing, `EFBIG`, `ENOSPC`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.0.writes {
            return self.told("truncate", Err(Errno::INVAL.into()));
        }
        self.told("truncate", self.actor().truncate(&self.0.inode, size))
    }

    /// Allocates or frees a range (`fallocate`).
    ///
    /// # Errors
    /// `EBADF` if not open for writing, `EINVAL` for an empty range, `EFBIG`, `ENOSPC`.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// use dure::AllocateMode;
    /// let file = session.create("/file")?;
    /// file.allocate(AllocateMode::Extend, 0, 16384)?;
    /// assert_eq!(file.metadata()?.len(), 16384);
    /// file.allocate(AllocateMode::Punch, 4096, 4096)?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let allocate = || {
            if !self.0.writes {
                return Err(Errno::BADF.into());
            }
            if len == 0 {
                return Err(Errno::INVAL.into());
            }
            if !self.0.origin.caller.is_root() {
                self.content_changes()?;
            }
            let shared = self.0.origin.shared();
            Ok(shared.allocate(&self.0.inode, mode, (offset, len))?)
        };
        self.told("allocate in", allocate())
    }

    /// Says what will be read of the file, `len` bytes from `offset` on, 0: all that follows
    /// (`posix_fadvise`). Readers in order and at random need no advice.
    ///
    /// # Errors
    /// None but a closed volume's: what is advised is a hint.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/file", &[7; 100_000])?;
    /// let file = session.open("/file")?;
    /// file.advise(dure::Advice::WillNeed, 0, 65536)?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        let end = match len {
            0 => u64::MAX,
            _ => offset.saturating_add(len),
        };
        let actor = self.actor();
        let advised = actor.fs().advise(&self.0.inode, offset..end, advice);
        self.told("advise", advised.map_err(Into::into))
    }

    /// Makes content and attributes durable (`fsync`).
    ///
    /// # Errors
    /// Those of the device; the data stays dirty, and the error is given again.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncScope::All)
    }

    /// Makes content durable, and what is needed to read it (`fdatasync`).
    ///
    /// # Errors
    /// Those of the device; the data stays dirty, and the error is given again.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncScope::Data)
    }

    fn sync(&self, scope: SyncScope) -> Result<()> {
        let shared = self.0.origin.shared();
        let synced = shared.fsync(&self.0.inode, scope);
        self.told("sync", synced.map_err(Cause::from))
    }
}
