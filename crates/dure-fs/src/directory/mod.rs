//! Directories: a trie of hash buckets per directory.
//!
//! **Problem.** Two cores that create files in one directory must not write one another's granules
//! where their names fall into different buckets, and a directory of a million names must not cost
//! more per name than a small one. **Structure.** A bucket node has eight buckets; a bucket that
//! overflows moves its entries to a child node ([`tree`]). The bytes of a bucket are in [`bucket`],
//! the arithmetic of the trie in [`dure_store::format::trie`]. Stamps and counts live in the
//! buckets and are folded for stat ([`stamp`]). Lookups that were answered before are answered
//! again without a lock ([`dentry_cache`]).
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
pub(crate) mod tree;

use dure_store::error::{Error, Result};
use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::inode::{DataHead, Time};
use dure_store::format::node::NodeKind;
use dure_store::node::NodeRef;
use dure_store::units::{GranuleId, Ino, JournalId, Mark, Nid, to_usize};
use dure_sync::OnceLock;

use self::shared::{SharedChanges, Shortcuts};
use self::stamp::{Fold, Stamps};
use crate::inode::{Inode, InodeState, LockedInodes};
use crate::namespace::LINKS_MAX;
use crate::volume::{DirectoryRule, Volume};

/// What a directory keeps in memory. Owner: [inode.state].
#[derive(Debug)]
pub(crate) struct DirectoryState {
    /// Its inode's number, which is in its nodes.
    pub(crate) owner: Ino,
    /// The first bucket node, as the inode's data says; 0: none.
    root_nid: u64,
    /// Stamps of buckets with a smaller number do not count, as the inode's data says.
    pub(crate) set_number: u32,
    /// Stamps and counts of all buckets, once they were asked for.
    fold: Option<Box<Fold>>,
    /// The first bucket node, once it was used.
    root: OnceLock<NodeRef>,
    /// What holders of the shared lock noted of their changes.
    pub(crate) shared: SharedChanges,
    /// Where walks of the trie begin.
    pub(crate) shortcuts: Shortcuts,
    /// Which journals changed entries under the exclusive lock.
    turns: Turns,
}

/// When so many changes have come from another journal than the one before, tasks count as
/// contended, though none has found the directory locked by another.
const TURNS_MAX: u8 = 4;

/// How often exclusive changes switched between journals.
#[derive(Debug, Default)]
struct Turns {
    /// Journal of the last change.
    journal: Option<JournalId>,
    count: u8,
}

impl Turns {
    /// Notes a change by this journal. Returns whether it is the one from which on tasks count as
    /// contended.
    fn note(&mut self, journal: JournalId) -> bool {
        let before = self.journal.replace(journal);
        if before.is_none_or(|before| before == journal) {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.count == TURNS_MAX
    }
}

/// How an operation changes the counts of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Subdirectories added, less those removed.
    pub(crate) subdirectories: i32,
}

impl Change {
    /// An entry of this kind is added (1) or removed (-1).
    pub(crate) fn of(kind: u8, sign: i8) -> Change {
        let directory = kind == bucket::KIND_DIRECTORY;
        let subdirectories = if directory { i32::from(sign) } else { 0 };
        Change { subdirectories }
    }

    /// Both changes together.
    pub(crate) fn and(self, other: Change) -> Change {
        Change {
            subdirectories: self.subdirectories + other.subdirectories,
        }
    }
}

impl DirectoryState {
    /// Of an inode whose data begins with `data`.
    pub(crate) fn new(data: &DataHead) -> DirectoryState {
        DirectoryState {
            owner: data.number(),
            root_nid: data.map_root.get(),
            set_number: data.set_number.get(),
            fold: None,
            root: OnceLock::new(),
            shared: SharedChanges::default(),
            shortcuts: Shortcuts::default(),
            turns: Turns::default(),
        }
    }

    /// The inode's data was logged.
    pub(crate) fn data_stored(&mut self, data: &DataHead) {
        self.root_nid = data.map_root.get();
        self.set_number = data.set_number.get();
    }

