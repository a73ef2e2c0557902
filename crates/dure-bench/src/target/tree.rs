//! A directory to work in, of a mounted file system or of a volume: the calls a workload makes,
//! once as system calls and once as calls of the library.
//!
//! **Invariants.** Paths are absolute, so that no two threads share a descriptor from which their
//! paths start (the kernel would count its references on one cache line). Nothing here retries or
//! caches.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dure::{OpenOptions, ReadDir, Session};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::mem::MaybeUninit;

/// Why a volume is no target of direct I/O.
pub(crate) const NO_DIRECT: &str =
    "the library has no direct I/O: every call goes through its page cache";

/// What a file is opened for; all can read and write unless the name says less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Must exist; reading only.
    Read,
    /// Must exist.
    Write,
    /// It is there, and every write is durable when it returns (`O_SYNC`).
    Durable,
    /// Created if it does not exist.
    Create,
    /// Must not exist.
    CreateNew,
    /// Created, or emptied.
    Truncate,
    /// Made or emptied, and every write is durable when it returns.
    TruncateDurable,
    /// Created if it does not exist; every write goes to the end (`O_APPEND`).
    Append,
}

/// Whether calls go through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Io {
    Buffered,
    /// Past it (`O_DIRECT`): buffers, offsets and lengths are whole blocks.
    Direct,
}

impl How {
    fn flags(self) -> OFlags {
        let flags = match self {
            How::Read => return OFlags::RDONLY | OFlags::CLOEXEC,
            How::Write => OFlags::empty(),
            How::Durable => OFlags::SYNC,
            How::Create => OFlags::CREATE,
            How::CreateNew => OFlags::CREATE | OFlags::EXCL,
            How::Truncate => OFlags::CREATE | OFlags::TRUNC,
            How::TruncateDurable => OFlags::CREATE | OFlags::TRUNC | OFlags::SYNC,
            How::Append => OFlags::CREATE | OFlags::APPEND,
        };
        flags | OFlags::RDWR | OFlags::CLOEXEC
    }

    fn options(self) -> OpenOptions {
        let both = OpenOptions::new().read(true).write(true);
        match self {
            How::Read => OpenOptions::new().read(true),
            How::Write => both,
            How::Durable => both.sync(true),
            How::Create => both.create(true),
            How::CreateNew => both.create_new(true),
            How::Truncate => both.create(true).truncate(true),
            How::TruncateDurable => both.create(true).truncate(true).sync(true),
            How::Append => both.create(true).append(true),
        }
    }
}

/// Where the tree lies.
#[derive(Debug, Clone)]
enum Side {
    System,
    Library(Session),
}

/// A directory of either kind. A clone is the same directory.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    side: Side,
    root: PathBuf,
}

impl Tree {
    pub(crate) fn of_directory(root: PathBuf) -> Tree {
        let side = Side::System;
        Tree { side, root }
    }

    pub(crate) fn of_volume(session: Session, root: PathBuf) -> Tree {
        let side = Side::Library(session);
        Tree { side, root }
    }

    /// The tree of directory `name` in this one, on the same side.
    pub(crate) fn below(&self, name: &str) -> Tree {
        Tree {
            side: self.side.clone(),
            root: self.root.join(name),
        }
    }

