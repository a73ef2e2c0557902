//! The state of a run, and its clock rules.
//!
//! **Problem.** Every visible operation of every task has to happen in one total order that
//! follows from the seed. **Structure.** [`World`] owns tasks, cores, lines, timers and sleepers.
//! [`World::point`] is called before each visible operation and decides whether the task goes on;
//! `schedule.rs` decides which task runs instead, `sleep.rs` blocks and wakes. **Invariants.**
//! `running` is the only task whose code executes; its core is not in the heap; a clock never goes
//! back. **Crash.** Nothing is kept.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::account::{Account, Cause};
use crate::config::{Config, Schedule};
use crate::heap::CoreHeap;
use crate::lines::{Access, LineTable};
use crate::report::{Failure, FailureKind, Report};
use crate::rng::Rng;
use crate::sleep::Waiter;
use crate::task::{Blocked, Core, State, Task};
use crate::timers::Timers;
use crate::watch::Watch;

/// What the runner has to do when a task gave way.
#[derive(Debug)]
pub(crate) enum Next {
    Run(usize),
    Finished,
    Failed(FailureKind),
}

/// A task's code, until it is started.
pub(crate) type Body = Box<dyn FnOnce()>;

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) tasks: Vec<Task>,
    pub(crate) cores: Vec<Core>,
    /// Cores with work that are not running, under the clock schedules.
    pub(crate) heap: CoreHeap,
    /// Tasks that can run but do not, if the schedule ignores clocks.
    pub(crate) ready: Vec<usize>,
    /// The lowest priority given out so far, below all drawn ones.
    pub(crate) lowest: i64,
    /// The random schedule considers a switch at one point in this many.
    pub(crate) switch_every: u64,
    pub(crate) timers: Timers,
    pub(crate) lines: LineTable,
    /// Bytes allocated less bytes freed.
    pub(crate) heap_bytes: i64,
    /// Sleepers by address, in the order in which they began to wait.
    pub(crate) sleepers: BTreeMap<usize, Vec<Waiter>>,
    pub(crate) running: usize,
    pub(crate) next: Next,
    /// Bodies of tasks that have not started.
    pub(crate) bodies: Vec<Option<Body>>,
    /// Named address ranges, for reports.
    pub(crate) labels: Vec<(usize, usize, String)>,
    /// Where the time of measured tasks went.
    pub(crate) account: Account,
    /// Between which times they count.
    pub(crate) window: (u64, u64),
    /// Work of a call for each of its operations, in picoseconds.
    pub(crate) pace_ps: u64,
    /// When the memory of each socket has done the copies it was asked for.
    memory_free_at: Vec<u64>,
    /// When the persistent memory of each socket has.
    modules_free_at: Vec<u64>,
    /// Addresses of persistent memory, and the socket whose modules they are on.
    placed: Vec<(Range<usize>, usize)>,
    /// What is being watched, if anything is.
    pub(crate) watch: Option<Watch>,
    live: usize,
    hash: u64,
    steps: u64,
    pub(crate) switches: u64,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        config.validate();
        let mut rng = Rng::new(config.seed);
        // Small bugs show when every operation may be followed by a switch, others need a task to
        // make some progress before the next one: seeds alternate.
        let switch_every = [1, 1, 3, 20][rng.index(4)];
        let cores = config.cores;
        Self {
            rng,
            tasks: Vec::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            heap: CoreHeap::new(cores),
            ready: Vec::new(),
            lowest: 0,
            switch_every,
            timers: Timers::default(),
            lines: LineTable::new(),
            heap_bytes: 0,
            sleepers: BTreeMap::new(),
            running: 0,
            next: Next::Run(0),
            bodies: Vec::new(),
            labels: Vec::new(),
            account: Account::default(),
            window: (0, u64::MAX),
            pace_ps: 0,
            memory_free_at: vec![0; cores.div_ceil(config.model.cores_per_socket)],
            modules_free_at: vec![0; cores.div_ceil(config.model.cores_per_socket)],
            placed: Vec::new(),
            watch: None,
            live: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            steps: 0,
            switches: 0,
            config,
        }
    }

    #[inline]
    pub(crate) fn core(&self) -> usize {
        self.tasks[self.running].core
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.cores[self.core()].clock
    }

    /// Adds a task that can run from now on.
    pub(crate) fn spawn(&mut self, name: String, core: Option<usize>, body: Body) -> usize {
        let index = self.tasks.len();
        let core = core.unwrap_or(index) % self.config.cores;
        let now = if index == 0 { 0 } else { self.now() };
        self.tasks.push(Task::new(name, core, now));
        if let Schedule::Priority { .. } = self.config.schedule {
            self.tasks[index].priority = i64::from(self.rng.next_u32());
        }
        self.bodies.push(Some(body));
        self.live += 1;
        self.make_ready(index, now);
        index
    }

    /// Called before a visible operation; true if the running task must give way. `slack_ns` is how
    /// far its clock may be ahead of the slowest core's.
    #[inline]
    pub(crate) fn point(&mut self, slack_ns: u64) -> bool {
        self.steps += 1;
        if self.steps > self.config.steps_max {
            return self.fail_steps();
        }
        let core = self.core();
        if let Schedule::Stall { every, ns } = self.config.schedule
            && self.rng.one_in(every)
        {
            self.cores[core].clock += self.rng.below(ns + 1);
        }
        let now = self.cores[core].clock;
        self.digest(now);
        if self
            .timers
            .earliest()
            .is_some_and(|deadline| deadline <= now)
        {
            self.fire_timers(now);
        }
        match self.config.schedule {
            Schedule::Random => self.point_random(),
            Schedule::Priority { change_every } => self.point_priority(change_every),
            _ => self.point_by_clock(core, now, slack_ns),
        }
    }

    #[inline]
    fn digest(&mut self, now: u64) {
        let task = u64::try_from(self.running).expect("a task number fits in 64 bits");
        self.hash = (self.hash ^ now ^ task << 48)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29);
    }

    /// Advances the clock of the running core.
    #[inline]
    pub(crate) fn charge(&mut self, ns: u64) {
        let ns = match self.config.schedule {
            Schedule::Jitter { percent } if ns > 0 => {
                // In thousandths, so that small costs vary on average.
                let thousandths = 1_000 - percent * 10 + self.rng.below(percent * 20 + 1);
                (ns * thousandths + self.rng.below(1_000)) / 1_000
            }
            _ => ns,
        };
        self.spend(Cause::Compute, ns);
    }

    /// Advances the clock of the running core for this cause.
    #[inline]
    pub(crate) fn spend(&mut self, cause: Cause, ns: u64) {
        let core = self.core();
        self.cores[core].clock += ns;
        self.count(self.running, cause, ns);
    }

    /// Enters time of `task` in the account.
    #[inline]
    pub(crate) fn count(&mut self, task: usize, cause: Cause, ns: u64) {
        let task = &self.tasks[task];
        if !task.is_measured {
            return;
        }
        let end = self.cores[task.core].clock;
        let begin = end.saturating_sub(ns).max(self.window.0);
        let within = end.min(self.window.1).saturating_sub(begin);
        if within > 0 {
            self.account.add(cause, task.waiting, within);
        }
    }

    /// Whether what the running task does now counts.
    #[inline]
    fn counts(&self) -> bool {
        let (start, stop) = self.window;
        self.tasks[self.running].is_measured && (start..stop).contains(&self.now())
    }

    /// Does the work between the last operation and the next one, unless a loop only spins.
    #[inline]
    pub(crate) fn pace(&mut self) {
        let index = self.core();
        let core = &mut self.cores[index];
        if std::mem::take(&mut core.spun) {
            return;
        }
        if self.counts() {
            self.account.steps += 1;
        }
        if self.pace_ps > 0 {
            let core = &mut self.cores[index];
            core.rest_ps += self.pace_ps;
            let ns = core.rest_ps / 1_000;
            core.rest_ps %= 1_000;
            self.charge(ns);
        }
    }

    /// How far the running task may be ahead to do `access`: hits may run ahead a little.
    #[inline]
    pub(crate) fn slack(&self, access: Access, address: usize) -> u64 {
        match self.config.schedule {
            Schedule::MinClock { ahead_ns }
                if ahead_ns > 0 && self.lines.hits(access, address, self.core()) =>
            {
                ahead_ns
            }
            _ => 0,
        }
    }

    /// Does a visible operation on memory.
    #[inline]
    pub(crate) fn access(&mut self, access: Access, address: usize) {
        let index = self.core();
        let now = self.cores[index].clock;
        let model = &self.config.model;
        let own = if access == Access::Update {
            model.locked_ns
        } else {
            model.hit_ns
        };
        // A locked operation waits until the store buffer is empty.
        let start = if access == Access::Update {
            now.max(self.cores[index].stores_done_at)
        } else {
            now
        };
        let cost = self.lines.access(access, address, index, start, model);
        let core = &mut self.cores[index];
        let hides = access == Access::Store && cost.missed;
        if hides {
            core.stores_done_at = core.stores_done_at.max(cost.ready_at);
        }
        let moving_ns = cost.ready_at - now;
        if cost.missed && self.counts() {
            let is_in_wait = self.tasks[self.running].waiting.is_some();
            self.account.moved(address, moving_ns, is_in_wait);
        }
        if !hides {
            self.spend(Cause::Lines, moving_ns);
        }
        self.charge(own);
    }

    /// Does a copy of `bytes` bytes that begins with `access` at `address`: within the caches of the
    /// core if it has the first line, otherwise from or to the memory of the line's socket.
    pub(crate) fn copy(&mut self, access: Access, address: usize, bytes: u64) {
        let had_it = self.lines.hits(access, address, self.core());
        self.access(access, address);
        let model = &self.config.model;
        if model.copy_mb_s == 0 {
            return;
        }
        let at = |mb_s: u64| bytes * 1_000 / mb_s.max(1);
        if had_it || model.copy_memory_mb_s == 0 {
            let ns = at(model.copy_mb_s);
            return self.spend(Cause::Copies, ns);
        }
        let now = self.now();
        let mut done_at = now + at(model.copy_memory_mb_s);
        if model.socket_mb_s > 0 {
            let served_ns = at(model.socket_mb_s);
            let socket = self.lines.home(address).unwrap_or(0);
            let free_at = &mut self.memory_free_at[socket];
            *free_at = now.max(*free_at) + served_ns;
            done_at = done_at.max(*free_at);
        }
        self.spend(Cause::Copies, done_at - now);
    }

    /// From now on the persistent memory at these addresses is on the modules of a socket.
    pub(crate) fn place_persistent(&mut self, addresses: Range<usize>, socket: usize) {
        let sockets = self.modules_free_at.len().max(socket + 1);
        self.modules_free_at.resize(sockets, 0);
        self.placed.push((addresses, socket));
    }

    /// Does a copy from or to persistent memory: that of the core's socket, unless it was placed on
    /// another, which is as much farther as a line of a core there is.
    pub(crate) fn copy_persistent(&mut self, access: Access, address: usize, bytes: u64) {
        let model = &self.config.model;
        let Some(modules) = &model.persistent else {
            return;
        };
        let own = self.tasks[self.running].core / model.cores_per_socket;
        let placed = self
            .placed
            .iter()
            .find(|(range, _)| range.contains(&address));
        let socket = placed.map_or(own, |(_, socket)| *socket);
        let farther_ns = match socket == own {
            true => 0,
            false => model.transfer_far_ns.saturating_sub(model.transfer_ns),
        };
        let (core_mb_s, socket_mb_s) = match access {
            Access::Load => (modules.read_mb_s, modules.socket_read_mb_s),
            Access::Store | Access::Update => (modules.write_mb_s, modules.socket_write_mb_s),
        };
        let at = |mb_s: u64| bytes * 1_000 / mb_s.max(1);
        let now = self.now();
        let free_at = &mut self.modules_free_at[socket];
        *free_at = now.max(*free_at) + at(socket_mb_s);
        let done_at = (now + modules.latency_ns + farther_ns + at(core_mb_s)).max(*free_at);
        self.spend(Cause::Copies, done_at - now);
    }

    /// Tells the watch, if there is one, that the running task uses the word at `address`.
    #[inline]
    pub(crate) fn note(&mut self, access: Access, address: usize, what: &'static str) {
        let user = (self.running, self.core());
        if let Some(watch) = &mut self.watch {
            watch.note(user, access, address, what);
        }
    }

    /// Ends the running task.
    pub(crate) fn finish(&mut self) {
        let now = self.now();
        let task = &mut self.tasks[self.running];
        task.state = State::Done;
        task.ready_at = now;
        let joiners = std::mem::take(&mut task.joiners);
        for joiner in joiners {
            let wake_at = now + self.config.model.wake_ns;
            self.end_sleep(joiner, crate::task::Wake::Woken, wake_at);
        }
        self.live -= 1;
        self.release_core();
        if self.live == 0 {
            self.next = Next::Finished;
        } else {
            self.choose_next();
        }
    }

    /// Ends the run because the running task panicked.
    pub(crate) fn fail_panic(&mut self, message: String) {
        let task = self.describe(self.running);
        self.next = Next::Failed(FailureKind::Panic { task, message });
    }

    #[cold]
    fn fail_steps(&mut self) -> bool {
        let steps_max = self.config.steps_max;
        self.next = Next::Failed(FailureKind::StepLimit {
            steps_max,
            tasks: self.unfinished(),
        });
        true
    }

    #[cold]
    pub(crate) fn fail_deadlock(&mut self) {
        self.next = Next::Failed(FailureKind::Deadlock {
            tasks: self.unfinished(),
        });
    }

    fn unfinished(&self) -> Vec<String> {
        let alive = |task: &usize| self.tasks[*task].state != State::Done;
        (0..self.tasks.len())
            .filter(alive)
            .map(|task| self.describe(task))
            .collect()
    }

    fn describe(&self, index: usize) -> String {
        let task = &self.tasks[index];
        let clock = self.cores[task.core].clock;
        let waits = task
            .waiting
            .map(|what| format!(", which waits for {what},"));
        let place = format!(
            "task {index} {:?} on core {}{} at {clock} ns",
            task.name,
            task.core,
            waits.unwrap_or_default()
        );
        match task.state {
            State::Blocked(Blocked::Futex { address }) => format!(
                "{place} sleeps on {address:#x}{} since {} ns",
                self.label_of(address),
                task.ready_at
            ),
            State::Blocked(Blocked::Join { task: other }) => {
                format!(
                    "{place} waits for the end of task {other} {:?}",
                    self.tasks[other].name
                )
            }
            State::Blocked(Blocked::Sleep) => format!("{place} sleeps"),
            State::Ready | State::Done => place,
        }
    }

    fn label_of(&self, address: usize) -> String {
        self.labels
            .iter()
            .find(|(first, end, _)| (*first..*end).contains(&address))
            .map_or_else(String::new, |(first, _, name)| {
                format!(" ({name}+{})", address - first)
            })
    }

    pub(crate) fn failure(&self, kind: FailureKind) -> Failure {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        Failure {
            config: self.config.clone(),
            test,
            kind,
        }
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            schedule_hash: self.hash,
            steps: self.steps,
            switches: self.switches,
            virtual_ns: self.cores.iter().map(|core| core.clock).max().unwrap_or(0),
            transfers: self.lines.transfers(),
            hot_lines: self.lines.hottest(16),
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("config", &self.config)
            .field("tasks", &self.tasks)
            .field("running", &self.running)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
