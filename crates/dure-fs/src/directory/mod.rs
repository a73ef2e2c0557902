//! Directories: a trie of hash buckets per directory.
//!
//! **Problem.** Two cores that create files in one directory must not write one another's granules
//! where their names fall into different buckets, and a directory of a million names must not cost
//! more per name than a small one. **Structure.** A bucket node has eight buckets; a bucket that
//! overflows moves its entries to a child node ([`tree`]). The bytes of a bucket are in [`bucket`],
//! the arithmetic of the trie in [`dure_store::format::trie`]. Stamps and counts live in the
//! buckets and are folded for stat ([`stamp`]). Lookups that were answered before are answered
//! again without a lock ([`dentry_cache`]). What an inode keeps of its directory is in [`state`].
//!
//! # Invariants
//! The entries of a bucket change under the directory's inode lock, held exclusively, or shared
//! with the bucket locked (`Node::lock_bucket`); holders of the shared lock may read them at any
//! moment, granule by granule. Buckets get children under the same locks; nodes are freed, and the
//! first one is made, only under the exclusive lock. Changes hold a directory shared once two of
//! them have contended for it (they note what they did in [`shared`]).
//!
//! A node other than the first has at least one entry below it: a removal frees the nodes it
//! empties. No change of entries writes the directory's own inode, except the first one, which
//! gives it its first bucket node: `nlink` is 2 plus the subdirectories that the buckets count.
//!
//! **On a crash** each change of entries is there wholly or not at all, with the inode it concerns
//! and the count of its bucket, because one handle writes them.

pub(crate) mod bucket;
pub(crate) mod dentry_cache;
pub(crate) mod read;
pub(crate) mod shared;
pub(crate) mod stamp;
mod state;
pub(crate) mod tree;

pub(crate) use self::shared::Change;
pub(crate) use self::state::DirectoryState;

use dure_store::Store;
use dure_store::error::{Error, Result};
use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::inode::Time;
use dure_store::format::node::NodeKind;
use dure_store::node::NodeRef;
use dure_store::units::{GranuleId, Ino, Mark, Nid, to_usize};
use dure_sync::Arc;

use self::dentry_cache::DentryCache;
use self::stamp::Fold;
use crate::inode::{Inode, InodeState, LINKS_MAX, LockedInodes};
use crate::volume::DirectoryRule;

/// The directories of a volume.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) store: Arc<Store>,
    /// Answers that are found again without a lock.
    pub(crate) dentries: DentryCache,
    /// When changes of entries hold their directory shared.
    pub(crate) rule: DirectoryRule,
}

impl InodeState {
    /// The first bucket node, if the directory ever had an entry.
    pub(crate) fn first_bucket_node(&self, store: &Store) -> Result<Option<NodeRef>> {
        let directory = self.directory();
        if let Some(root) = directory.root.get() {
            return Ok(Some(root.clone()));
        }
        let Some(nid) = directory.root_nid() else {
            return Ok(None);
        };
        let node = store.node(nid, NodeKind::Bucket.of(directory.owner))?;
        Ok(Some(directory.root.get_or_init(|| node).clone()))
    }
}

impl Directories {
    /// Entries of a locked directory changed at `now`, by an operation that has finished and still
    /// holds their buckets: so additions and removals of one name are counted in their order.
    pub(crate) fn entries_changed(
        &self,
        locked: &mut LockedInodes<'_>,
        directory: &Inode,
        change: Change,
        (mark, now): (Mark, Time),
    ) {
        if locked.is_exclusive(directory) {
            let state = locked.get_mut(directory);
            state.note_mark(mark);
            state.directory_mut().changed(change, now);
            if state.directory_mut().turns.note(mark.journal()) {
                directory.note_contended();
            }
            return;
        }
        let change = match self.rule {
            DirectoryRule::Uncounted(_) => Change::default(),
            _ => change,
        };
        let journals = to_usize(u64::from(self.store.layout.journals));
        let shared = &locked.get(directory).directory().shared;
        let shown = shared.note(journals, change, (mark, now));
        directory.state().changed_shared(shown);
        if change != Change::default() {
            directory.state().attributes_changed();
        }
    }

    /// Computes the fold of a directory, unless it is there. The caller holds the directory
    /// exclusively.
    pub(crate) fn load_fold(&self, state: &mut InodeState) -> Result<()> {
        state.directory_mut().settle();
        if state.directory().fold.is_some() {
            return Ok(());
        }
        let set_number = state.directory().set_number;
        let mut fold = Fold::default();
        if let Some(root) = state.first_bucket_node(&self.store)? {
            self.walk_buckets(&root, &mut |node| {
                for index in 0..node.granule_count() {
                    node.look_at(index, bucket::HEADER, |payload| {
                        fold.add_bucket(bucket::header(payload), set_number)
                    });
                }
            })?;
        }
        if fold.subdirectories > LINKS_MAX {
            return Err(Error::Corrupt {
                what: format!("subdirectories of inode {}", state.directory().owner),
                at: state.directory().root_nid,
                want: LINKS_MAX.into(),
                got: fold.subdirectories.into(),
            });
        }
        state.directory_mut().fold = Some(Box::new(fold));
        Ok(())
    }

    /// Passes all bucket nodes to `show`, parents first. The caller holds the directory.
    pub(crate) fn walk_buckets(
        &self,
        root: &NodeRef,
        show: &mut dyn FnMut(&NodeRef),
    ) -> Result<()> {
        let nodes_max = self.store.layout.nids();
        let mut seen = 0;
        self.walk_below(root, 0, &mut |node| {
            // In a trie with nodes that have several parents there can be more paths than a walk
            // can finish.
            seen += 1;
            if seen > nodes_max {
                return Err(Error::Corrupt {
                    what: format!("bucket nodes of inode {}", node.owner),
                    at: root.nid.0,
                    want: nodes_max,
                    got: seen,
                });
            }
            show(node);
            Ok(())
        })
    }

    fn walk_below(
        &self,
        node: &NodeRef,
        level: u32,
        show: &mut dyn FnMut(&NodeRef) -> Result<()>,
    ) -> Result<()> {
        if level >= LEVELS_MAX {
            return Err(too_deep(node.nid));
        }
        show(node)?;
        for index in 0..node.granule_count() {
            let (_, child) = node.look_at(index, bucket::HEADER, bucket::counts);
            if child != 0 {
                let child = self
                    .store
                    .node(Nid(child), NodeKind::Bucket.of(node.owner))?;
                self.walk_below(&child, level + 1, show)?;
            }
        }
        Ok(())
    }
}

/// The error for a trie that is deeper than a hash has digits.
pub(crate) fn too_deep(nid: Nid) -> Error {
    let want = u64::from(LEVELS_MAX);
    Error::Corrupt {
        what: "depth of a directory".into(),
        at: nid.0,
        want,
        got: want + 1,
    }
}

/// The error for a bucket that cannot be listed: its directory and place, as `dure check` names
/// them.
pub(crate) fn corrupt_listing(
    directory: Ino,
    bucket: GranuleId,
    malformed: bucket::Malformed,
) -> Error {
    Error::Corrupt {
        what: format!("directory {directory}, bucket {bucket}: {}", malformed.0),
        at: bucket.nid.0,
        want: 0,
        got: 1,
    }
}

/// The error for bytes that are no bucket. `at` is the node, since its image may be anywhere.
pub(crate) fn corrupt(nid: Nid, malformed: bucket::Malformed) -> Error {
    let what = format!("{} in a bucket of node {}", malformed.0, nid);
    Error::Corrupt {
        what,
        at: nid.0,
        want: 0,
        got: 1,
    }
}
