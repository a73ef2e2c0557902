//! A lock in one word that hands itself over in order of arrival.
//!
//! **Problem.** A word that tasks fight for (pNOVA, hybridF2FS) starves whoever is slow: readers
//! keep a writer out for ever, or a far core never wins the line. **Structure.** The low half of a
//! 64-bit atomic is the published 32-bit word; a [`Discipline`] says what it means: a writer bit
//! and 31 bits of readers ([`super::segment`]), or one bit per page ([`super::bitmap`]). The high
//! half has two bits: tasks wait in the queue; the word is out of use. Who finds the word free and
//! nobody waiting takes it by one exchange, and gives it back by one subtraction. Everybody else
//! goes into a FIFO queue under a mutex, shared by a few words; a release that sees the bit takes
//! the word on behalf of those whose turn it is, and then wakes them.
//!
//! **Invariants.** The bit WAITED is set exactly while the queue has an entry of this word; it
//! changes only under the queue's mutex. While it is set, only the queue's mutex holder adds to
//! the word. An entry is granted before any later entry that conflicts with it. So every wait ends
//! after those that came earlier. Since waiting and releasing are exchanges of one word, no
//! wake-up is lost. **Crash.** Nothing is kept.

use std::collections::VecDeque;
use std::marker::PhantomData;

use super::range::Patience;
use super::waiter::{Waiter, grant_all};
use super::{Arc, QUEUE_RANK};
use crate::Mutex;
use crate::atomic::{AtomicU64, Ordering};
use crate::backend;

/// Entries of this word stand in the queue.
const WAITED: u64 = 1 << 32;
/// The word belongs to no part of a file at present.
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
    /// Whether the two cannot be held together.
    fn conflicts(one: Self::Need, other: Self::Need) -> bool;
}

/// How an attempt to take a word ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Outcome {
    Taken,
    /// Someone else has or awaits it, and the caller does not wait.
    Busy,
    /// The word is no longer what the caller thinks: look it up again.
    Retired,
}

/// A task in the queue.
#[derive(Debug)]
struct Entry<D: Discipline> {
    /// Which of the words that share the queue.
    place: usize,
    need: D::Need,
    waiter: Arc<Waiter>,
}

/// Those who wait for one of a few words, in order of arrival.
#[derive(Debug)]
pub(super) struct Queue<D: Discipline>(Mutex<QUEUE_RANK, VecDeque<Entry<D>>>);

impl<D: Discipline> Queue<D> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Runs `act` while nobody can enter or leave the queue.
    pub(super) fn closed<R>(&self, act: impl FnOnce() -> R) -> R {
        let _entries = self.0.lock();
        act()
    }
}

/// A word and its control bits; see the module.
#[derive(Debug)]
pub(super) struct FairWord<D: Discipline> {
    /// Written by every taker and releaser. All changes but `put_in_use` are read-modify-writes,
    /// so that every Acquire sees all earlier Releases.
    state: AtomicU64,
    _discipline: PhantomData<fn() -> D>,
}

/// The published word.
#[inline]
fn word(state: u64) -> u32 {
    u32::try_from(state & WORD_MASK).expect("32 bits remain")
}

#[inline]
fn amount<D: Discipline>(need: D::Need) -> u64 {
    u64::from(D::amount(need))
}

impl<D: Discipline> FairWord<D> {
    /// A word that holds `word` already.
    pub(super) fn new(word: u32) -> Self {
        Self {
            state: AtomicU64::new(u64::from(word)),
            _discipline: PhantomData,
        }
    }

    /// The published word, at this moment.
    pub(super) fn value(&self) -> u32 {
        // Relaxed: a look.
        word(self.state.load(Ordering::Relaxed))
    }

    /// Takes the word if it is free and nobody waits.
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

    /// Takes the word, waiting for its turn in `queue` as `place`. `in_use` says, under the
    /// queue's mutex, whether the word still is what the caller means.
    #[inline]
    pub(super) fn take(
        &self,
        need: D::Need,
        patience: Patience,
        queue: &Queue<D>,
        place: usize,
        in_use: impl Fn() -> bool,
    ) -> Outcome {
        match (self.try_take(need), patience) {
            (Outcome::Busy, Patience::Wait) => self.take_slow(need, queue, place, in_use),
            (outcome, _) => outcome,
        }
    }

    #[cold]
    fn take_slow(
        &self,
        need: D::Need,
        queue: &Queue<D>,
        place: usize,
        in_use: impl Fn() -> bool,
    ) -> Outcome {
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
        waiter.wait();
        Outcome::Taken
    }

    /// Waits a little for a word that nobody queues for.
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

    /// One step into the word.
    #[inline]
    fn add(&self, state: u64, amount: u64) -> Result<(), u64> {
        // Acquire: pairs with the Release in `release` of all who held the word before.
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

    /// Gives the word back and hands it to those whose turn it is.
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

    /// Takes the word on behalf of all waiting tasks that can have it.
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
            // Relaxed: the bit publishes nothing. Nobody of this word is left in the queue.
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

    /// Puts a word out of use that nobody holds or awaits; says whether that was so.
    pub(super) fn retire(&self) -> bool {
        // Acquire: pairs with the Release in `release`, so that whoever is told by us that this
        // part of the file is untouched comes after its last holder.
        self.state
            .compare_exchange(0, RETIRED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Puts a retired word in use again, holding `word` already.
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
