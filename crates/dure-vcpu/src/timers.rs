//! Deadlines of sleeping tasks.
//!
//! **Problem.** Sleeps and timeouts end in virtual time. **Structure.** A heap of (deadline,
//! order of setting, task, sleep number); a deadline whose sleep is over is dropped when it
//! surfaces, or when such leftovers outnumber the rest. **Invariants.** At most one live deadline
//! per task. **Crash.** Nothing is kept.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A deadline: time, order, task, the task's sleep number.
type Deadline = (u64, u64, usize, u64);

/// The pending deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Deadline>>,
    set: u64,
    /// Entries whose sleep was ended by something else.
    dead: usize,
}

impl Timers {
    pub(crate) fn set(&mut self, deadline: u64, task: usize, sleep: u64) {
        self.set += 1;
        self.heap.push(Reverse((deadline, self.set, task, sleep)));
    }

    /// Notes that a set deadline is no longer wanted; `live` tells the wanted ones.
    pub(crate) fn cancel_one(&mut self, live: impl Fn(usize, u64) -> bool) {
        self.dead += 1;
        if self.dead > 64 && self.dead * 2 > self.heap.len() {
            self.heap
                .retain(|Reverse((_, _, task, sleep))| live(*task, *sleep));
            self.dead = 0;
        }
    }

    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((deadline, ..))| *deadline)
    }

    /// Takes the earliest entry out: deadline, task, sleep number.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize, u64)> {
        self.heap
            .pop()
            .map(|Reverse((deadline, _, task, sleep))| (deadline, task, sleep))
    }

    /// Notes that an unwanted entry surfaced.
    pub(crate) fn dead_surfaced(&mut self) {
        self.dead = self.dead.saturating_sub(1);
    }
}
