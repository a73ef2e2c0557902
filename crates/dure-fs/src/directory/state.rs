//! What a directory keeps in memory.
//!
//! **Problem.** Each inode of a directory keeps it, and inodes know nothing of tries and names.
//! **Structure.** [`DirectoryState`] has what the inode's data says, the fold of the buckets,
//! and what holders of the shared lock noted ([`SharedChanges`]). **Invariants.** It changes under
//! the exclusive inode lock; what does not has its own rules. The fold counts the subdirectories
//! that exclusive changes have added, the slots of the journals those of shared ones.
//! **On a crash** it is gone: buckets have their stamps and counts.

use dure_store::format::inode::{DataHead, Time};
use dure_store::node::NodeRef;
use dure_store::units::{Ino, JournalId, Mark, Nid};
use dure_sync::OnceLock;

use super::shared::{Change, SharedChanges, Shortcuts};
use super::stamp::{Fold, Stamps};

/// What a directory keeps in memory. Owner: [inode.state].
#[derive(Debug)]
pub(crate) struct DirectoryState {
    /// Its inode's number, which is in its nodes.
    pub(crate) owner: Ino,
    /// The first bucket node, as the inode's data says; 0: none.
    pub(super) root_nid: u64,
    /// Stamps of buckets with a smaller number do not count, as the inode's data says.
    pub(crate) set_number: u32,
    /// Stamps and counts of all buckets, once they were asked for.
    pub(super) fold: Option<Box<Fold>>,
    /// The first bucket node, once it was used.
    pub(super) root: OnceLock<NodeRef>,
    /// What holders of the shared lock noted of their changes.
    pub(crate) shared: SharedChanges,
    /// Where walks of the trie begin.
    pub(crate) shortcuts: Shortcuts,
    /// Which journals changed entries under the exclusive lock.
    pub(super) turns: Turns,
}

/// When so many changes have come from another journal than the one before, tasks count as
/// contended, though none has found the directory locked by another.
const TURNS_MAX: u8 = 4;

/// How often exclusive changes switched between journals.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Journal of the last change.
    journal: Option<JournalId>,
    count: u8,
}

impl Turns {
    /// Notes a change by this journal. Returns whether it is the one from which on tasks count as
    /// contended.
    pub(super) fn note(&mut self, journal: JournalId) -> bool {
        let before = self.journal.replace(journal);
        if before.is_none_or(|before| before == journal) {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.count == TURNS_MAX
    }
}

impl DirectoryState {
    /// The state of an inode whose data begins with `data`.
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
