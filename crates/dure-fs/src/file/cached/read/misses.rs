//! Misses that are under way: tasks that miss the same page wait for one read of it.
//!
//! **Problem.** When many tasks come to a page that has just left memory, or was never there, each
//! would read it: as many requests for one page, and as much memory. **Structure.** A task that is about
//! to read pages lists them; another one that misses one of them waits until that read has ended, and
//! looks again. The lists are cut by file and place, so that readers of one file at random meet in few.
//!
//! # Invariants
//! A task waits once, and then reads for itself what it does not find: a failed read is told by the
//! device to each, and a page that was evicted at once keeps no task waiting. A task holds no lock
//! when it waits: where tasks queue for ranges, readers hold one, and each reads for itself.
//! **On a crash** nothing is lost.

use std::ops::Range;

use dure_store::units::{Ino, to_usize};
use dure_sync::{Arc, CachePadded, Mutex, MutexGuard};

use super::miss::RUN_PAGES_MAX;
use crate::ranks::{MISS, MISS_LIST};

/// Cores for which there is a list.
const CORES_OF_LIST: usize = 4;

/// A read of pages; held by the task that makes it.
#[derive(Debug, Default)]
pub(super) struct Miss(Mutex<MISS, ()>);

/// Pages of a file that are being read.
#[derive(Debug)]
struct Listed {
    ino: Ino,
    pages: Range<u64>,
    miss: Arc<Miss>,
}

type List = Mutex<MISS_LIST, Vec<Listed>>;

/// The misses of all files.
#[derive(Debug)]
pub(crate) struct Misses {
    /// [MISS_LIST] By file and place; a power of two.
    lists: Box<[CachePadded<List>]>,
    /// Tasks that have waited, or wait.
    #[cfg(test)]
    waiting: dure_sync::Counter,
}

/// The turn of a task to read pages: others that miss one of them wait for its end.
#[derive(Debug)]
pub(super) struct Turn<'m> {
    list: &'m List,
    miss: &'m Arc<Miss>,
    _held: MutexGuard<'m, MISS, ()>,
}

impl Misses {
    /// For a volume with `cores` parts.
    pub(crate) fn new(cores: usize) -> Misses {
        let lists = (cores / CORES_OF_LIST).next_power_of_two();
        Misses {
            lists: (0..lists).map(|_| CachePadded::default()).collect(),
            #[cfg(test)]
            waiting: dure_sync::Counter::new(),
        }
    }

    /// How many tasks have waited, or wait.
    #[cfg(test)]
    pub(in crate::file) fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.sum()).unwrap_or(0)
    }

    fn list(&self, ino: Ino, page: u64) -> &List {
        let mixed = (ino.0 ^ (page / RUN_PAGES_MAX) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.lists[to_usize(mixed >> 32) & (self.lists.len() - 1)]
    }

    /// Begins a read of these pages, which others that miss one of them wait for. `None`: another
    /// task has read the first one; the caller has waited for it, and need not tell other tasks.
    pub(super) fn begin<'m>(
        &'m self,
        ino: Ino,
        pages: Range<u64>,
        miss: &'m Arc<Miss>,
    ) -> Option<Turn<'m>> {
        let list = self.list(ino, pages.start);
        let mut listed = list.lock();
        let under_way = listed
            .iter()
            .find(|other| other.ino == ino && other.pages.contains(&pages.start));
        if let Some(under_way) = under_way {
            let miss = Arc::clone(&under_way.miss);
            drop(listed);
            #[cfg(test)]
            self.waiting.add(1);
            drop(miss.0.lock());
            return None;
        }
        // No other task knows it yet.
        let held = miss
            .0
            .try_lock()
            .expect("a miss that is not listed is free");
        listed.push(Listed {
            ino,
            pages,
            miss: Arc::clone(miss),
        });
        Some(Turn {
            list,
            miss,
            _held: held,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut listed = self.list.lock();
        listed.retain(|other| !Arc::ptr_eq(&other.miss, self.miss));
    }
}
