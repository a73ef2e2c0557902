//! Lock ranks: assertions that exclude a cycle of tasks that wait for each other's locks.
//!
//! **Problem.** A deadlock needs locks taken in two orders; tests rarely hit one. **Structure.**
//! Each lock type carries a rank; a task remembers which ranks it holds, and may take only a lock
//! with a strictly higher rank. Locks of one rank are taken with the `_ordered` calls, whose
//! callers promise an order of their own (sorted by number). [`Held`] is the evidence that a lock
//! of a rank is held, for functions that need it. **Invariants.** The set of a task is empty when
//! it ends. **Crash.** Nothing is kept.

use std::cell::Cell;

use crate::backend::RANKS_CHECKED;

/// Evidence that a lock of rank `RANK` is held: only a guard provides it.
#[derive(Debug)]
pub struct Held<const RANK: u8> {
    _only_from_guards: (),
}

impl<const RANK: u8> Held<RANK> {
    pub(crate) const fn new() -> Self {
        Self {
            _only_from_guards: (),
        }
    }
}

/// A rank that a task holds without a lock, for something that others wait for as for a lock: the
/// end of an open handle, for instance.
#[derive(Debug)]
pub struct HeldRank<const RANK: u8> {
    /// It stays with its task.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl<const RANK: u8> HeldRank<RANK> {
    /// Holds the rank, which must be higher than all that the task holds.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::check();
        acquired(RANK);
        Self {
            _not_send: std::marker::PhantomData,
        }
    }

    /// Asserts that the task may wait now for holders of this rank.
    #[inline]
    pub fn check() {
        check(RANK, Order::Rising);
    }
}

impl<const RANK: u8> Default for HeldRank<RANK> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const RANK: u8> Drop for HeldRank<RANK> {
    #[inline]
    fn drop(&mut self) {
        released(RANK);
    }
}

/// How a lock relates to held locks of the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// No lock of the same rank may be held.
    Rising,
    /// The caller promises an order among locks of the same rank.
    Promised,
}

/// How many locks of each rank a task holds.
#[derive(Debug)]
struct HeldRanks {
    count: [Cell<u16>; 256],
    /// Bit r % 64 of word r / 64 is set while `count[r]` is not zero.
    present: [Cell<u64>; 4],
}

impl HeldRanks {
    const fn new() -> Self {
        Self {
            count: [const { Cell::new(0) }; 256],
            present: [const { Cell::new(0) }; 4],
        }
    }

    fn highest(&self) -> Option<u8> {
        let word = (0..4_u8)
            .rev()
            .find(|word| self.present[usize::from(*word)].get() != 0)?;
        let bit = self.present[usize::from(word)].get().ilog2();
        Some(word * 64 + u8::try_from(bit).expect("a word has 64 bits"))
    }

    fn add(&self, rank: u8) {
        let count = &self.count[usize::from(rank)];
        count.set(
            count
                .get()
                .checked_add(1)
                .expect("fewer than 65536 locks of a rank are held"),
        );
        let word = &self.present[usize::from(rank / 64)];
        word.set(word.get() | 1 << (rank % 64));
    }

    fn remove(&self, rank: u8) {
        let count = &self.count[usize::from(rank)];
        count.set(
            count
                .get()
                .checked_sub(1)
                .expect("a lock is released by the task that took it"),
        );
        if count.get() == 0 {
            let word = &self.present[usize::from(rank / 64)];
            word.set(word.get() & !(1 << (rank % 64)));
        }
    }
}

crate::task_local! {
    static HELD: HeldRanks = const { HeldRanks::new() };
}

/// Asserts that a lock of `rank` may be taken now.
#[inline]
pub(crate) fn check(rank: u8, order: Order) {
    if RANKS_CHECKED {
        check_slow(rank, order);
    }
}

fn check_slow(rank: u8, order: Order) {
    if let Some(highest) = HELD.with(HeldRanks::highest) {
        let allowed = match order {
            Order::Rising => highest < rank,
            Order::Promised => highest <= rank,
        };
        assert!(
            allowed,
            "lock rank violation: taking rank {rank} ({order:?}) while holding rank {highest}; \
             take the lower rank first (docs/design/locking.md)"
        );
    }
}

/// Notes that a lock of `rank` was taken.
#[inline]
pub(crate) fn acquired(rank: u8) {
    if RANKS_CHECKED {
        HELD.with(|held| held.add(rank));
    }
}

/// Notes that a lock of `rank` was released.
#[inline]
pub(crate) fn released(rank: u8) {
    if RANKS_CHECKED {
        HELD.with(|held| held.remove(rank));
    }
}
