//! Sleeping and waking.
//!
//! **Problem.** Tasks sleep on addresses, on the end of tasks and until deadlines. **Structure.**
//! A list of waiters per address; a sleep has a number, so that whichever of wake-up and deadline
//! comes second is ignored. **Invariants.** A task blocked on an address is in its list, no other
//! task is. **Crash.** Nothing is kept.

use crate::task::{Blocked, State, Wake};
use crate::world::World;

/// A task that sleeps on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    task: usize,
    mask: u32,
}

impl World {
    /// Blocks the running task; it must give way afterwards.
    pub(crate) fn block(&mut self, reason: Blocked, deadline: Option<u64>) {
        let now = self.now();
        let running = self.running;
        let task = &mut self.tasks[running];
        task.state = State::Blocked(reason);
        task.ready_at = now;
        task.sleep += 1;
        task.deadline_set = deadline.is_some();
        if let Some(deadline) = deadline {
            self.timers
                .set(deadline.max(now), running, self.tasks[running].sleep);
        }
        self.release_core();
        self.choose_next();
    }

    /// Sleeps on an address; true if the task must give way. If the schedule ignores clocks, the
    /// sleep sometimes ends at once without reason, as sleeps may.
    pub(crate) fn futex_wait(&mut self, address: usize, mask: u32, timeout: Option<u64>) -> bool {
        if self.config.schedule.ignores_clocks() && self.rng.one_in(64) {
            let running = self.running;
            self.tasks[running].wake = Wake::Woken;
            return false;
        }
        self.sleepers.entry(address).or_default().push(Waiter {
            task: self.running,
            mask,
        });
        let deadline = timeout.map(|ns| self.now().saturating_add(ns));
        self.block(Blocked::Futex { address }, deadline);
        true
    }

    /// Wakes up to `count` sleepers of an address with a common bit in `mask`, in the order in
    /// which they began to wait (in any order if the schedule ignores clocks).
    pub(crate) fn futex_wake(&mut self, address: usize, count: u32, mask: u32) -> u32 {
        let wake_at = self.now() + self.config.model.wake_ns;
        let mut woken = 0;
        while woken < count {
            let Some(waiter) = self.take_waiter(address, mask) else {
                break;
            };
            self.end_sleep(waiter.task, Wake::Woken, wake_at);
            woken += 1;
        }
        woken
    }

    fn take_waiter(&mut self, address: usize, mask: u32) -> Option<Waiter> {
        let waiters = self.sleepers.get_mut(&address)?;
        let mut fitting = (0..waiters.len())
            .filter(|place| waiters[*place].mask & mask != 0)
            .collect::<Vec<_>>();
        if fitting.is_empty() {
            return None;
        }
        let any = self.config.schedule.ignores_clocks();
        let choice = if any {
            self.rng.index(fitting.len())
        } else {
            0
        };
        let waiter = waiters.remove(fitting.swap_remove(choice));
        if waiters.is_empty() {
            self.sleepers.remove(&address);
        }
        Some(waiter)
    }

    /// Sleeps until another task has ended; true if the running task must give way.
    pub(crate) fn join(&mut self, task: usize) -> bool {
        assert_ne!(task, self.running, "a task cannot wait for its own end");
        if self.tasks[task].state == State::Done {
            // The join returns no earlier than the task ended on its core.
            let core = self.core();
            self.cores[core].clock = self.cores[core].clock.max(self.tasks[task].ready_at);
            return false;
        }
        let running = self.running;
        self.tasks[task].joiners.push(running);
        self.block(Blocked::Join { task }, None);
        true
    }

    /// Makes a blocked task ready. Its waiter entry, if any, is gone already.
    pub(crate) fn end_sleep(&mut self, index: usize, wake: Wake, ready_at: u64) {
        let task = &mut self.tasks[index];
        debug_assert!(
            matches!(task.state, State::Blocked(_)),
            "only sleepers are woken"
        );
        task.wake = wake;
        let ready_at = ready_at.max(task.ready_at);
        let deadline_set = std::mem::take(&mut task.deadline_set);
        self.make_ready(index, ready_at);
        if deadline_set && wake != Wake::TimedOut {
            let tasks = &self.tasks;
            self.timers
                .cancel_one(|task, sleep| is_asleep(&tasks[task], sleep));
        }
    }

    /// Ends all sleeps whose deadline is not after `now`.
    #[cold]
    pub(crate) fn fire_timers(&mut self, now: u64) {
        while self
            .timers
            .earliest()
            .is_some_and(|deadline| deadline <= now)
        {
            let (deadline, index, sleep) = self.timers.pop().expect("there is an earliest timer");
            let task = &self.tasks[index];
            if !is_asleep(task, sleep) {
                self.timers.dead_surfaced();
                continue;
            }
            if let State::Blocked(Blocked::Futex { address }) = task.state {
                let waiters = self
                    .sleepers
                    .get_mut(&address)
                    .expect("a sleeper is in its list");
                waiters.retain(|waiter| waiter.task != index);
                if waiters.is_empty() {
                    self.sleepers.remove(&address);
                }
            }
            self.end_sleep(index, Wake::TimedOut, deadline);
        }
    }
}

/// Whether a task is still in the sleep that set a deadline.
fn is_asleep(task: &crate::task::Task, sleep: u64) -> bool {
    task.sleep == sleep && task.deadline_set && matches!(task.state, State::Blocked(_))
}
