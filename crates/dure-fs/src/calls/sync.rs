//! fsync and sync.

use dure_store::error::Result;

use crate::file::{SyncScope, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

impl FileSystem {
    /// Makes an inode durable. While write-back of one of its pages fails, so does this.
    ///
    /// # Errors
    /// `NoSpace` when pages that were accepted find no room, `Stopped`, device errors.
    pub fn fsync(&self, inode: &InodeRef, scope: SyncScope) -> Result<()> {
        match self.0.options.read_only {
            true => Ok(()),
            false => self.0.files.fsync(inode, scope),
        }
    }

    /// Whether [`FileSystem::fsync`] would wait for the medium, or for so many pages that a task
    /// that serves others should not wait for them, as far as can be told without waiting. It may
    /// be different a moment later.
    #[must_use]
    pub fn fsync_waits(&self, inode: &InodeRef) -> bool {
        let body = self.0.files.body;
        match regular(inode) {
            Ok(inode) => body.fsync_waits(&self.0.files, inode),
            // Of names there is the commit only.
            Err(_) => self.reads_wait(),
        }
    }

    /// Makes everything that happened before it began durable.
    ///
    /// # Errors
    /// The first failure of a write-back, after all others were tried; `Stopped`.
    pub fn sync(&self) -> Result<()> {
        let volume = &self.0;
        if volume.options.read_only {
            return Ok(());
        }
        volume.store.check_writable()?;
        volume.inodes.write_access_times();
        let written = volume.files.body.write_back_all(&volume.files);
        volume.store.commit_all()?;
        written
    }
}
