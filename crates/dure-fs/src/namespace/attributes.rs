//! Attributes of inodes: from the cache, under the shared lock, or with a directory's fold loaded.

use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;

use super::{Names, SetAttributes};
use crate::inode::{Attributes, InodeRef, Permissions, asked};

impl Names {
    /// See [`FileSystem::attributes`](crate::volume::FileSystem::attributes).
    pub(crate) fn attributes(&self, inode: &InodeRef) -> Result<Attributes> {
        if let Some(shown) = self.inodes.attribute_cache.get(inode.id()) {
            return Ok(shown);
        }
        let inode = inode.inode();
        let state = inode.state().read();
        if let Some(attributes) = asked(inode, &state) {
            return Ok(attributes);
        }
        drop(state);
        let mut state = inode.state().write();
        self.directories.load_fold(&mut state)?;
        let plain = inode.plain_part(&state, &inode.attributes());
        let plain = plain.expect("the fold has just been loaded");
        let data = inode.data_part(&state);
        Ok(Attributes::of(inode.id(), &plain, &data))
    }
}

impl Names {
    /// See [`FileSystem::permissions`](crate::volume::FileSystem::permissions).
    pub(crate) fn permissions(&self, inode: &InodeRef) -> Result<Permissions> {
        let id = inode.id();
        if let Some(shown) = self.inodes.permissions_at_hand(id) {
            return Ok(shown);
        }
        match inode.inode().who_may() {
            Some(asked) => Ok(asked),
            // The fold of a directory has to be loaded.
            None => self
                .attributes(inode)
                .map(|whole| Permissions::from(&whole)),
        }
    }
}

impl Names {
    /// See [`FileSystem::change_attributes`](crate::volume::FileSystem::change_attributes).
    pub(crate) fn change_attributes(&self, inode: &InodeRef, set: &SetAttributes) -> Result<()> {
        self.store.check_writable()?;
        set.check_times()?;
        if let Some(size) = set.size {
            match inode.kind() {
                FileKind::File => self.files.truncate(inode, size)?,
                FileKind::Directory => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid("only regular files have a size to set")),
            }
        }
        if set.needs_operation() {
            self.set_attributes(inode.inode(), set)?;
        }
        self.store.end_call()
    }
}
