//! A session: a caller with a root and a directory at which relative paths begin; for path calls,
//! what a process is to the kernel.

use std::path::{Path, PathBuf};

use dure_fs::{FileKind, FileSystem, InodeRef};
use dure_sync::Arc;
use rustix::io::Errno;

use crate::actor::Actor;
use crate::credentials::Credentials;
use crate::error::{Context, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::options::OpenOptions;
use crate::permission::Access;
use crate::read_dir::ReadDir;
use crate::volume::{Shared, Volume};
use crate::walk::{self, Links, Place, Walk};

/// What the descriptors of a session keep of it.
pub(crate) struct Origin {
    pub(crate) volume: Volume,
    pub(crate) caller: Credentials,
    pub(crate) root: InodeRef,
}

impl Origin {
    pub(crate) fn shared(&self) -> &Shared {
        self.volume.shared()
    }

    pub(crate) fn actor(&self) -> Actor<'_> {
        Actor {
            shared: self.shared(),
            caller: &self.caller,
        }
    }
}

/// A caller on a volume: every call with a path is a method of it.
///
/// Relative paths begin at the session's directory, absolute ones at its root, and `..` stops
/// there. [`Session::at`] gives the `*at` calls: a session that begins at an open directory.
///
/// Sessions may be used by any number of threads. A thread with its own clone shares no reference
/// counter with the others, which is what scales.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// session.create_dir("/notes")?;
/// session.write("/notes/today", b"sown")?;
/// assert_eq!(session.read("/notes/today")?, b"sown");
/// assert!(session.metadata("/notes")?.is_dir() && !session.exists("/notes/tomorrow")?);
/// session.truncate("/notes/today", 3)?;
/// let names = session.read_dir("/notes")?.map(|entry| Ok(entry?.file_name().to_owned()));
/// assert_eq!(names.collect::<dure::Result<Vec<_>>>()?, ["today"]);
/// session.sync()?; // all of it is durable
/// # Ok::<(), dure::Error>(())
/// ```
pub struct Session {
    pub(crate) origin: Arc<Origin>,
    pub(crate) start: InodeRef,
}

impl Clone for Session {
    fn clone(&self) -> Self {
        let Origin {
            volume,
            caller,
            root,
        } = &*self.origin;
        let origin = Origin {
            volume: volume.clone(),
            caller: caller.clone(),
            root: root.clone(),
        };
        Session {
            origin: Arc::new(origin),
            start: self.start.clone(),
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("caller", &self.origin.caller)
            .field("root", &self.origin.root.ino())
            .field("start", &self.start.ino())
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(volume: Volume, caller: Credentials, root: InodeRef) -> Session {
        let start = root.clone();
        Session {
            origin: Arc::new(Origin {
                volume,
                caller,
                root,
            }),
            start,
        }
    }

    /// The caller.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.origin.caller
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.origin.volume
    }

    /// A session with the same directories and another caller.
    #[must_use]
    pub fn with_credentials(&self, caller: Credentials) -> Session {
        let Origin { volume, root, .. } = &*self.origin;
        let origin = Origin {
            volume: volume.clone(),
            caller,
            root: root.clone(),
        };
        Session {
            origin: Arc::new(origin),
            start: self.start.clone(),
        }
    }

    /// A session whose relative paths begin at `directory`, an open directory of the same volume.
    ///
    /// # Errors
    /// `ENOTDIR`.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.create_dir_all("/notes/2026")?;
    /// let notes = session.at(&session.open("/notes")?)?;
    /// assert!(notes.exists("2026")?);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn at(&self, directory: &File) -> Result<Session> {
        if directory.inode().kind() != FileKind::Directory {
            return Err(Errno::NOTDIR).during("begin at a directory");
        }
        Ok(Session {
            origin: Arc::clone(&self.origin),
            start: directory.inode().clone(),
        })
    }

