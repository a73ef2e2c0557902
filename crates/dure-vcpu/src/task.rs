//! Tasks and cores as the scheduler sees them.
//!
//! **Problem.** A task is a stack plus what is known of it while it does not run. **Structure.**
//! Plain records; [`crate::world::World`] owns them all. **Invariants.** A core runs at most one
//! task; a task is running, ready, blocked or done. **Crash.** Nothing is kept.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;

use corosensei::Yielder;

use crate::account::Waiting;

/// The number of a task of a run, in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) usize);

impl TaskId {
    /// The number; the first task has 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Another task ended it, or nothing did (sleeps may end without reason).
    Woken,
    /// The expected value was not there.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// What a blocked task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    Futex { address: usize },
    Join { task: usize },
    Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// On a core, or waiting for it.
    Ready,
    Blocked(Blocked),
    Done,
}

/// The way out of a running task's stack.
pub(crate) type TaskYielder = Yielder<(), ()>;

/// Task-local values, by the address of their key.
pub(crate) type Locals = Vec<(usize, Box<dyn Any>)>;

pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) core: usize,
    pub(crate) state: State,
    /// The earliest time it can run; when blocked, the time at which it blocked.
    pub(crate) ready_at: u64,
    /// The higher the earlier, under the priority schedule.
    pub(crate) priority: i64,
    /// Number of the current or last sleep; tells deadlines of earlier sleeps apart.
    pub(crate) sleep: u64,
    /// Whether the current sleep has a deadline.
    pub(crate) deadline_set: bool,
    /// Why the last sleep ended.
    pub(crate) wake: Wake,
    /// What it waits for, as it said.
    pub(crate) waiting: Option<Waiting>,
    /// Whether its time counts.
    pub(crate) is_measured: bool,
    /// Tasks that wait for its end.
    pub(crate) joiners: Vec<usize>,
    pub(crate) locals: Locals,
    /// Valid while the task is started and not done: lives on the task's stack.
    pub(crate) yielder: *const TaskYielder,
}

impl Task {
    pub(crate) fn new(name: String, core: usize, ready_at: u64) -> Self {
        Self {
            name,
            core,
            state: State::Ready,
            ready_at,
            priority: 0,
            sleep: 0,
            deadline_set: false,
            wake: Wake::Woken,
            waiting: None,
            is_measured: false,
            joiners: Vec::new(),
            locals: Vec::new(),
            yielder: std::ptr::null(),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .field("core", &self.core)
            .field("state", &self.state)
            .field("ready_at", &self.ready_at)
            .finish_non_exhaustive()
    }
}

/// A virtual core.
#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) clock: u64,
    /// When its last store that missed is done; a locked operation waits for it.
    pub(crate) stores_done_at: u64,
    /// Picoseconds of work that are not yet in the clock.
    pub(crate) rest_ps: u64,
    /// Whether its last operation was a turn of a spin loop.
    pub(crate) spun: bool,
    /// The task it runs, under the clock schedules.
    pub(crate) current: Option<usize>,
    /// The task it ran last.
    pub(crate) last: Option<usize>,
    /// When the current task got the core.
    pub(crate) slice_start: u64,
    /// Ready tasks that wait for the core, under the clock schedules.
    pub(crate) queue: VecDeque<usize>,
}
