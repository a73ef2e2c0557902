//! A count with a bound that is exact, and that many cores change without a line that all write.
//!
//! **Problem.** What users have is counted on each write, and may never exceed a bound; one word would
//! be written by all cores that work for one user. **Structure.** Once cores contend for the word, each
//! takes a *share* of what is left aside, on a line of its own, and counts there. A share is taken only
//! while more than two for each core are left; nearer to the bound cores count in the word, and a
//! core that finds nothing left gathers what others have aside before it gives up.
//!
//! **Invariants.** The word has what is in use and what cores have aside, and no `take` raises it above
//! the bound: so what is in use is never above it, at any instant. Of a bound that is lowered, or of
//! [`BoundedCount::add`], the count may be above. A task is refused only if it has seen the word full
//! and nothing aside while nothing was on its way between them (a *move*): what moves is in the word,
//! but in no core's share, and a task that counted it as used would be refused though there is room.
//! **On a crash** nothing remains.

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::{CoreId, OnceLock, PerCore, backend, thread};

/// What a core takes aside at once.
const SHARE: i64 = if cfg!(dure_backend = "loom") { 1 } else { 64 };
/// How often a task that only asks for the sum looks again, while other cores move.
const ROUNDS: u32 = 16;
/// A move is under way, and one that was is not: of the lower and the upper half of a word.
const MOVES: u64 = 1;
const MOVED: u64 = (1 << 32) - 1;
/// In place of a core: none has counted yet.
const NOBODY: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct BoundedCount {
    /// In use, or aside. Written by all that count here. Release and Acquire: who sees the half of
    /// a move sees in `moves` that it has begun.
    used: AtomicI64,
    /// Moves under way, and above them how many have ended. Written with `used` only.
    moves: AtomicU64,
    /// The core that counted here last, and how often that was another one than before. Relaxed:
    /// statistics.
    last: AtomicU32,
    turns: AtomicU32,
    /// Written by the own core; by others only near the bound. Ordered as `used`. Never below 0.
    aside: OnceLock<PerCore<AtomicI64>>,
}

impl Default for BoundedCount {
    fn default() -> BoundedCount {
        BoundedCount {
            used: AtomicI64::new(0),
            moves: AtomicU64::new(0),
            last: AtomicU32::new(NOBODY),
            turns: AtomicU32::new(0),
            aside: OnceLock::new(),
        }
    }
}

impl BoundedCount {
    /// Counts `more` (at least 0) for a core of `cores`, if the sum is at most `bound` then. False:
    /// nothing was counted.
    pub fn take(&self, (core, cores): (CoreId, usize), more: i64, bound: i64) -> bool {
        assert!(more >= 0, "less is given, not taken");
        if more == 0 {
            return true;
        }
        let Some(aside) = self.aside(core, cores) else {
            return self.raise(more, bound);
        };
        // What is aside is in the word: a bound that was lowered below that holds at once.
        if self.used.load(Ordering::Relaxed) <= bound && subtract(aside.get(core), more) {
            return true;
        }
        let shares = || {
            let is_raised = self.raise(more + SHARE, bound);
            if is_raised {
                aside.get(core).fetch_add(SHARE, Ordering::AcqRel);
            }
            is_raised
        };
        if self.is_far(aside, more, bound) && self.moving(shares) {
            return true;
        }
        self.raise(more, bound) || self.gather(aside, more, bound)
    }

    /// Takes back what was counted.
    pub fn give(&self, (core, cores): (CoreId, usize), less: i64, bound: i64) {
        assert!(less >= 0, "more is taken, not given");
        if less == 0 {
            return;
        }
        let aside = self.aside(core, cores);
        let Some(aside) = aside.filter(|aside| self.is_far(aside, 0, bound)) else {
            self.used.fetch_sub(less, Ordering::AcqRel);
            return;
        };
        let own = aside.get(core);
        let now = own.fetch_add(less, Ordering::AcqRel) + less;
        // Two shares may stay, so that a core at the edge does not go to the word each time.
        if now > 2 * SHARE {
            self.moving(|| {
                if subtract(own, now - SHARE) {
                    self.used.fetch_sub(now - SHARE, Ordering::AcqRel);
                }
            });
        }
    }

    /// Counts `change` whatever the bound is.
    pub fn add(&self, change: i64) {
        self.used.fetch_add(change, Ordering::AcqRel);
    }

    /// What is in use; exact while no task counts.
    #[must_use]
    pub fn sum(&self) -> i64 {
        let sum = || {
            let aside = self.aside.get().map_or(0, all_of);
            self.used.load(Ordering::Acquire).wrapping_sub(aside)
        };
        for _ in 0..ROUNDS {
            let moves = self.moves.load(Ordering::Acquire);
            let found = sum();
            if self.is_unmoved_since(moves) {
                return found;
            }
            thread::yield_now();
        }
        sum()
    }

    /// What cores have aside is in the word again, but for what tasks take meanwhile.
    pub fn settle(&self) {
        if let Some(aside) = self.aside.get() {
            self.collect(aside);
        }
    }