    /// A session whose root and start are the directory at `path`: nothing outside it can be named.
    ///
    /// # Errors
    /// Those of the walk, `ENOTDIR`, `EACCES` if it may not be searched.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.create_dir("/jail")?;
    /// let inside = session.with_root("/jail")?;
    /// inside.write("/../file", b"")?; // `..` stops at the root
    /// assert!(session.exists("/jail/file")?);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn with_root(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        let root = self.directory(path).at("change root to", path)?;
        let Origin { volume, caller, .. } = &*self.origin;
        let start = root.clone();
        let origin = Origin {
            volume: volume.clone(),
            caller: caller.clone(),
            root,
        };
        Ok(Session {
            origin: Arc::new(origin),
            start,
        })
    }

    fn directory(&self, path: &Path) -> walk::Result<InodeRef> {
        let found = self.find(path, Links::Follow)?;
        if found.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.actor().check(&found, Access::EXECUTE)?;
        Ok(found)
    }

    #[inline]
    pub(crate) fn actor(&self) -> Actor<'_> {
        self.origin.actor()
    }

    #[inline]
    pub(crate) fn fs(&self) -> &FileSystem {
        &self.origin.shared().fs
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        self.origin.shared()
    }

    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk::new(self.fs(), &self.origin.caller, &self.origin.root)
    }

    pub(crate) fn find(&self, path: &Path, links: Links) -> walk::Result<InodeRef> {
        self.walk().find(&self.start, path, links)
    }

    pub(crate) fn place<'p>(&self, path: &'p Path) -> walk::Result<Place<'p>> {
        self.walk().place(&self.start, path)
    }

    fn stat(&self, path: &Path, links: Links) -> walk::Result<Metadata> {
        let attributes = self.walk().stat(&self.start, path, links)?;
        Ok(Metadata::new(attributes))
    }

    /// Attributes of what `path` leads to (`stat`).
    ///
    /// # Errors
    /// Those of the walk.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        match self.stat(path, Links::Follow) {
            Ok(metadata) => Ok(metadata),
            Err(cause) => Err(cause.at("stat", path)),
        }
    }

    /// Attributes of a symbolic link itself (`lstat`).
    ///
    /// # Errors
    /// Those of the walk.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.stat(path, Links::Keep).at("stat", path)
    }

    /// Whether `path` leads to something.
    ///
    /// # Errors
    /// Those of the walk but `ENOENT`, `ENOTDIR`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        let errno = |errno: Errno| errno.raw_os_error();
        match self.find(path, Links::Follow) {
            Ok(_) => Ok(true),
            Err(cause) if cause.errno() == errno(Errno::NOENT) => Ok(false),
            Err(cause) if cause.errno() == errno(Errno::NOTDIR) => Ok(false),
            Err(cause) => Err(cause.at("stat", path)),
        }
    }

    /// Checks that the caller has all of `want` on `path` (`access`).
    ///
    /// # Errors
    /// `EACCES`, those of the walk.
    pub fn access(&self, path: impl AsRef<Path>, want: Access) -> Result<()> {
        let path = path.as_ref();
        let check = || {
            let found = self.find(path, Links::Follow)?;
            self.actor().check(&found, want)
        };
        check().at("access", path)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing, made if it is not there, emptied if it is.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(self, path)
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of opening and reading.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(&path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let mut bytes = vec![0; len];
        let mut filled = 0;
        loop {
            if filled == bytes.len() {
                bytes.resize(filled + 4096, 0);
            }
            let offset = u64::try_from(filled).expect("a usize fits in 64 bits");
            match file.read_at(&mut bytes[filled..], offset)? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// The whole content of a file of text.
    ///
    /// # Errors
    /// `EILSEQ` if it is not UTF-8; those of opening and reading.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(16 << 20)?.root();
    /// session.write("note", b"sown together")?;
    /// assert_eq!(session.read_to_string("note")?, "sown together");
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|_| Errno::ILSEQ).at("read", path)
    }

    /// Makes `path` a file with this content.
    ///
    /// # Errors
    /// Those of opening and writing.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        self.create(&path)?.write_all_at(bytes, 0)
    }

    /// The entries of a directory, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, those of the walk.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let begin = || {
            let dir = self.find(path, Links::Follow)?;
            if dir.kind() != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
            self.actor().check(&dir, Access::READ)?;
            walk::Result::Ok(dir)
        };
        let dir = begin().at("read directory", path)?;
        Ok(ReadDir::new(Arc::clone(&self.origin), dir, path))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let path = path.as_ref();
        let target = self.walk().read_link(&self.start, path);
        Ok(std::ffi::OsString::from_vec(target.at("read link", path)?).into())
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` for other types, `EACCES`, `EFBIG`.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let path = path.as_ref();
        let cut = || {
            let found = self.find(path, Links::Follow)?;
            match found.kind() {
                FileKind::Directory => return Err(Errno::ISDIR.into()),
                FileKind::File => {}
                _ => return Err(Errno::INVAL.into()),
            }
            self.actor().check(&found, Access::WRITE)?;
            self.actor().truncate(&found, size)
        };
        cut().at("truncate", path)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&self) -> Result<()> {
        self.origin.volume.sync()
    }
}
