//! Finding inodes by number and by name.

use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::bucket::NAME_MAX;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::directory::dentry_cache::{ABSENT, UNKNOWN};
use crate::inode::{InodeId, InodeRef};
use crate::namespace::{DirectoryEntry, EntryBatch, Peek};
use crate::volume::FileSystem;

impl FileSystem {
    /// The root directory.
    ///
    /// # Errors
    /// `Corrupt` when it cannot be read.
    pub fn root(&self) -> Result<InodeRef> {
        self.0.inodes.inode(Ino::ROOT)
    }

    /// The inode with this number.
    ///
    /// # Errors
    /// `NotFound` when there is none, or it has neither a name nor a user.
    pub fn inode(&self, ino: Ino) -> Result<InodeRef> {
        if let Some(found) = self.0.inodes.inode_in_memory(ino)? {
            return Ok(found);
        }
        if !self.0.names.is_inode_node(ino.nid())? {
            return Err(Error::NotFound);
        }
        self.0.inodes.inode(ino)
    }

    /// The inode that `name` leads to in `directory`.
    ///
    /// # Errors
    /// `NotDirectory`, `NameTooLong`, `NotFound` for a removed directory; of reading nodes.
    pub fn lookup(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        self.0.names.look_up(directory, name)
    }

    /// The directory that `directory` is in; the root is in itself.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn parent(&self, directory: &InodeRef) -> Result<Ino> {
        if directory.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(Ino(directory.inode().attributes().parent.get()))
    }

    /// Passes the entries after `cookie` (0: all) to `show` until it says stop; an entry it stops
    /// at was not taken. The order is that of hashes. Entries that exist throughout are passed
    /// exactly once, whatever else happens to the directory. No lock is held while `show` runs. "."
    /// and ".." are left out.
    ///
    /// # Errors
    /// `NotDirectory`; of reading buckets.
    pub fn read_directory(
        &self,
        directory: &InodeRef,
        cookie: u64,
        show: &mut dyn FnMut(&DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.0.names.list(directory, cookie, show)
    }

    /// Copies some more entries into `batch`, starting at the place `from` (0: the beginning), and
    /// returns the place of the rest; `None` at the end. They have no particular order, and `batch`
    /// may be empty before the end. A caller that continues where the last call ended gets entries
    /// that exist throughout exactly once, whatever else happens to the directory. "." and ".." are
    /// left out.
    ///
    /// # Errors
    /// `NotDirectory`; of reading buckets.
    pub fn read_entries(
        &self,
        directory: &InodeRef,
        from: u64,
        batch: &mut EntryBatch,
    ) -> Result<Option<u64>> {
        self.0.names.list_some(directory, from, batch)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for an inode that is not a symbolic link; of reading nodes.
    pub fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        self.0.names.read_link(inode)
    }

    /// What `name` leads to in `directory`, if that is cached; takes no lock and writes nothing
    /// shared.
    #[inline]
    #[must_use]
    pub fn peek(&self, directory: InodeId, name: &[u8]) -> Peek {
        match self
            .0
            .directories
            .dentries
            .get(directory, self.0.directories.named(name))
        {
            (UNKNOWN, _) => Peek::Unknown,
            (ABSENT, _) => Peek::Absent,
            words => Peek::Found(InodeId::from_words(words)),
        }
    }

    /// A reference to the inode; `None` if it was deleted, or its number reused.
    ///
    /// # Errors
    /// Those of reading its node.
    pub fn pin(&self, id: InodeId) -> Result<Option<InodeRef>> {
        self.0.names.pin(id)
    }

    /// Like [`FileSystem::lookup`]; caches the answer for [`FileSystem::peek`], even that there is
    /// no such name.
    ///
    /// # Errors
    /// Those of [`FileSystem::lookup`].
    pub fn look_up_and_remember(
        &self,
        directory: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        self.0.names.look_up_and_remember(directory, name)
    }

    /// The target of the symbolic link, if it is cached; takes no lock and writes nothing shared.
    /// Otherwise [`FileSystem::read_link`] finds it and caches it for the next call.
    #[must_use]
    pub fn peek_target(&self, link: InodeId) -> Option<Vec<u8>> {
        let target = self.0.names.symlinks.get(link)?;
        self.0.names.reads_unnoticed(link).then_some(target)
    }
}
