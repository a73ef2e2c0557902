//! The buckets that an operation locks in directories which it holds shared.

use dure_store::ranks::BUCKET;
use dure_sync::MutexGuard;
use smallvec::SmallVec;

use crate::directory::Directories;
use crate::directory::read::Leaf;
use crate::inode::{Attempt, Inode, LockedInodes};

/// The buckets that an operation changes in directories that it holds shared.
#[derive(Debug)]
pub(crate) struct LockedBuckets<'l> {
    /// In the order in which the operation names them.
    leaves: &'l [Option<Leaf>],
    /// Released together.
    _held: [Option<MutexGuard<'l, BUCKET, ()>>; 2],
}

impl Directories {
    /// The bucket of names with this hash in a directory that the operation holds shared; `None` if
    /// it holds it exclusively.
    pub(crate) fn leaf_of(
        &self,
        locked: &LockedInodes<'_>,
        directory: &Inode,
        hash: u64,
    ) -> std::result::Result<Option<Leaf>, Attempt> {
        if locked.is_exclusive(directory) {
            return Ok(None);
        }
        let leaf = self.leaf(locked.get(directory), hash)?;
        // The first bucket node must be made, under the exclusive lock.
        leaf.ok_or(Attempt::Whole).map(Some)
    }
}

impl<'l> LockedBuckets<'l> {
    /// Locks up to two buckets, each once, in ascending (nid, index). `None` stands for a directory
    /// that is held exclusively.
    pub(crate) fn lock(
        leaves: &'l [Option<Leaf>],
    ) -> std::result::Result<LockedBuckets<'l>, Attempt> {
        assert!(leaves.len() <= 2, "an operation concerns two names at most");
        let mut held = [None, None];
        if leaves.iter().any(Option::is_some) {
            let place = |leaf: &Leaf| (leaf.node.nid, leaf.index);
            let mut order: SmallVec<[&Leaf; 2]> = leaves.iter().flatten().collect();
            order.sort_unstable_by_key(|leaf| place(leaf));
            order.dedup_by_key(|leaf| place(leaf));
            for (leaf, held) in order.into_iter().zip(&mut held) {
                // Another operation has split it.
                *held = Some(leaf.lock().ok_or(Attempt::Again)?);
            }
        }
        Ok(LockedBuckets {
            leaves,
            _held: held,
        })
    }

    /// The bucket of name number `name`, if its directory is held shared.
    pub(crate) fn leaf(&self, name: usize) -> Option<&Leaf> {
        self.leaves[name].as_ref()
    }
}
