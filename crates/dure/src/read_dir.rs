//! Reading a directory, in batches, so that no lock is held between two entries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dure_fs::{EntryBatch, FileKind, InodeRef};
use dure_sync::Arc;

use crate::error::{Context, Result};
use crate::session::Origin;

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    name: Name,
    ino: u64,
    kind: FileKind,
}

/// Bytes of a name that need no allocation: most names are shorter.
const SHORT: usize = 38;

/// A name. Listing takes little more time than copying the names, so it does not allocate for each.
#[derive(Clone, PartialEq, Eq)]
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

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_os_str().fmt(f)
    }
}

impl DirEntry {
    /// Name.
    #[inline]
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        self.name.as_os_str()
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
    origin: Arc<Origin>,
    dir: InodeRef,
    batch: EntryBatch,
    /// The next one of the batch.
    at: usize,
    /// Where the next batch begins; `None` behind the last one.
    rest: Option<u64>,
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir")
            .field("directory", &self.dir.ino())
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(origin: Arc<Origin>, dir: InodeRef) -> ReadDir {
        ReadDir {
            origin,
            dir,
            batch: EntryBatch::default(),
            at: 0,
            rest: Some(0),
        }
    }

    /// The next batch that is not empty; `false` at the end.
    fn fill(&mut self) -> Result<bool> {
        let fs = &self.origin.shared().fs;
        while let Some(from) = self.rest {
            self.at = 0;
            let rest = fs.read_entries(&self.dir, from, &mut self.batch);
            self.rest = rest.during("read directory")?;
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
            name: Name::new(name),
            ino: ino.0,
            kind,
        }))
    }
}
