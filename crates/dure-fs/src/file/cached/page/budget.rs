//! The bound on page memory, without a line that every core writes.
//!
//! **Problem.** One counter of used bytes would be written by every core for every new page.
//! **Structure.** What is left of the budget lies in one pool and in a stash per core. A core takes
//! from its stash, fills it from the pool by a batch, and takes from other stashes when the pool is
//! empty. **Invariants.** Pool + stashes + what was taken = the budget, always; taking is all or
//! nothing and comes before the memory is used, so the bound is never exceeded; near the bound a
//! task may find less than there is while another one takes. **On a crash**
//! nothing remains.

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, CoreId, PerCore};

/// Pages a core takes from the pool at once, unless the budget is small.
const BATCH_PAGES: u64 = 64;

/// Counts pages that may still be put in memory.
#[derive(Debug)]
pub(crate) struct CacheBudget {
    /// Written by cores that refill or overflow their stash. Relaxed everywhere: the count
    /// publishes nothing, it only has to be exact.
    pool: CachePadded<AtomicU64>,
    /// Written by the own core; by others only when the pool is empty. Relaxed for the same reason.
    stashes: PerCore<AtomicU64>,
    pages_max: u64,
    batch: u64,
}

impl CacheBudget {
    /// A budget of `pages_max` pages for `cores` cores.
    pub(crate) fn new(cores: usize, pages_max: u64) -> CacheBudget {
        assert!(pages_max > 0, "a cache of no pages can hold nothing");
        let cores_u64 = dure_store::units::to_u64(cores);
        CacheBudget {
            pool: CachePadded::new(AtomicU64::new(pages_max)),
            stashes: PerCore::new(cores, |_| AtomicU64::new(0)),
            pages_max,
            batch: (pages_max / (8 * cores_u64)).min(BATCH_PAGES),
        }
    }

    /// The whole budget.
    pub(crate) fn pages_max(&self) -> u64 {
        self.pages_max
    }

    /// Takes credit for `pages` pages, all or nothing.
    pub(crate) fn take(&self, core: CoreId, pages: u64) -> bool {
        if pages == 0 || subtract(self.stashes.get(core), pages) {
            return true;
        }
        if subtract(&self.pool, pages + self.batch) {
            add(self.stashes.get(core), self.batch);
            return true;
        }
        subtract(&self.pool, pages) || self.gather(core, pages)
    }

    /// Gives credit back.
    pub(crate) fn give(&self, core: CoreId, pages: u64) {
        if pages == 0 {
            return;
        }
        let stash = self.stashes.get(core);
        add(stash, pages);
        // Two batches may stay, so that a core at the edge does not go to the pool each time.
        let surplus = available(stash.load(Ordering::Relaxed)).saturating_sub(2 * self.batch);
        if surplus > 0 && subtract(stash, surplus) {
            add(&self.pool, surplus);
        }
    }

    /// Pages in use or promised to a caller: exact while no task takes or gives any.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        let stashed: u64 = self
            .stashes
            .iter()
            .map(|stash| available(stash.load(Ordering::Relaxed)))
            .sum();
        self.pages_max
            .saturating_sub(stashed + available(self.pool.load(Ordering::Relaxed)))
    }

    /// Collects credit that lies in other cores' stashes.
    fn gather(&self, core: CoreId, pages: u64) -> bool {
        let mut got = 0;
        for source in self.stashes.iter().chain(std::iter::once(&*self.pool)) {
            got += subtract_some(source, pages - got);
            if got == pages {
                return true;
            }
        }
        self.give(core, got);
        false
    }
}

fn add(count: &AtomicU64, pages: u64) {
    count.fetch_add(pages, Ordering::Relaxed);
}

/// What there is: a task that takes too much gives it back at once, and the count is below zero
/// meanwhile.
fn available(count: u64) -> u64 {
    if count > u64::MAX / 2 { 0 } else { count }
}

/// Takes `pages` if there are so many. One update that no other task can make fail: where many do
/// so at the same time, each moves the line once.
fn subtract(count: &AtomicU64, pages: u64) -> bool {
    // Load first: where there is too little the line stays shared.
    if available(count.load(Ordering::Relaxed)) < pages {
        return false;
    }
    if available(count.fetch_sub(pages, Ordering::Relaxed)) >= pages {
        return true;
    }
    add(count, pages);
    false
}

/// Takes up to `pages`; returns how many.
fn subtract_some(count: &AtomicU64, pages: u64) -> u64 {
    let some = available(count.load(Ordering::Relaxed)).min(pages);
    if some > 0 && subtract(count, some) {
        some
    } else {
        0
    }
}
