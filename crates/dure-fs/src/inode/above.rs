//! What the inodes ask of the files, which are above them.

use std::fmt;

use super::Inode;

/// What is built on the inodes of a volume: it knows what they own.
pub(crate) trait Above: fmt::Debug + Send + Sync {
    /// The last pin of an inode without a name is gone: deletes it, unless another task does. The
    /// caller holds no lock.
    fn delete_unpinned(&self, inode: &Inode);

    /// Like `delete_unpinned`, where no operation may begin: its orphan slot stays, and the next
    /// mount deletes it.
    fn leave_deletion(&self, inode: &Inode);

    /// Writes some inodes back that nothing could evict before, if they crowd the cache. The caller
    /// holds no lock.
    fn relieve_inodes(&self);
}
