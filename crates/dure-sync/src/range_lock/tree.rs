//! Policy `tree`: an interval tree under a lock (hybridF2FS, generation 1).
//!
//! **Problem.** Writers of different ranges of a file must not wait for each other. **Structure.**
//! [`Intervals`] of 4 KiB pages under one mutex: FIFO, readers share. The mutex does not scale:
//! every operation writes its line twice. **Invariants.** Those of the intervals; the mutex is
//! never held while waiting. **Crash.** Nothing is kept.

use super::intervals::{Entered, Intervals, NodeIndex};
use super::range::{Claim, Patience};
use super::waiter::grant_all;
use super::{INTERVALS_RANK, Mutex};

#[derive(Debug)]
pub(super) struct TreeLock {
    intervals: Mutex<INTERVALS_RANK, Intervals>,
}

impl TreeLock {
    pub(super) fn new() -> Self {
        Self {
            intervals: Mutex::new(Intervals::new()),
        }
    }

    /// Takes the claim; `None` if that needs waiting and the caller does not wait.
    #[inline(never)]
    pub(super) fn acquire(&self, claim: Claim, patience: Patience<'_>) -> Option<NodeIndex> {
        let Patience::Wait(tallies) = patience else {
            return self.intervals.lock().try_enter(claim);
        };
        let Entered { node, waiter } = self.intervals.lock().enter(claim);
        if let Some(waiter) = waiter {
            waiter.wait(tallies);
        }
        Some(node)
    }

    #[inline(never)]
    pub(super) fn release(&self, node: NodeIndex) {
        let granted = self.intervals.lock().leave(node);
        grant_all(granted);
    }

    /// Bytes of the intervals allocated so far.
    pub(super) fn bytes(&self) -> usize {
        self.intervals.lock().bytes()
    }

    /// Number of claims, held and waiting.
    pub(super) fn claims(&self) -> usize {
        self.intervals.lock().len()
    }
}