    /// What cores have aside, if they contend for the word.
    fn aside(&self, core: CoreId, cores: usize) -> Option<&PerCore<AtomicI64>> {
        if let Some(aside) = self.aside.get() {
            return Some(aside);
        }
        let (own, last) = (u32::from(core.number()), self.last.load(Ordering::Relaxed));
        if last == own {
            return None;
        }
        self.last.store(own, Ordering::Relaxed);
        if last == NOBODY {
            return None;
        }
        if self.turns.fetch_add(1, Ordering::Relaxed) < backend::CONTENDED_AFTER {
            return None;
        }
        let made = || PerCore::new(cores, |_| AtomicI64::new(0));
        Some(self.aside.get_or_init(made))
    }

    /// Whether there is enough left for every core to have two shares aside.
    fn is_far(&self, aside: &PerCore<AtomicI64>, more: i64, bound: i64) -> bool {
        let cores = i64::try_from(aside.len()).expect("a machine has few cores");
        let used = self.used.load(Ordering::Relaxed);
        let left = bound.saturating_sub(used).saturating_sub(more);
        left > 2 * SHARE * cores
    }

    fn raise(&self, more: i64, bound: i64) -> bool {
        let raised = |used: i64| used.checked_add(more).filter(|sum| *sum <= bound);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.used.fetch_update(set, fetch, raised).is_ok()
    }

    /// Takes `more` after what other cores have aside was given back.
    #[cold]
    fn gather(&self, aside: &PerCore<AtomicI64>, more: i64, bound: i64) -> bool {
        loop {
            self.collect(aside);
            let moves = self.moves.load(Ordering::Acquire);
            let is_empty = all_of(aside) == 0;
            if self.raise(more, bound) {
                return true;
            }
            // False EDQUOT without: another core has swapped what was aside, and not yet lowered the
            // word by it. A move is a few instructions, and each turn needs another one.
            if is_empty && self.is_unmoved_since(moves) {
                return false;
            }
            thread::yield_now();
        }
    }

    fn collect(&self, aside: &PerCore<AtomicI64>) {
        // Tasks that are refused one after the other do not move anything.
        if all_of(aside) == 0 {
            return;
        }
        self.moving(|| {
            let had = aside.iter().map(|own| own.swap(0, Ordering::AcqRel));
            let had: i64 = had.sum();
            self.used.fetch_sub(had, Ordering::AcqRel);
        });
    }

    /// Does what for a while leaves the word too high.
    fn moving<R>(&self, moves: impl FnOnce() -> R) -> R {
        self.moves.fetch_add(MOVES, Ordering::AcqRel);
        let done = moves();
        self.moves.fetch_add(MOVED, Ordering::AcqRel);
        done
    }

    /// Nothing has moved since `before` was read, or was moving then.
    fn is_unmoved_since(&self, before: u64) -> bool {
        let is_at_rest = before & u64::from(u32::MAX) == 0;
        is_at_rest && self.moves.load(Ordering::Acquire) == before
    }
}

/// What cores have aside.
fn all_of(aside: &PerCore<AtomicI64>) -> i64 {
    aside.iter().map(|own| own.load(Ordering::Acquire)).sum()
}

/// Takes all of `wanted`, or nothing.
fn subtract(aside: &AtomicI64, wanted: i64) -> bool {
    let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
    let left = |has: i64| (has >= wanted).then(|| has - wanted);
    aside.fetch_update(set, fetch, left).is_ok()
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;

    const CORES: usize = 4;

    fn at(core: u16) -> (CoreId, usize) {
        (CoreId::new(core), CORES)
    }

    /// A count for which cores have contended.
    fn contended(bound: i64) -> BoundedCount {
        let count = BoundedCount::default();
        for turn in 0..2 * backend::CONTENDED_AFTER + 2 {
            let core = u16::from(turn % 2 == 1);
            assert!(count.take(at(core), 1, bound));
            count.give(at(core), 1, bound);
        }
        assert!(count.aside.get().is_some());
        count
    }

    #[test]
    fn far_from_the_bound_a_core_that_has_a_share_writes_no_word() {
        let bound = 1 << 20;
        let count = contended(bound);
        assert!(count.take(at(2), 1, bound));
        let word = count.used.load(Ordering::Relaxed);
        for _ in 0..SHARE {
            assert!(count.take(at(2), 1, bound));
        }
        assert_eq!(count.used.load(Ordering::Relaxed), word);
        assert_eq!(count.sum(), SHARE + 1);
    }

    #[test]
    fn all_of_the_bound_can_be_had_and_no_more() {
        for bound in [0, 1, 7, 2 * SHARE * 4, 5000] {
            let count = contended(1 << 20);
            let mut taken = 0;
            while count.take(at(u16::try_from(taken % 4).unwrap()), 1, bound) {
                taken += 1;
            }
            assert_eq!((taken, count.sum()), (bound, bound));
            for core in 0..4 {
                assert!(!count.take(at(core), 1, bound), "bound {bound}");
            }
            if bound > 0 {
                count.give(at(3), 1, bound);
                assert!(count.take(at(0), 1, bound), "what another core gave");
            }
        }
    }

    #[test]
    fn a_lowered_bound_keeps_what_is_counted() {
        let count = contended(1 << 20);
        assert!(count.take(at(0), 500, 1 << 20));
        assert!(!count.take(at(1), 1, 100));
        count.give(at(1), 450, 100);
        assert!(count.take(at(1), 50, 100) && !count.take(at(1), 1, 100));
        count.add(7);
        count.settle();
        assert_eq!(
            (count.sum(), count.used.load(Ordering::Relaxed)),
            (107, 107)
        );
    }
}
