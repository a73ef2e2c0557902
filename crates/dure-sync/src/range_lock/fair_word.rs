//! A lock in one word that is handed over in order of arrival.
//!
//! **Problem.** A word that tasks compete for by exchanges (pNOVA, hybridF2FS) starves the slow:
//! readers keep a writer out for ever, or a far core never wins the line.
//!
//! **Structure.** The low half of a 64-bit atomic is the published 32-bit word; a [`Discipline`]
//! says what it means: a writer bit and 31 bits of readers ([`super::segment`]), or one bit per
//! page ([`super::bitmap`]). The high half has two bits: WAITED (tasks wait in the queue) and
//! RETIRED (the word is out of use). A task that finds the word free and not waited for takes it by
//! one exchange, and releases it by one subtraction. All others join a FIFO queue under a mutex,
//! shared by a few words; a release that sees WAITED takes the word on behalf of the tasks whose
//! turn it is, and then wakes them.
//!
//! # Why no task starves
//! **Invariants.** WAITED is set exactly while the queue has an entry of this word; it changes only
//! under the queue's mutex. While it is set, only the holder of that mutex adds to the word. An
//! entry is granted before any later entry that conflicts with it, so a task waits only for tasks
//! that came earlier. Since waiting and releasing are exchanges of one word, no wake-up is lost.
//! **Crash.** Nothing is kept.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::range::{Patience, WaitTallies};
use super::waiter::{Waiter, grant_all};
use super::{Arc, QUEUE_RANK};
use crate::Mutex;
use crate::atomic::{AtomicU64, Ordering};
use crate::backend;
use crate::waiting::Waiting;

/// The queue has entries of this word.
const WAITED: u64 = 1 << 32;
/// The word covers no part of a file at present.
const RETIRED: u64 = 1 << 33;
const WORD_MASK: u64 = 0xffff_ffff;

/// What the 32 bits of a word mean.
pub(super) trait Discipline: std::fmt::Debug + 'static {
    /// What a task wants of one word.
    type Need: Copy + std::fmt::Debug + Send;

    /// Whether `need` can be added to `word`.
    fn fits(word: u32, need: Self::Need) -> bool;
    /// What `need` adds to a word while it is held.
    fn amount(need: Self::Need) -> u32;
    /// Whether the two conflict: they cannot be held together.
    fn conflicts(one: Self::Need, other: Self::Need) -> bool;
}

/// How an attempt to take a word ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Outcome {
    Taken,
    /// Another task holds or awaits it, and the caller does not wait.
    Busy,
    /// The word no longer covers what the caller wants: look it up again.
    Retired,
}

/// A task in the queue.
#[derive(Debug)]
struct Entry<D: Discipline> {
    /// The index of its word among those that share the queue.
    place: usize,
    need: D::Need,
    waiter: Arc<Waiter>,
}

/// The tasks that wait for one of a few words, in order of arrival.
#[derive(Debug)]
pub(super) struct Queue<D: Discipline>(Mutex<QUEUE_RANK, VecDeque<Entry<D>>>);

impl<D: Discipline> Queue<D> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Runs `act` under the queue's mutex, so that no task enters or leaves the queue.
    pub(super) fn closed<R>(&self, act: impl FnOnce() -> R) -> R {
        let _entries = self.0.lock();
        act()
    }
}

/// A word and its control bits; see the module.
#[derive(Debug)]
pub(super) struct FairWord<D: Discipline> {
    /// Written by every task that takes or releases the word. All changes except `put_in_use` are
    /// read-modify-writes, so that every Acquire sees all earlier Releases.
    state: AtomicU64,
    _discipline: PhantomData<fn() -> D>,
}

/// The published word.
#[inline]
fn word(state: u64) -> u32 {
    u32::try_from(state & WORD_MASK).expect("the masked word has 32 bits")
}

#[inline]
fn amount<D: Discipline>(need: D::Need) -> u64 {
    u64::from(D::amount(need))
}

impl<D: Discipline> FairWord<D> {
    /// A word that starts as `word`: already held if not 0.
    pub(super) fn new(word: u32) -> Self {
        Self {
            state: AtomicU64::new(u64::from(word)),
            _discipline: PhantomData,
        }
    }

    /// The published word, at this moment.
    pub(super) fn value(&self) -> u32 {
        // Relaxed: a hint.
        word(self.state.load(Ordering::Relaxed))
    }

