//! What the inodes ask of the files: deletions, and room in the inode cache.

use dure_store::format::name::FileKind;
use dure_sync::Weak;

use super::Files;
use crate::inode::{Above, Inode};

impl Files {
    /// Writes back some inodes that cannot be evicted before, to make room for others. The caller
    /// holds no lock.
    #[inline]
    pub(crate) fn relieve_inodes(&self) {
        if self.inodes.cache.is_crowded() && self.store.check_writable().is_ok() {
            let most = self.body.settled_together(self);
            let crowd = self.inodes.cache.take_crowded(most);
            for inode in &crowd {
                self.inodes.write_access_time(inode.inode());
            }
            let files = crowd.iter().filter(|inode| inode.kind() == FileKind::File);
            let files: Vec<_> = files.map(|inode| inode.inode().clone()).collect();
            self.body.settle(self, &files);
        }
    }
}

/// The files as inodes in memory know them, which may outlive the mount.
#[derive(Debug)]
pub(crate) struct FilesOfInodes(pub(crate) Weak<Files>);

impl Above for FilesOfInodes {
    fn delete_unpinned(&self, inode: &Inode) {
        if let Some(files) = self.0.upgrade() {
            files.delete_unpinned(inode);
        }
    }

    fn leave_deletion(&self, inode: &Inode) {
        if let Some(files) = self.0.upgrade() {
            files.leave_deletion(inode);
        }
    }

    fn relieve_inodes(&self) {
        if let Some(files) = self.0.upgrade() {
            files.relieve_inodes();
        }
    }
}

impl Above for Files {
    fn delete_unpinned(&self, inode: &Inode) {
        Files::delete_unpinned(self, inode);
    }

    fn leave_deletion(&self, inode: &Inode) {
        Files::leave_deletion(self, inode);
    }

    fn relieve_inodes(&self) {
        Files::relieve_inodes(self);
    }
}
