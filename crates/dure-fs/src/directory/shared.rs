//! What changes about a directory while several cores change its entries.
//!
//! **Problem.** Cores that create files in one directory hold its inode lock shared, so they may
//! not write its state, and what they write must not be one line for all.
//!
//! **Structure.** [`SharedChanges`] has a slot per journal: the last handle that changed an entry,
//! the latest time of a change, and how many subdirectories were added and removed; readers fold
//! the slots. [`Shortcuts`] says for each value of the upper nine bits of a hash how far down the
//! trie a walk may begin, so that walks do not read, and thereby lock, the buckets of the first
//! nodes.
//!
//! # Invariants
//! A holder of the shared lock writes the slot of its journal after its handle has joined and
//! before it unlocks its buckets; an exclusive holder sees all slots.
//!
//! * So additions and removals of the subdirectory of one name are noted in the order in which they
//!   happened, and the slots add up to a number of subdirectories that existed at some moment. The
//!   counts only grow while the directory is held shared, so two reads of all slots that return the
//!   same are a snapshot.
//! * A shortcut is true while the directory is held shared: nodes are freed only under the
//!   exclusive lock, whose holder clears the shortcuts to them.
//!
//! **On a crash** nothing here is needed: buckets have their stamps and counts.

use dure_store::format::inode::Time;
use dure_store::units::{Mark, Nid, to_usize};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CoreId, OnceLock, PerCore};

use super::bucket::KIND_DIRECTORY;
use crate::inode::StateChange;
use crate::inode::times::{nanos, time};

/// How an operation changes the counts of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Subdirectories added, less those removed.
    pub(crate) subdirectories: i32,
}

