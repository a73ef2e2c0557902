//! Creating, linking, moving and removing names.

use dure_store::error::Result;
use dure_store::format::inode::InodeRecord;

use crate::inode::{Attributes, InodeRef, NewInode};
use crate::namespace::{Nameless, New, Removal, RenameMode};
use crate::volume::FileSystem;

impl FileSystem {
    /// Makes an inode of any type but directory and symlink (the type is in `new.mode`) and names
    /// it.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `NotDirectory`, `NotFound` when the directory was removed; of the name.
    pub fn create(&self, directory: &InodeRef, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        self.0
            .names
            .make(directory, name, New::Node(new), |made, _| made)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn mkdir(&self, directory: &InodeRef, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        let new = New::Directory(new);
        self.0.names.make(directory, name, new, |made, _| made)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of `create`; `NotFound` for an empty target, `NameTooLong` beyond 4095 bytes,
    /// `Invalid` for NUL.
    pub fn symlink(
        &self,
        directory: &InodeRef,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<InodeRef> {
        let new = New::Symlink(new, target);
        self.0.names.make(directory, name, new, |made, _| made)
    }

    /// Makes an inode and names it, as the functions above; also returns its attributes as they
    /// were when it had its name, which a stat would have to look for.
    ///
    /// # Errors
    /// Theirs.
    pub fn make(
        &self,
        directory: &InodeRef,
        name: &[u8],
        new: New<'_>,
    ) -> Result<(InodeRef, Attributes)> {
        let with_attributes = |made: InodeRef, record: &InodeRecord| {
            let attributes = Attributes::of_new(made.kind(), record);
            (made, attributes)
        };
        self.0.names.make(directory, name, new, with_attributes)
    }

    /// Makes a regular file without a name in the file system of `directory` (`O_TMPFILE`). `link`
    /// may name it; otherwise it is deleted when its last reference is dropped, or after a crash.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn temporary(&self, directory: &InodeRef, new: &NewInode) -> Result<InodeRef> {
        self.0.names.temporary(directory, new)
    }

    /// Gives an inode another name; a temporary file its first.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `TooManyLinks`, `Exists`, `NotFound` when the inode or the
    /// directory was removed; of the name.
    pub fn link(&self, inode: &InodeRef, directory: &InodeRef, name: &[u8]) -> Result<()> {
        self.0.names.link(inode, directory, name)
    }

    /// Removes a name of anything but a directory; deletes the inode with its last name and user.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotDirectory`; of the name.
    pub fn unlink(&self, directory: &InodeRef, name: &[u8]) -> Result<()> {
        let removed = (Removal::Unlink, Nameless::Deleted);
        self.0.names.remove(directory, name, removed).map(drop)
    }

    /// Like [`FileSystem::unlink`], and returns the inode if that was its last name: it is deleted
    /// when its last reference is dropped.
    ///
    /// # Errors
    /// Those of [`FileSystem::unlink`].
    pub fn unlink_and_keep(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        let removed = (Removal::Unlink, Nameless::Kept);
        self.0.names.remove(directory, name, removed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `NotDirectory`; of the name.
    pub fn rmdir(&self, directory: &InodeRef, name: &[u8]) -> Result<()> {
        let removed = (Removal::Rmdir, Nameless::Deleted);
        self.0.names.remove(directory, name, removed).map(drop)
    }

    /// Like [`FileSystem::rmdir`], and returns the directory, which is deleted when its last
    /// reference is dropped.
    ///
    /// # Errors
    /// Those of [`FileSystem::rmdir`].
    pub fn rmdir_and_keep(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        let removed = (Removal::Rmdir, Nameless::Kept);
        self.0.names.remove(directory, name, removed)
    }

    /// Moves a name. Two names of one inode stay as they are. Before replacing a file, writes back
    /// the data of the file that moves, so that a crash does not leave an empty file under the
    /// name.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (`NoReplace`), `IsDirectory`, `NotDirectory`, `NotEmpty`, `Loop`,
    /// `NoSpace`; of the names.
    pub fn rename(
        &self,
        from_dir: &InodeRef,
        from: &[u8],
        to_dir: &InodeRef,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = ((from_dir, from), (to_dir, to));
        let renamed = self.0.names.rename(from, to, mode, Nameless::Deleted);
        renamed.map(drop)
    }

    /// Like [`FileSystem::rename`], and returns the inode whose last name was taken, if there is
    /// one: it is deleted when its last reference is dropped.
    ///
    /// # Errors
    /// Those of [`FileSystem::rename`].
    pub fn rename_and_keep(
        &self,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<InodeRef>> {
        self.0.names.rename(from, to, mode, Nameless::Kept)
    }

    /// Like [`FileSystem::rename_and_keep`], and gives the old name to a new inode of any type but
    /// directory and symlink, at the same moment: `RENAME_WHITEOUT`.
    ///
    /// # Errors
    /// Those of [`FileSystem::rename`]; `Invalid` for an exchange.
    pub fn rename_leaving(
        &self,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        mode: RenameMode,
        left: &NewInode,
    ) -> Result<Option<InodeRef>> {
        self.0.names.rename_leaving(from, to, mode, left)
    }
}