    /// Takes the word if `need` fits and no task waits.
    #[inline]
    pub(super) fn try_take(&self, need: D::Need) -> Outcome {
        // Relaxed: a first guess, confirmed by the exchange.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & (WAITED | RETIRED) != 0 || !D::fits(word(state), need) {
                return if state & RETIRED == 0 {
                    Outcome::Busy
                } else {
                    Outcome::Retired
                };
            }
            match self.add(state, amount::<D>(need)) {
                Ok(()) => return Outcome::Taken,
                Err(now) => state = now,
            }
        }
    }

    /// Takes the word, waiting for its turn in `queue` as `place`. `in_use` returns, under the
    /// queue's mutex, whether the word still covers what the caller wants.
    #[inline]
    pub(super) fn take(
        &self,
        need: D::Need,
        patience: Patience<'_>,
        queue: &Queue<D>,
        place: usize,
        in_use: impl Fn() -> bool,
    ) -> Outcome {
        match (self.try_take(need), patience) {
            (Outcome::Busy, Patience::Wait(tallies)) => {
                self.take_slow(need, tallies, queue, place, in_use)
            }
            (outcome, _) => outcome,
        }
    }

    #[cold]
    fn take_slow(
        &self,
        need: D::Need,
        tallies: &WaitTallies,
        queue: &Queue<D>,
        place: usize,
        in_use: impl Fn() -> bool,
    ) -> Outcome {
        let _waiting = Waiting::on_lock(QUEUE_RANK);
        if self.spin(need) == Outcome::Taken {
            return Outcome::Taken;
        }
        let mut entries = queue.0.lock();
        let must_wait = entries
            .iter()
            .any(|entry| entry.place == place && D::conflicts(entry.need, need));
        // Relaxed: a first guess, confirmed by the exchanges.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & RETIRED != 0 || !in_use() {
                return Outcome::Retired;
            }
            let step = if !must_wait && D::fits(word(state), need) {
                match self.add(state, amount::<D>(need)) {
                    Ok(()) => return Outcome::Taken,
                    Err(now) => Err(now),
                }
            } else {
                self.mark_waited(state)
            };
            match step {
                Ok(()) => break,
                Err(now) => state = now,
            }
        }
        let waiter = Waiter::new();
        entries.push_back(Entry {
            place,
            need,
            waiter: Arc::clone(&waiter),
        });
        drop(entries);
        waiter.wait(tallies);
        Outcome::Taken
    }

    /// Spins a bounded number of turns for a word that no task queues for.
    fn spin(&self, need: D::Need) -> Outcome {
        let mut turns = backend::SPIN_TURNS;
        while turns > 0 {
            turns -= 1;
            // Relaxed: only a hint, the taking itself is an Acquire.
            let state = self.state.load(Ordering::Relaxed);
            if state & (WAITED | RETIRED) != 0 {
                break;
            }
            if D::fits(word(state), need) && self.try_take(need) == Outcome::Taken {
                return Outcome::Taken;
            }
            backend::spin_hint();
        }
        Outcome::Busy
    }

    /// Tries once to add to the word.
    #[inline]
    fn add(&self, state: u64, amount: u64) -> Result<(), u64> {
        // Acquire: pairs with the Releases in `release` of all earlier holders.
        self.state
            .compare_exchange_weak(state, state + amount, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| ())
    }

    fn mark_waited(&self, state: u64) -> Result<(), u64> {
        // Relaxed: the bit publishes nothing, the queue's mutex does.
        self.state
            .compare_exchange_weak(state, state | WAITED, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| ())
    }

    /// Releases the word and grants it to the waiters whose turn it is.
    #[inline]
    pub(super) fn release(&self, need: D::Need, queue: &Queue<D>, place: usize) {
        // Release: pairs with the Acquire in `add`; later holders come after our accesses.
        let before = self.state.fetch_sub(amount::<D>(need), Ordering::Release);
        assert!(
            word(before) >= D::amount(need) && before & RETIRED == 0,
            "a range is released that is not held: word {before:#x}, {need:?}"
        );
        if before & WAITED != 0 {
            self.hand_over(queue, place);
        }
    }

    /// Takes the word on behalf of all waiting tasks whose turn it is.
    #[cold]
    fn hand_over(&self, queue: &Queue<D>, place: usize) {
        let mut granted = Vec::new();
        let mut blocked: Vec<D::Need> = Vec::new();
        let mut entries = queue.0.lock();
        entries.retain(|entry| {
            if entry.place != place {
                return true;
            }
            let first = !blocked
                .iter()
                .any(|earlier| D::conflicts(*earlier, entry.need));
            if first && self.add_if_fits(entry.need) {
                granted.push(Arc::clone(&entry.waiter));
                return false;
            }
            blocked.push(entry.need);
            true
        });
        if blocked.is_empty() {
            // Relaxed: the bit publishes nothing. The queue has no entry of this word any more.
            self.state.fetch_and(!WAITED, Ordering::Relaxed);
        }
        drop(entries);
        grant_all(granted);
    }

    fn add_if_fits(&self, need: D::Need) -> bool {
        // Relaxed: a first guess, confirmed by the exchange.
        let mut state = self.state.load(Ordering::Relaxed);
        while D::fits(word(state), need) {
            match self.add(state, amount::<D>(need)) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Puts the word out of use if no task holds or awaits it; returns whether it did.
    pub(super) fn retire(&self) -> bool {
        // Acquire: pairs with the Release in `release`, so that a task that then finds this part of
        // the file without a word comes after its last holder.
        self.state
            .compare_exchange(0, RETIRED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Puts a retired word in use again, with the value `word`.
    pub(super) fn put_in_use(&self, word: u32) {
        debug_assert_ne!(
            self.state.load(Ordering::Relaxed) & RETIRED,
            0,
            "only the one who retired a word changes it"
        );
        // Release: pairs with the Acquire in `add`; publishes the key of the chunk, and that all
        // earlier holders are gone.
        self.state.store(u64::from(word), Ordering::Release);
    }
}
