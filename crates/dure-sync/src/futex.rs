//! Sleeping until a word changes: the one primitive all locks are built on.
//!
//! **Problem.** Each backend has its own way to put a task to sleep; the locks need one.
//! **Structure.** [`wait`] sleeps while a word has a value, [`wake`] wakes sleepers of that word.
//! Inside this crate a mask separates the readers from the writers that sleep on one word.
//! **Invariants.** The comparison and the going to sleep are one step with respect to `wake`; so a
//! task that changes the word first and wakes afterwards misses no sleeper. `wait` may return early
//! without reason: callers loop. **Crash.** Nothing is kept.

use std::time::Duration;

use crate::atomic::AtomicU32;
use crate::backend;

/// Why [`wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// A task called [`wake`], or the sleep ended early without reason.
    Woken,
    /// The word did not have the expected value.
    Changed,
    /// The timeout passed.
    TimedOut,
}

/// Sleepers of any kind.
pub(crate) const ANYONE: u32 = u32::MAX;
/// Sleepers that want shared access.
pub(crate) const READERS: u32 = 1;
/// Sleepers that want exclusive access.
pub(crate) const WRITERS: u32 = 2;

/// Sleeps while `word` holds `expected`, at most for `timeout`. May return early.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> WaitOutcome {
    backend::futex_wait(word, expected, ANYONE, timeout)
}

/// Wakes up to `count` tasks that sleep on `word`; returns how many it woke.
pub fn wake(word: &AtomicU32, count: u32) -> u32 {
    backend::futex_wake(word, count, ANYONE)
}
