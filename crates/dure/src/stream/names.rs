//! Paths of a stream in a volume.

use dure_fs::{Error, FileSystem, InodeRef, Result};

/// A tree, and the directory that was found last: neighbours in a stream are neighbours there.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) fs: FileSystem,
    last: Option<(Vec<u8>, InodeRef)>,
}

/// The directory of a path, and the name there.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

impl Tree {
    pub(super) fn new(fs: FileSystem) -> Tree {
        Tree { fs, last: None }
    }

    /// A directory may have moved.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// What is at a path.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`; of reading.
    pub(super) fn inode(&mut self, path: &[u8]) -> Result<InodeRef> {
        if path.is_empty() {
            return self.fs.root();
        }
        let (directory, name) = split(path);
        let directory = self.directory(directory)?;
        self.fs.lookup(&directory, name)?.ok_or(Error::NotFound)
    }

    /// The directory at a path.
    ///
    /// # Errors
    /// Those of [`Tree::inode`].
    pub(super) fn directory(&mut self, path: &[u8]) -> Result<InodeRef> {
        if let Some((known, inode)) = &self.last
            && known == path
        {
            return Ok(inode.clone());
        }
        let mut inode = self.fs.root()?;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            inode = self.fs.lookup(&inode, name)?.ok_or(Error::NotFound)?;
        }
        self.last = Some((path.to_vec(), inode.clone()));
        Ok(inode)
    }
}