impl Change {
    /// An entry of this kind is added (1) or removed (-1).
    pub(crate) fn of(kind: u8, sign: i8) -> Change {
        let directory = kind == KIND_DIRECTORY;
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

/// Changes of entries by holders of the shared lock.
#[derive(Debug, Default)]
pub(crate) struct SharedChanges(OnceLock<PerCore<OfJournal>>);

/// Relaxed, except for the counts: the directory's lock orders these against exclusive holders; a
/// holder of the shared lock sees what operations noted that returned before it was told of them.
#[derive(Debug, Default)]
struct OfJournal {
    /// The last handle of the journal; 0: none.
    mark: AtomicU64,
    /// The latest time, in ns since 1970; 0: none.
    time: AtomicU64,
    /// Subdirectories added.
    came: AtomicU64,
    /// Subdirectories removed.
    went: AtomicU64,
}

/// Maximum number of repeated reads of all slots to find two that are equal.
const LOOKS_MAX: u32 = 8;

impl SharedChanges {
    /// Notes an operation that has finished. Returns whether it changed the time that stat shows.
    pub(crate) fn note(
        &self,
        journals: usize,
        change: Change,
        (mark, now): (Mark, Time),
    ) -> StateChange {
        let all = self
            .0
            .get_or_init(|| PerCore::new(journals, |_| OfJournal::default()));
        let own = all.get(CoreId::new(mark.journal().number()));
        own.mark.fetch_max(mark.as_u64(), Ordering::Relaxed);
        if change != Change::default() {
            let count = if change.subdirectories > 0 {
                &own.came
            } else {
                &own.went
            };
            let subdirectories = change.subdirectories.unsigned_abs();
            // Release: a reader that sees this sees what was noted of the same name before, under
            // the bucket's lock; pairs with the Acquire in `counts`.
            count.fetch_add(subdirectories.into(), Ordering::Release);
        }
        // A time before 1970 counts as the first moment after it.
        let now = nanos(now).max(1);
        // Load first: within a tick of the clock the time that stat shows does not change.
        if own.time.load(Ordering::Relaxed) < now
            && own.time.fetch_max(now, Ordering::Relaxed) < now
        {
            StateChange::Made
        } else {
            StateChange::Found
        }
    }

    /// The handles noted, one per journal at most.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        let all = self.0.get().into_iter().flat_map(PerCore::iter);
        let marks = all.map(|own| Mark::from_u64(own.mark.load(Ordering::Relaxed)));
        marks.filter(|mark| !mark.is_none())
    }

    /// The latest time noted.
    pub(crate) fn latest(&self) -> Option<Time> {
        let all = self.0.get().into_iter().flat_map(PerCore::iter);
        let latest = all.map(|own| own.time.load(Ordering::Relaxed)).max();
        latest.filter(|&nanos| nanos > 0).map(time)
    }

    /// Subdirectories added and removed, over all slots.
    fn counts(&self) -> (u64, u64) {
        let all = self.0.get().into_iter().flat_map(PerCore::iter);
        all.fold((0, 0), |(came, went), own| {
            // Acquire: orders the second read after all of the first; pairs with the Release in
            // `note`.
            let came = came + own.came.load(Ordering::Acquire);
            (came, went + own.went.load(Ordering::Acquire))
        })
    }

    /// Subdirectories added less those removed since `take_subdirectories`; `None` if they change
    /// too often for a snapshot. The caller holds the directory shared.
    pub(crate) fn subdirectories(&self) -> Option<i64> {
        let mut before = self.counts();
        for _ in 0..LOOKS_MAX {
            let (came, went) = self.counts();
            if (came, went) == before {
                let more = came.checked_signed_diff(went);
                return Some(more.expect("a directory sees fewer than 2^63 changes"));
            }
            before = (came, went);
        }
        None
    }

    /// Like `subdirectories`, and resets the counts: the caller, which holds the directory
    /// exclusively, counts them elsewhere from now on.
    pub(crate) fn take_subdirectories(&mut self) -> i64 {
        let (came, went) = self.counts();
        for own in self.0.get().into_iter().flat_map(PerCore::iter) {
            // Load first: most are 0.
            if own.came.load(Ordering::Relaxed) | own.went.load(Ordering::Relaxed) != 0 {
                own.came.store(0, Ordering::Relaxed);
                own.went.store(0, Ordering::Relaxed);
            }
        }
        came.checked_signed_diff(went)
            .expect("a directory sees fewer than 2^63 changes")
    }

    /// The times were set: those noted do not count. The caller holds the directory exclusively.
    pub(crate) fn forget_times(&mut self) {
        for own in self.0.get().into_iter().flat_map(PerCore::iter) {
            own.time.store(0, Ordering::Relaxed);
        }
    }
}

/// Levels of the trie that a shortcut may skip.
const LEVELS: u32 = 3;
const SLOTS: usize = 1 << (3 * LEVELS);

/// Where walks may begin, by the upper bits of the hash.
#[derive(Debug, Default)]
pub(crate) struct Shortcuts(
    /// Node id and, in the low eight bits, its level; 0: at the first node. Written under the
    /// shared or exclusive lock by a task that has walked there; Relaxed: a node is found by its
    /// id, under locks.
    OnceLock<Box<[AtomicU64; SLOTS]>>,
);

fn slot(hash: u64) -> usize {
    to_usize(hash >> (64 - 3 * LEVELS))
}

impl Shortcuts {
    /// The lowest node known on the way to `hash`, and its level. The caller holds the directory.
    pub(crate) fn get(&self, hash: u64) -> Option<(Nid, u32)> {
        let word = self.0.get()?[slot(hash)].load(Ordering::Relaxed);
        let level = u32::try_from(word & 0xff).expect("the level is masked to eight bits");
        (word != 0).then_some((Nid(word >> 8), level))
    }

    /// A walk under the directory's lock passed a node at `level`.
    pub(crate) fn learn(&self, hash: u64, nid: Nid, level: u32) {
        if level == 0 || level > LEVELS {
            return;
        }
        let slots = self
            .0
            .get_or_init(|| Box::new([const { AtomicU64::new(0) }; SLOTS]));
        slots[slot(hash)].store(nid.0 << 8 | u64::from(level), Ordering::Relaxed);
    }

