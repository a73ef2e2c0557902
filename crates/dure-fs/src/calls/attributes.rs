//! Attributes.

use dure_store::error::Result;

use crate::inode::{Attributes, InodeId, InodeRef, Permissions};
use crate::namespace::SetAttributes;
use crate::volume::FileSystem;

impl FileSystem {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// Those of reading a directory's buckets, once per directory.
    pub fn attributes(&self, inode: &InodeRef) -> Result<Attributes> {
        self.0.names.attributes(inode)
    }

    /// The attributes that decide about permissions.
    ///
    /// # Errors
    /// Those of [`FileSystem::attributes`].
    pub fn permissions(&self, inode: &InodeRef) -> Result<Permissions> {
        self.0.names.permissions(inode)
    }

    /// The attributes of the inode, if they are cached; takes no lock and writes nothing shared.
    #[must_use]
    pub fn peek_attributes(&self, id: InodeId) -> Option<Attributes> {
        self.0.inodes.attribute_cache.get(id)
    }

    /// Like `FileSystem::permissions`, if they are cached; takes no lock and writes nothing shared.
    #[must_use]
    pub fn peek_permissions(&self, id: InodeId) -> Option<Permissions> {
        self.0.inodes.permissions_at_hand(id)
    }

    /// Sets attributes, and returns all of them.
    ///
    /// # Errors
    /// Those of [`FileSystem::change_attributes`].
    pub fn set_attributes(&self, inode: &InodeRef, set: &SetAttributes) -> Result<Attributes> {
        self.change_attributes(inode, set)?;
        self.attributes(inode)
    }

    /// Sets attributes; the size first, the others in one operation.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for the size of what is no regular file, `Invalid` for a
    /// malformed time.
    pub fn change_attributes(&self, inode: &InodeRef, set: &SetAttributes) -> Result<()> {
        self.0.names.change_attributes(inode, set)
    }
}
