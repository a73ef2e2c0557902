//! Which task runs next.
//!
//! **Problem.** Fair and unfair schedules over the same tasks. **Structure.** Under the clock
//! schedules each core has a queue and cores wait in a heap by the time they can go on; under the
//! random and the priority schedule all ready tasks are in one list. **Invariants.** A ready task
//! is in exactly one place: current of a core, in a queue, in the list, or running. **Crash.**
//! Nothing is kept.

use crate::account::Cause;
use crate::config::Schedule;
use crate::task::{State, Wake};
use crate::world::{Next, World};

impl World {
    /// All ready tasks are in one list.
    fn is_listed(&self) -> bool {
        self.config.schedule.ignores_clocks()
    }

    /// Puts a task where it can be chosen, from `ready_at` on.
    pub(crate) fn make_ready(&mut self, task: usize, ready_at: u64) {
        self.tasks[task].state = State::Ready;
        self.tasks[task].ready_at = ready_at;
        if self.is_listed() {
            self.ready.push(task);
            return;
        }
        let core = self.tasks[task].core;
        self.cores[core].queue.push_back(task);
        // The running core checks its queue when its task gives way.
        if self.cores[self.core()].current.is_none() || core != self.core() {
            self.offer(core);
        }
    }

    /// Enters a core that does not run into the heap, if it has work.
    fn offer(&mut self, core: usize) {
        if let Some(clock) = self.next_time(core) {
            self.heap.set(core, clock);
        }
    }

    /// When a core can go on.
    fn next_time(&self, index: usize) -> Option<u64> {
        let core = &self.cores[index];
        if core.current.is_some() {
            return Some(core.clock);
        }
        let first = core
            .queue
            .iter()
            .map(|task| self.tasks[*task].ready_at)
            .min()?;
        Some(core.clock.max(first))
    }

    /// The running task no longer runs.
    pub(crate) fn release_core(&mut self) {
        let core = self.core();
        self.cores[core].current = None;
        if !self.is_listed() {
            self.offer(core);
        }
    }

    /// Picks the next task when none is running.
    pub(crate) fn choose_next(&mut self) {
        let chosen = if self.is_listed() {
            self.choose_listed()
        } else {
            self.choose_by_clock()
        };
        match chosen {
            Some(task) => self.next = Next::Run(task),
            None => self.fail_deadlock(),
        }
    }

    fn choose_by_clock(&mut self) -> Option<usize> {
        loop {
            let top = self.heap.peek();
            match (top, self.timers.earliest()) {
                (Some((clock, _)), Some(deadline)) if deadline <= clock => {
                    self.fire_timers(deadline);
                }
                (Some((_, core)), _) => {
                    self.heap.pop();
                    return Some(self.activate(core));
                }
                (None, Some(deadline)) => self.fire_timers(deadline),
                (None, None) => return None,
            }
        }
    }

    /// Lets a core that was taken from the heap run.
    fn activate(&mut self, index: usize) -> usize {
        if self.cores[index].current.is_none() {
            self.dequeue(index);
        }
        let task = self.cores[index]
            .current
            .expect("a core in the heap has work");
        self.start(task);
        task
    }

    /// Gives a core without a task the one that has been ready longest.
    fn dequeue(&mut self, index: usize) {
        let tasks = &self.tasks;
        let queue = &mut self.cores[index].queue;
        let first = (0..queue.len())
            .min_by_key(|place| tasks[queue[*place]].ready_at)
            .expect("a core in the heap has work");
        let task = queue.remove(first).expect("the place is in the queue");
        let core = &mut self.cores[index];
        let asleep_ns = tasks[task].ready_at.saturating_sub(core.clock);
        core.clock += asleep_ns;
        let mut switch_ns = 0;
        if core.last != Some(task) {
            if core.last.is_some() {
                switch_ns = self.config.model.switch_ns;
                core.clock += switch_ns;
            }
            core.last = Some(task);
        }
        core.slice_start = core.clock;
        core.current = Some(task);
        self.count(task, Cause::Asleep, asleep_ns);
        self.count(task, Cause::Kernel, switch_ns);
    }

    fn start(&mut self, task: usize) {
        debug_assert_eq!(self.tasks[task].state, State::Ready, "only ready tasks run");
        self.running = task;
        self.switches += 1;
    }

