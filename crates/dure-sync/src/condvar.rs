//! Waiting for a condition that a lock protects.
//!
//! **Problem.** A task must give up a lock and sleep in one step, or it misses the change it waits
//! for. **Structure.** One word: a sequence number, and a bit "tasks may sleep" so that a
//! notification without sleepers costs one load. A waiter sets the bit and reads the word while it
//! holds the lock, releases the lock, and sleeps only while the word is unchanged. **Invariants.**
//! A notification after the change of the condition under the lock finds either the bit (and
//! changes the word, then wakes) or no waiter that could miss it; no task sleeps without the bit,
//! unless the task that cleared it is about to wake. Wake-ups without reason happen: callers loop.
//! **Crash.** Nothing is kept.

use std::time::Duration;

use crate::MutexGuard;
use crate::atomic::{AtomicU32, Ordering};
use crate::backend;
use crate::futex::{ANYONE, WaitOutcome};
use crate::waiting::Waiting;

/// Tasks may sleep.
const SLEEPERS: u32 = 1;
/// One step of the sequence number above the bit.
const STEP: u32 = 2;

/// A condition variable for use with one [`crate::Mutex`].
#[derive(Debug)]
pub struct Condvar {
    /// The bit is set by waiters under their lock, the number advanced by notifiers. It publishes
    /// nothing: the lock does. Relaxed suffices, since a notifier's view of the bit is ordered
    /// after the waiter's by the lock both took.
    word: AtomicU32,
}

impl Condvar {
    const_unless_loom! {
        /// A condition variable without waiters.
        pub fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    /// Gives up the lock, sleeps until notified (or woken without reason), takes the lock again.
    pub fn wait<'a, const RANK: u8, T>(
        &self,
        guard: MutexGuard<'a, RANK, T>,
    ) -> MutexGuard<'a, RANK, T> {
        self.sleep(guard, None).0
    }

    /// Like [`Condvar::wait`], for at most `timeout`; the second value says whether it passed.
    pub fn wait_timeout<'a, const RANK: u8, T>(
        &self,
        guard: MutexGuard<'a, RANK, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, RANK, T>, bool) {
        let (guard, outcome) = self.sleep(guard, Some(timeout));
        (guard, outcome == WaitOutcome::TimedOut)
    }

    fn sleep<'a, const RANK: u8, T>(
        &self,
        guard: MutexGuard<'a, RANK, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, RANK, T>, WaitOutcome) {
        let _waiting = Waiting::on_condition(RANK);
        // Relaxed: see `word`.
        let seen = self.word.fetch_or(SLEEPERS, Ordering::Relaxed) | SLEEPERS;
        let lock = MutexGuard::mutex(&guard);
        drop(guard);
        let outcome = backend::futex_wait(&self.word, seen, ANYONE, timeout);
        // The rank was legal when the lock was first taken; locks taken since would be a bug, and
        // are caught here.
        (lock.lock_ordered(), outcome)
    }

    /// Wakes one waiter, if there is one.
    pub fn notify_one(&self) {
        // Relaxed: see `word`.
        if self.word.load(Ordering::Relaxed) & SLEEPERS == 0 {
            return;
        }
        // Relaxed: see `word`.
        let after = self
            .word
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        if backend::futex_wake(&self.word, 1, ANYONE) == 0 {
            self.clear_bit(after);
        }
    }

    /// Called when no task slept at `seen`: spares later notifications their system call. A waiter
    /// that came since, and found the bit still set, may be asleep by now; it is woken for nothing
    /// rather than left asleep without the bit.
    fn clear_bit(&self, seen: u32) {
        let without = seen & !SLEEPERS;
        // Relaxed: see `word`.
        let cleared =
            self.word
                .compare_exchange(seen, without, Ordering::Relaxed, Ordering::Relaxed);
        if cleared.is_ok() {
            backend::futex_wake(&self.word, u32::MAX, ANYONE);
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        // Relaxed: see `word`.
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & SLEEPERS != 0 {
            let next = seen.wrapping_add(STEP) & !SLEEPERS;
            // Relaxed: see `word`.
            match self
                .word
                .compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    backend::futex_wake(&self.word, u32::MAX, ANYONE);
                    return;
                }
                Err(now) => seen = now,
            }
        }
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