    /// Where it is, if another process could go there.
    pub(crate) fn host_path(&self) -> Option<&Path> {
        matches!(self.side, Side::System).then_some(self.root.as_path())
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The whole path of what lies in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn open(&self, path: &Path, how: How) -> Result<OpenFile> {
        Ok(match &self.side {
            Side::System => {
                let mode = Mode::from_raw_mode(0o666);
                let file = rustix::fs::open(path, how.flags(), mode);
                OpenFile::System(file.with_context(|| format!("open {}", path.display()))?)
            }
            Side::Library(session) => OpenFile::Library(how.options().open(session, path)?),
        })
    }

    /// Opens a file with or without the page cache, where the file system leaves the choice.
    pub(crate) fn open_for(&self, path: &Path, how: How, io: Io) -> Result<OpenFile> {
        let (Side::System, Io::Direct) = (&self.side, io) else {
            ensure!(io == Io::Buffered, NO_DIRECT);
            return self.open(path, how);
        };
        let flags = how.flags() | OFlags::DIRECT;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666));
        let shown = || format!("open {} for direct I/O", path.display());
        Ok(OpenFile::System(file.with_context(shown)?))
    }

    pub(crate) fn create_dir(&self, path: &Path) -> Result<()> {
        match &self.side {
            Side::System => rustix::fs::mkdir(path, Mode::RWXU)
                .with_context(|| format!("mkdir {}", path.display())),
            Side::Library(session) => Ok(session.create_dir(path)?),
        }
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> Result<()> {
        match &self.side {
            Side::System => {
                std::fs::create_dir_all(path).with_context(|| format!("mkdir {}", path.display()))
            }
            Side::Library(session) => Ok(session.create_dir_all(path)?),
        }
    }

    pub(crate) fn remove_file(&self, path: &Path) -> Result<()> {
        match &self.side {
            Side::System => {
                rustix::fs::unlink(path).with_context(|| format!("unlink {}", path.display()))
            }
            Side::Library(session) => Ok(session.remove_file(path)?),
        }
    }

    /// Removes the directory with all it holds.
    pub(crate) fn remove(&self) -> Result<()> {
        match &self.side {
            Side::System => std::fs::remove_dir_all(&self.root)
                .with_context(|| format!("remove {}", self.root.display())),
            Side::Library(session) => Ok(session.remove_dir_all(&self.root)?),
        }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match &self.side {
            Side::System => rustix::fs::rename(from, to)
                .with_context(|| format!("rename {} to {}", from.display(), to.display())),
            Side::Library(session) => Ok(session.rename(from, to)?),
        }
    }

    pub(crate) fn link(&self, from: &Path, to: &Path) -> Result<()> {
        match &self.side {
            Side::System => rustix::fs::link(from, to)
                .with_context(|| format!("link {} to {}", from.display(), to.display())),
            Side::Library(session) => Ok(session.hard_link(from, to)?),
        }
    }

    /// The size of the file at `path`.
    #[inline]
    pub(crate) fn stat(&self, path: &Path) -> Result<u64> {
        match &self.side {
            Side::System => {
                let found = rustix::fs::statat(CWD, path, AtFlags::empty());
                let found = found.with_context(|| format!("stat {}", path.display()))?;
                Ok(u64::try_from(found.st_size).context("a size")?)
            }
            Side::Library(session) => Ok(session.metadata(path)?.len()),
        }
    }

    pub(crate) fn exists(&self, path: &Path) -> Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if errno(&error) == Some(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn list(&self, path: &Path) -> Result<Listing> {
        Ok(match &self.side {
            Side::System => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = rustix::fs::open(path, flags, Mode::empty());
                let directory = directory.with_context(|| format!("open {}", path.display()))?;
                Listing::System(directory, vec![MaybeUninit::uninit(); LISTING_BYTES])
            }
            Side::Library(session) => Listing::Library(session.read_dir(path)?),
        })
    }

    /// Makes the whole file system durable.
    pub(crate) fn sync(&self) -> Result<()> {
        match &self.side {
            Side::System => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = rustix::fs::open(&self.root, flags, Mode::empty())?;
                rustix::fs::syncfs(directory).context("syncfs")
            }
            Side::Library(session) => Ok(session.sync()?),
        }
    }

    /// Runs of blocks these files have on the device; `None` if the file system, or the lack of
    /// filefrag(8), does not let us know.
    pub(crate) fn extents(&self, files: &[PathBuf]) -> Result<Option<u64>> {
        let Side::Library(session) = &self.side else {
            return Ok(extents_of_files(files));
        };
        let mut runs = 0;
        for path in files {
            runs += How::Read.options().open(session, path)?.extents()?.runs;
        }
        Ok(Some(runs))
    }

    /// Bytes an ordinary user may still write.
    pub(crate) fn room_bytes(&self) -> Result<u64> {
        match &self.side {
            Side::System => {
                let found = rustix::fs::statvfs(&self.root).context("statvfs")?;
                Ok(found.f_bavail.saturating_mul(found.f_frsize))
            }
            Side::Library(session) => Ok(session.volume().statistics().blocks_available * 4096),
        }
    }
}

/// What filefrag says of a file: "PATH: 3 extents found".
fn extents_of_files(files: &[PathBuf]) -> Option<u64> {
    let mut runs = 0;
    for some in files.chunks(256) {
        let output = Command::new("filefrag").args(some).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let counts = said.lines().filter_map(|line| {
            let (_, found) = line.rsplit_once(": ")?;
            let (count, _) = found.split_once(" extent")?;
            count.parse::<u64>().ok()
        });
        let counts: Vec<u64> = counts.collect();
        if !output.status.success() || counts.len() != some.len() {
            return None;
        }
        runs += counts.iter().sum::<u64>();
    }
    Some(runs)
}

/// What the C library reads of a directory at once.
const LISTING_BYTES: usize = 32 << 10;
/// Entries of a library's listing taken at once.
const LISTING_ENTRIES: usize = 64;

/// A directory being read.
pub(crate) enum Listing {
    System(OwnedFd, Vec<MaybeUninit<u8>>),
    Library(ReadDir),
}

