//! Reading a directory, in batches, so that no lock is held between two entries.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dure_fs::{EntryBatch, FileKind, InodeRef};
use dure_sync::Arc;

use crate::error::{Context, Result};
use crate::metadata::Metadata;
use crate::session::Origin;
use crate::walk::{Links, Walk};

/// The directory that entries are of.
struct Listed {
    origin: Arc<Origin>,
    dir: InodeRef,
    /// As the caller named it.
    path: PathBuf,
}

/// One entry of a directory. It keeps the directory open.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// session.create_dir("/notes")?;
/// session.write("/notes/today", b"sown")?;
/// for entry in session.read_dir("/notes")? {
///     let entry = entry?;
///     assert_eq!(entry.path(), std::path::Path::new("/notes/today"));
///     assert_eq!(entry.metadata()?.len(), 4);
/// }
/// # Ok::<(), dure::Error>(())
/// ```
#[derive(Clone)]
pub struct DirEntry {
    listed: Arc<Listed>,
    name: Name,
    ino: u64,
    kind: FileKind,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path())
            .field("ino", &self.ino)
            .field("kind", &self.kind)
            .finish()
    }
}

/// Bytes of a name that need no allocation: most names are shorter.
const SHORT: usize = 38;

/// A name. Listing takes little more time than copying the names, so it does not allocate for each.
#[derive(Clone)]
enum Name {
    /// Zeros behind the name.
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl Name {
    #[inline]
    fn new(name: &[u8]) -> Name {
        match u8::try_from(name.len()) {
            Ok(len) if name.len() <= SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..name.len()].copy_from_slice(name);
                Name::Short(len, bytes)
            }
            _ => Name::Long(name.into()),
        }
    }

    #[inline]
    fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(match self {
            Name::Short(len, bytes) => &bytes[..usize::from(*len)],
            Name::Long(bytes) => bytes,
        })
    }
}

impl DirEntry {
    /// Name.
    #[inline]
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        self.name.as_os_str()
    }

    /// The path that the directory was listed by, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.listed.path.join(self.file_name())
    }

    /// Attributes; of a symbolic link itself. They are of what has the name now, in the directory
    /// that was listed, wherever that has been moved.
    ///
    /// # Errors
    /// `ENOENT` if the name is gone, `EACCES` if the directory may not be searched.
    pub fn metadata(&self) -> Result<Metadata> {
        let Listed { origin, dir, .. } = &*self.listed;
        let mut walk = Walk::new(&origin.shared().fs, &origin.caller, &origin.root);
        match walk.stat(dir, Path::new(self.file_name()), Links::Keep) {
            Ok(attributes) => Ok(Metadata::new(attributes)),
            Err(cause) => Err(cause.at("stat", &self.path())),
        }
    }

    /// Inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }
}

/// The entries of a directory, without `.` and `..`. An entry that exists all the time is returned
/// exactly once, whatever else is created or removed meanwhile.
pub struct ReadDir {
    listed: Arc<Listed>,
    batch: EntryBatch,
    /// The next one of the batch.
    at: usize,
    /// Where the next batch begins; `None` behind the last one.
    rest: Option<u64>,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir")
            .field("directory", &self.listed.path)
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(origin: Arc<Origin>, dir: InodeRef, path: &Path) -> ReadDir {
        let path = path.to_owned();
        ReadDir {
            listed: Arc::new(Listed { origin, dir, path }),
            batch: EntryBatch::default(),
            at: 0,
            rest: Some(0),
        }
    }

    /// The next batch that is not empty; `false` at the end.
    fn fill(&mut self) -> Result<bool> {
        let Listed { origin, dir, path } = &*self.listed;
        let fs = &origin.shared().fs;
        while let Some(from) = self.rest {
            self.at = 0;
            let rest = fs.read_entries(dir, from, &mut self.batch);
            self.rest = rest.at("read directory", path)?;
            if !self.batch.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.batch.len() {
            match self.fill() {
                Ok(true) => (),
                Ok(false) => return None,
                Err(error) => {
                    // Once.
                    self.rest = None;
                    self.at = 0;
                    self.batch = EntryBatch::default();
                    return Some(Err(error));
                }
            }
        }
        let (ino, kind, name) = self.batch.get(self.at)?;
        self.at += 1;
        Some(Ok(DirEntry {
            listed: Arc::clone(&self.listed),
            name: Name::new(name),
            ino: ino.0,
            kind,
        }))
    }
}