    #[inline]
    pub(crate) fn point_by_clock(&mut self, core: usize, now: u64, slack_ns: u64) -> bool {
        if !self.cores[core].queue.is_empty()
            && now - self.cores[core].slice_start >= self.config.model.slice_ns
            && self.rotate()
        {
            return true;
        }
        match self.heap.peek() {
            Some(top) if top < (now.saturating_sub(slack_ns), core) => {
                let (_, next) = self.heap.replace_top((now, core));
                let task = self.activate(next);
                self.next = Next::Run(task);
                true
            }
            _ => false,
        }
    }

    /// Gives the core to another of its tasks that can run already; false if there is none.
    fn rotate(&mut self) -> bool {
        let core = self.core();
        let now = self.cores[core].clock;
        let can_run = |task: &usize| self.tasks[*task].ready_at <= now;
        if !self.cores[core].queue.iter().any(can_run) {
            self.cores[core].slice_start = now;
            return false;
        }
        self.cores[core].current = None;
        self.make_ready(self.running, now);
        self.choose_next();
        true
    }

    #[inline]
    pub(crate) fn point_random(&mut self) -> bool {
        if self.ready.is_empty() || !self.rng.one_in(self.switch_every) {
            return false;
        }
        self.switch_listed()
    }

    /// Gives way to a task of higher priority, after lowering its own now and then.
    #[inline]
    pub(crate) fn point_priority(&mut self, change_every: u64) -> bool {
        if self.rng.one_in(change_every) {
            self.lower();
        }
        let own = self.tasks[self.running].priority;
        let higher = |task: &usize| self.tasks[*task].priority > own;
        self.ready.iter().any(higher) && self.switch_listed()
    }

    /// Puts the running task below all others.
    fn lower(&mut self) {
        self.lowest -= 1;
        let running = self.running;
        self.tasks[running].priority = self.lowest;
    }

    /// Chooses among all ready tasks, the running one included.
    fn switch_listed(&mut self) -> bool {
        let running = self.running;
        self.tasks[running].ready_at = self.now();
        self.ready.push(running);
        match self.choose_listed() {
            Some(task) if task == running => false,
            Some(task) => {
                self.next = Next::Run(task);
                true
            }
            None => unreachable!("the running task can run"),
        }
    }

    fn choose_listed(&mut self) -> Option<usize> {
        // A deadline may pass while other cores stand still, which is the same as their being
        // slow; but rarely, or long timeouts would be the rule.
        if self.ready.is_empty() || self.rng.one_in(500) {
            while let Some(deadline) = self.timers.earliest() {
                self.fire_timers(deadline);
                if !self.ready.is_empty() {
                    break;
                }
            }
        }
        if self.ready.is_empty() {
            return None;
        }
        let place = match self.config.schedule {
            Schedule::Random => self.rng.index(self.ready.len()),
            _ => (0..self.ready.len())
                .max_by_key(|place| self.tasks[self.ready[*place]].priority)
                .expect("there are ready tasks"),
        };
        let task = self.ready.swap_remove(place);
        let core = self.tasks[task].core;
        self.cores[core].clock = self.cores[core].clock.max(self.tasks[task].ready_at);
        if task != self.running {
            self.start(task);
        }
        Some(task)
    }

    /// Lets other tasks run before the running one; true if it must give way.
    pub(crate) fn yield_now(&mut self) -> bool {
        if !self.is_listed() {
            return self.rotate();
        }
        if let Schedule::Priority { .. } = self.config.schedule {
            self.lower();
        }
        !self.ready.is_empty() && self.switch_listed()
    }

    /// Moves the running task to another core; true if it must give way.
    pub(crate) fn move_to(&mut self, core: usize) -> bool {
        if core == self.core() {
            return false;
        }
        let now = self.now();
        self.release_core();
        let running = self.running;
        self.tasks[running].core = core;
        self.tasks[running].wake = Wake::Woken;
        self.make_ready_elsewhere(running, now);
        self.choose_next();
        !matches!(self.next, Next::Run(task) if task == running)
    }

    fn make_ready_elsewhere(&mut self, task: usize, ready_at: u64) {
        self.tasks[task].ready_at = ready_at;
        if self.is_listed() {
            self.ready.push(task);
        } else {
            let core = self.tasks[task].core;
            self.cores[core].queue.push_back(task);
            self.offer(core);
        }
    }
}
