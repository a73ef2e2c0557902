//! How many pages are dirty, by partition.
//!
//! **Problem.** The pages of an inode count for the partition on whose list it is, also when a task
//! of another one writes or removes it: tasks that use different files would write one line.
//! **Structure.** The tasks and the worker of a partition count on its own line. A task of another
//! partition notes what it changes in the row of its own partition; the worker moves such notes to
//! the count ([`DirtyCounts::gather`]).
//!
//! **Invariants.** The count and the notes of a partition add up to the dirty pages of the inodes
//! on its list, and those in write-back (twice if they are both): they change under the lock that
//! that the page's state changes under. Each of them by itself may be below 0. **On a crash**
//! nothing remains.

use dure_sync::atomic::{AtomicI64, Ordering};
use dure_sync::{CoreId, OnceLock, PerCore};

/// What the tasks of one partition have changed for all others: by partition, and in all.
#[derive(Debug)]
struct Notes {
    all: AtomicI64,
    of: Box<[AtomicI64]>,
}

impl Notes {
    fn new(partitions: usize) -> Notes {
        Notes {
            all: AtomicI64::new(0),
            of: (0..partitions).map(|_| AtomicI64::new(0)).collect(),
        }
    }
}

/// Counts that publish nothing: all accesses are Relaxed.
#[derive(Debug, Default)]
struct Partition {
    pages: AtomicI64,
    /// Made by the first task that changes the count of another partition.
    notes: OnceLock<Notes>,
}

/// The dirty pages of all partitions.
#[derive(Debug)]
pub(super) struct DirtyCounts(PerCore<Partition>);

impl DirtyCounts {
    pub(super) fn new(partitions: usize) -> DirtyCounts {
        DirtyCounts(PerCore::new(partitions, |_| Partition::default()))
    }

    /// A task of partition `by` makes `pages` pages of partition `of` dirty, or, below 0, clean.
    /// Returns how many there are, as far as the tasks of `by` have counted them.
    #[inline]
    pub(super) fn add(&self, by: CoreId, of: CoreId, pages: i64) -> u64 {
        let own = self.0.get(by);
        let now = if by == of {
            own.pages.fetch_add(pages, Ordering::Relaxed) + pages
        } else {
            let notes = own.notes.get_or_init(|| Notes::new(self.0.len()));
            notes.all.fetch_add(pages, Ordering::Relaxed);
            notes.of[of.index()].fetch_add(pages, Ordering::Relaxed) + pages
        };
        known(now)
    }

    /// Dirty pages of a partition.
    pub(super) fn of(&self, core: CoreId) -> u64 {
        let noted = self.notes().map(|notes| &notes.of[core.index()]);
        let noted: i64 = noted.map(|pages| pages.load(Ordering::Relaxed)).sum();
        known(self.0.get(core).pages.load(Ordering::Relaxed) + noted)
    }

    /// Dirty pages of all partitions.
    pub(super) fn all(&self) -> u64 {
        let counted = self.0.iter().map(|own| own.pages.load(Ordering::Relaxed));
        let noted = self.notes().map(|notes| notes.all.load(Ordering::Relaxed));
        known(counted.sum::<i64>() + noted.sum::<i64>())
    }

    /// Moves to the count of a partition what tasks of others have noted, so that its own tasks
    /// see it.
    pub(super) fn gather(&self, core: CoreId) {
        for notes in self.notes() {
            let noted = &notes.of[core.index()];
            if noted.load(Ordering::Relaxed) != 0 {
                let pages = noted.swap(0, Ordering::Relaxed);
                notes.all.fetch_sub(pages, Ordering::Relaxed);
                let count = &self.0.get(core).pages;
                count.fetch_add(pages, Ordering::Relaxed);
            }
        }
    }

    fn notes(&self) -> impl Iterator<Item = &Notes> {
        self.0.iter().filter_map(|own| own.notes.get())
    }
}

/// A number of pages that was put together while others change it.
fn known(pages: i64) -> u64 {
    u64::try_from(pages).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_change_counts_for_the_partition_of_the_file() {
        let counts = DirtyCounts::new(3);
        let [own, other, third] = [0, 1, 2].map(CoreId::new);
        assert_eq!(counts.add(own, own, 10), 10);
        assert_eq!(counts.add(other, own, 5), 5);
        assert_eq!(counts.add(third, own, -9), 0);
        assert_eq!(counts.add(own, own, 1), 11);
        let sums = || [own, other, third].map(|core| counts.of(core));
        assert_eq!((sums(), counts.all()), ([7, 0, 0], 7));
        counts.gather(own);
        assert_eq!((sums(), counts.all()), ([7, 0, 0], 7));
        assert_eq!(counts.add(own, own, -7), 0, "its own tasks know of it");
        assert_eq!((sums(), counts.all()), ([0; 3], 0));
    }
}
