//! Whether a call on an inode or a name would wait for the medium.

use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::inode::InodeRef;
use crate::namespace::Peek;
use crate::volume::FileSystem;

impl FileSystem {
    /// Whether anything that is not in memory has to be waited for: else the other questions are
    /// not worth asking.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        self.0.store.reads_wait()
    }

    /// Whether [`FileSystem::inode`] would wait, or [`FileSystem::attributes`] of it: those of a
    /// directory are first added up from all of its buckets.
    #[must_use]
    pub fn inode_waits(&self, ino: Ino) -> bool {
        if !self.reads_wait() {
            return false;
        }
        match self.0.inodes.inode_in_memory(ino) {
            Err(_) => false,
            Ok(None) => true,
            Ok(Some(inode)) if inode.kind() == FileKind::Directory => {
                let Some(state) = inode.inode().state().try_read() else {
                    return true;
                };
                let directory = state.directory();
                directory.fold().is_none() && directory.root_nid().is_some()
            }
            Ok(Some(_)) => false,
        }
    }

    /// Whether a call about `name` in `directory` would wait for the entry, for the inode that it
    /// leads to, or for another task.
    #[must_use]
    pub fn name_waits(&self, directory: &InodeRef, name: &[u8]) -> bool {
        if !self.reads_wait() {
            return false;
        }
        match self.peek(directory.id(), name) {
            Peek::Absent => return false,
            Peek::Found(id) => return self.inode_waits(id.ino()),
            Peek::Unknown => {}
        }
        let inode = directory.inode();
        let Some(state) = inode.state().try_read() else {
            return true;
        };
        if inode.check_directory(&state).is_err() {
            // The call fails at once.
            return false;
        }
        let name = self.0.directories.named(name);
        if self.0.directories.bucket_waits(&state, name.hash) {
            return true;
        }
        let found = self.0.directories.find(&state, name);
        drop(state);
        found.is_ok_and(|sight| sight.is_some_and(|sight| self.inode_waits(sight.found.ino)))
    }
}