    /// The number of the first bucket node, if the directory ever had an entry.
    pub(crate) fn root_nid(&self) -> Option<Nid> {
        (self.root_nid != 0).then_some(Nid(self.root_nid))
    }

    /// The fold, if it has been computed.
    pub(crate) fn fold(&self) -> Option<&Fold> {
        self.fold.as_deref()
    }

    /// The operations that changed entries under the shared lock, one per journal at most.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.shared.marks()
    }

    /// Number of entries that are directories; `None` if the fold was not computed, or they change
    /// too often to be counted under the shared lock.
    pub(crate) fn subdirectories(&self) -> Option<u32> {
        let fold = self.fold()?;
        let more = self.shared.subdirectories()?;
        Some(sum(fold.subdirectories, more))
    }

    /// Entries changed at `now`, by an operation that has finished and held the directory
    /// exclusively.
    pub(crate) fn changed(&mut self, change: Change, now: Time) {
        self.settle();
        let Some(fold) = &mut self.fold else {
            return;
        };
        fold.add_stamps(Stamps {
            mtime: now,
            ctime: now,
        });
        fold.subdirectories = sum(fold.subdirectories, change.subdirectories.into());
    }

    /// Moves the counts noted by holders of the shared lock into the fold; without a fold, drops
    /// them, as the buckets have the counts. The caller holds the directory exclusively.
    pub(crate) fn settle(&mut self) {
        let more = self.shared.take_subdirectories();
        if let Some(fold) = &mut self.fold {
            fold.subdirectories = sum(fold.subdirectories, more);
        }
    }

    /// The set number was raised: earlier stamps do not count.
    pub(crate) fn forget_stamps(&mut self) {
        if let Some(fold) = &mut self.fold {
            fold.stamps = None;
        }
        self.shared.forget_times();
    }

    /// The directory was removed with all its bucket nodes.
    pub(crate) fn clear(&mut self) {
        (self.root_nid, self.fold, self.root) = (0, None, OnceLock::new());
        (self.shared, self.shortcuts) = Default::default();
    }

    /// The operation that made the first bucket node has finished.
    pub(crate) fn set_root(&self, root: &NodeRef) {
        let root = self.root.get_or_init(|| root.clone());
        assert!(
            root.freed().is_none(),
            "the first bucket node lives as long as the directory"
        );
    }
}

/// `count` plus `more`.
fn sum(count: u32, more: i64) -> u32 {
    let sum = u32::try_from(i64::from(count) + more);
    sum.expect("no more subdirectories go than are there")
}

impl InodeState {
    /// The first bucket node, if the directory ever had an entry.
    pub(crate) fn first_bucket_node(&self, volume: &Volume) -> Result<Option<NodeRef>> {
        let directory = self.directory();
        if let Some(root) = directory.root.get() {
            return Ok(Some(root.clone()));
        }
        let Some(nid) = directory.root_nid() else {
            return Ok(None);
        };
        let node = volume.node(nid, NodeKind::Bucket.of(directory.owner))?;
        Ok(Some(directory.root.get_or_init(|| node).clone()))
    }
}

impl Volume {
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
        let change = match self.options.volume_rules.directories {
            DirectoryRule::Uncounted(_) => Change::default(),
            _ => change,
        };
        let journals = to_usize(u64::from(self.layout.journals));
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
        if let Some(root) = state.first_bucket_node(self)? {
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
        let nodes_max = self.layout.nids();
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
                let child = self.node(Nid(child), NodeKind::Bucket.of(node.owner))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_take_turns_have_met() {
        let mut turns = Turns::default();
        let mut note = |journal| turns.note(JournalId::new(journal).unwrap());
        assert!(![0, 0, 0, 1, 1, 0, 0, 1].map(&mut note).contains(&true));
        assert_eq!([0, 1, 0].map(note), [true, false, false], "once");
    }
}