    /// The nodes below the one at `level` on the way to `hash` are about to be freed. The caller
    /// holds the directory exclusively.
    pub(crate) fn forget_below(&self, hash: u64, level: u32) {
        let Some(slots) = self.0.get() else {
            return;
        };
        let shift = 3 * LEVELS.saturating_sub(level + 1);
        let first = slot(hash) >> shift << shift;
        for word in &slots[first..first + (1 << shift)] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use dure_store::units::JournalId;

    use super::*;

    fn at(secs: i64) -> Time {
        Time {
            secs: secs.into(),
            nanos: 0.into(),
        }
    }

    #[test]
    fn each_journal_has_its_last_mark_and_all_the_latest_time() {
        let mut changes = SharedChanges::default();
        assert_eq!((changes.marks().count(), changes.latest()), (0, None));
        let mark = |journal, number| Mark::new(JournalId::new(journal).unwrap(), number);
        let note = |mark, time| changes.note(2, Change::default(), (mark, at(time)));
        assert_eq!(note(mark(1, 7), 5), StateChange::Made);
        assert_eq!(note(mark(0, 3), 4), StateChange::Made);
        assert_eq!(note(mark(1, 9), 5), StateChange::Found);
        assert_eq!(note(mark(1, 8), 1), StateChange::Found);
        assert_eq!(
            changes.marks().collect::<Vec<_>>(),
            [mark(0, 3), mark(1, 9)]
        );
        assert_eq!(changes.latest(), Some(at(5)));
        changes.forget_times();
        assert_eq!((changes.marks().count(), changes.latest()), (2, None));
    }

    #[test]
    fn subdirectories_of_all_journals_add_up() {
        let mut changes = SharedChanges::default();
        assert_eq!(changes.subdirectories(), Some(0));
        let note = |journal, subdirectories| {
            let mark = Mark::new(JournalId::new(journal).unwrap(), 1);
            changes.note(2, Change { subdirectories }, (mark, at(5)))
        };
        assert_eq!(note(0, 1), StateChange::Made);
        assert_eq!(note(0, 1), StateChange::Found, "within a tick");
        note(0, 0);
        assert_eq!(changes.subdirectories(), Some(2));
        for _ in 0..3 {
            note(1, -1);
        }
        assert_eq!(changes.subdirectories(), Some(-1));
        assert_eq!(changes.take_subdirectories(), -1);
        assert_eq!(changes.subdirectories(), Some(0));
        assert_eq!(changes.latest(), Some(at(5)), "times stay");
    }

    #[test]
    fn shortcuts_below_a_node_go_with_it() {
        let shortcuts = Shortcuts::default();
        let hash = |slots: [u64; 3]| slots[0] << 61 | slots[1] << 58 | slots[2] << 55 | 1 << 40;
        shortcuts.learn(hash([1, 2, 3]), Nid(30), 3);
        shortcuts.learn(hash([1, 2, 4]), Nid(20), 2);
        shortcuts.learn(hash([1, 3, 0]), Nid(10), 1);
        shortcuts.learn(hash([5, 0, 0]), Nid(11), 1);
        shortcuts.learn(hash([5, 0, 0]), Nid(99), 4);
        let known = || {
            [[1, 2, 3], [1, 2, 4], [1, 3, 0], [5, 0, 0], [7, 7, 7]].map(|slots| {
                shortcuts
                    .get(hash(slots))
                    .map(|(nid, level)| (nid.0, level))
            })
        };
        let all = [
            Some((30, 3)),
            Some((20, 2)),
            Some((10, 1)),
            Some((11, 1)),
            None,
        ];
        assert_eq!(known(), all);
        // The child of the bucket at level 2 is freed.
        shortcuts.forget_below(hash([1, 2, 3]), 2);
        assert_eq!(known(), [None, all[1], all[2], all[3], None]);
        shortcuts.forget_below(hash([1, 2, 0]), 1);
        assert_eq!(known(), [None, None, all[2], all[3], None]);
        shortcuts.forget_below(hash([1, 7, 0]), 0);
        assert_eq!(known(), [None, None, None, all[3], None]);
    }
}