impl Listing {
    /// Some more entries, without `.` and `..`: calls `each` with every name and returns how many;
    /// `None` at the end.
    pub(crate) fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<Option<u64>> {
        let mut count = 0;
        match self {
            Listing::System(directory, buffer) => {
                let mut entries = RawDir::new(directory, buffer);
                loop {
                    let Some(entry) = entries.next() else {
                        return Ok(None);
                    };
                    let entry = entry.context("read directory")?;
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        each(name);
                        count += 1;
                    }
                    if entries.is_buffer_empty() {
                        return Ok(Some(count));
                    }
                }
            }
            Listing::Library(entries) => {
                for entry in entries.by_ref().take(LISTING_ENTRIES) {
                    each(entry?.file_name().as_encoded_bytes());
                    count += 1;
                }
                Ok((count > 0).then_some(count))
            }
        }
    }

    /// How many of the remaining entries have a name that `wanted` accepts.
    pub(crate) fn count(mut self, wanted: impl Fn(&[u8]) -> bool) -> Result<u64> {
        let mut count = 0;
        while self
            .read(|name| count += u64::from(wanted(name)))?
            .is_some()
        {}
        Ok(count)
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) enum OpenFile {
    System(OwnedFd),
    Library(dure::File),
}

impl OpenFile {
    /// Reads all of `bytes` at `offset`.
    #[inline]
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        match self {
            OpenFile::System(file) => whole(rustix::io::pread(file, &mut *bytes, offset), bytes),
            OpenFile::Library(file) => Ok(file.read_exact_at(bytes, offset)?),
        }
    }

    /// Reads at `offset` as much as there is.
    pub(crate) fn read_some_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        Ok(match self {
            OpenFile::System(file) => rustix::io::pread(file, bytes, offset).context("read")?,
            OpenFile::Library(file) => file.read_at(bytes, offset)?,
        })
    }

    /// Writes all of `bytes` at `offset`.
    #[inline]
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            OpenFile::System(file) => whole(rustix::io::pwrite(file, bytes, offset), bytes),
            OpenFile::Library(file) => Ok(file.write_all_at(bytes, offset)?),
        }
    }

    /// Writes at the position and moves it (`write`).
    #[inline]
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        match self {
            OpenFile::System(file) => whole(rustix::io::write(file, bytes), bytes),
            OpenFile::Library(file) => {
                let count = file.write_next(bytes)?;
                whole(Ok(count), bytes)
            }
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> Result<()> {
        match self {
            OpenFile::System(file) => rustix::fs::ftruncate(file, bytes).context("ftruncate"),
            OpenFile::Library(file) => Ok(file.set_len(bytes)?),
        }
    }

    /// Moves the position.
    pub(crate) fn seek(&self, offset: u64) -> Result<()> {
        match self {
            OpenFile::System(file) => {
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(offset)).context("lseek")?;
            }
            OpenFile::Library(file) => {
                file.seek_to(dure::Seek::Set(offset))?;
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> Result<u64> {
        match self {
            OpenFile::System(file) => {
                let size = rustix::fs::fstat(file).context("fstat")?.st_size;
                Ok(u64::try_from(size).context("a size")?)
            }
            OpenFile::Library(file) => Ok(file.metadata()?.len()),
        }
    }

    /// Drops what the kernel has cached of it; what is on a volume is bounded by its own cache.
    pub(crate) fn drop_cached(&self) -> Result<()> {
        match self {
            OpenFile::System(file) => {
                rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)
                    .context("posix_fadvise")
            }
            OpenFile::Library(_) => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            OpenFile::System(file) => rustix::fs::fsync(file).context("fsync"),
            OpenFile::Library(file) => Ok(file.sync_all()?),
        }
    }
}

/// A call that must have moved all bytes: a short one would count as an operation of full size.
#[inline]
fn whole(moved: rustix::io::Result<usize>, bytes: &[u8]) -> Result<()> {
    let moved = moved.context("read or write")?;
    if moved == bytes.len() {
        return Ok(());
    }
    // On a full file system, a retry after a short write would return this error.
    Err(Errno::NOSPC).with_context(|| format!("{moved} of {} bytes", bytes.len()))
}

/// The errno below an error.
pub(crate) fn errno(error: &anyhow::Error) -> Option<Errno> {
    let cause = error.chain().find_map(|cause| {
        let own = cause.downcast_ref::<dure::Error>().map(dure::Error::errno);
        let raw = || {
            cause
                .downcast_ref::<Errno>()
                .map(|errno| errno.raw_os_error())
        };
        let host = || cause.downcast_ref::<std::io::Error>()?.raw_os_error();
        own.or_else(raw).or_else(host)
    });
    cause.map(Errno::from_raw_os_error)
}

/// Whether the error is a lack of space.
pub(crate) fn is_full(error: &anyhow::Error) -> bool {
    matches!(errno(error), Some(Errno::NOSPC | Errno::DQUOT))
}
