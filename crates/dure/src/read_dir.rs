//! Reading a directory, in batches, so that no lock is held between two entries.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;

use dure_fs::{FileKind, InodeRef};
use dure_sync::Arc;

use crate::error::{Context, Result};
use crate::session::Origin;

const BATCH: usize = 64;

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    name: OsString,
    ino: u64,
    kind: FileKind,
    cookie: u64,
}

impl DirEntry {
    /// Name.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
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

/// The entries of a directory, without `.` and `..`. An entry that is there all the time is given
/// exactly once, whatever else is made or removed meanwhile.
pub struct ReadDir {
    origin: Arc<Origin>,
    dir: InodeRef,
    /// Entries in reverse.
    batch: Vec<DirEntry>,
    cookie: u64,
    done: bool,
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir")
            .field("directory", &self.dir.ino())
            .field("cookie", &self.cookie)
            .finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(origin: Arc<Origin>, dir: InodeRef) -> ReadDir {
        ReadDir {
            origin,
            dir,
            batch: Vec::new(),
            cookie: 0,
            done: false,
        }
    }

    fn fill(&mut self) -> Result<()> {
        let batch = &mut self.batch;
        let mut full = false;
        let fs = &self.origin.shared().fs;
        fs.read_directory(&self.dir, self.cookie, &mut |entry| {
            batch.push(DirEntry {
                name: OsString::from_vec(entry.name.to_vec()),
                ino: entry.ino.0,
                kind: entry.kind,
                cookie: entry.cookie,
            });
            full = batch.len() >= BATCH;
            if full {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .during("read directory")?;
        if let Some(last) = batch.last() {
            self.cookie = last.cookie;
        }
        self.done = !full;
        batch.reverse();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && !self.done
            && let Err(error) = self.fill()
        {
            self.done = true;
            return Some(Err(error));
        }
        self.batch.pop().map(Ok)
    }
}
