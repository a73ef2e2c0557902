//! A worker as its thread and those that wake it share it.

use std::time::Duration;

use dure_journal::JournalId;
use dure_sync::{Condvar, CoreId, Mutex, Tally, clock, thread};

use crate::ranks::WORKER;

/// The thread of some partitions, the way to wake it, and the way to end it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) partitions: Vec<CoreId>,
    state: Mutex<WORKER, State>,
    wake: Condvar,
    pub(super) rounds: Tally,
    /// Pages that its rounds wrote.
    pub(super) pages: Tally,
    /// Images of nodes that it wrote for checkpoints of others.
    pub(super) images: Tally,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Logs that need room, and the number of checkpoints at the time they were noted.
    half_full: Vec<(JournalId, i64)>,
    /// Memory needs room; the number of checkpoints at the time.
    memory: Option<i64>,
    /// A checkpoint asks for help.
    checkpoint: bool,
    /// Partitions have too many dirty pages to wait for the next round.
    write_back: bool,
    /// Partitions have too much data in persistent memory that belongs on the device.
    moves: bool,
    thread: Option<thread::JoinHandle<()>>,
}

/// What a worker has done since the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerActivity {
    /// The partitions it serves.
    pub partitions: Vec<CoreId>,
    /// Rounds of write-back and commit.
    pub rounds: u64,
    /// Pages they wrote back.
    pub pages: u64,
    /// Images of nodes it wrote for checkpoints that others made.
    pub images: u64,
    /// Pages that wait for it: dirty pages of its partitions, and those in write-back.
    pub backlog: u64,
}

/// What there is to do.
pub(super) enum Work {
    /// The interval is over.
    Round,
    /// Logs need room.
    Room(Vec<(JournalId, i64)>),
    /// Memory needs room.
    Memory(i64),
    /// Shares of a checkpoint.
    Checkpoint,
    /// Partitions have many dirty pages.
    WriteBack,
    /// Partitions have much data in persistent memory.
    Moves,
    Stop,
}

impl Worker {
    pub(super) fn new(partitions: Vec<CoreId>) -> Worker {
        Worker {
            partitions,
            state: Mutex::default(),
            wake: Condvar::default(),
            rounds: Tally::default(),
            pages: Tally::default(),
            images: Tally::default(),
        }
    }

    /// Whether it serves the partition of this number, whose journal has it too.
    pub(super) fn serves(&self, number: usize) -> bool {
        let mut own = self.partitions.iter();
        own.any(|partition| partition.index() == number)
    }

    /// What it has done; `dirty` says how many pages of a partition wait.
    pub(super) fn activity(&self, dirty: impl Fn(CoreId) -> u64) -> WorkerActivity {
        WorkerActivity {
            partitions: self.partitions.clone(),
            rounds: self.rounds.get(),
            pages: self.pages.get(),
            images: self.images.get(),
            backlog: self.partitions.iter().map(|core| dirty(*core)).sum(),
        }
    }

    /// Tells the thread to end after what it is doing; returns it.
    pub(super) fn end(&self) -> Option<thread::JoinHandle<()>> {
        let mut state = self.state.lock();
        state.stop = true;
        let thread = state.thread.take();
        drop(state);
        self.wake.notify_all();
        thread
    }

    /// Keeps the handle of its thread.
    pub(super) fn started(&self, thread: thread::JoinHandle<()>) {
        self.state.lock().thread = Some(thread);
    }

    /// A log needs room; `checkpoints` were made by now.
    pub(super) fn want_log_room(&self, journal: JournalId, checkpoints: i64) {
        let mut state = self.state.lock();
        // Without the thread nothing empties the list.
        if state.thread.is_some() {
            state.half_full.push((journal, checkpoints));
            drop(state);
            self.wake.notify_all();
        }
    }

    /// Memory needs room; `checkpoints` were made by now.
    pub(super) fn want_memory_room(&self, checkpoints: i64) {
        let mut state = self.state.lock();
        state.memory = Some(checkpoints);
        drop(state);
        self.wake.notify_all();
    }

    /// A partition has many dirty pages.
    pub(super) fn want_write_back(&self) {
        let mut state = self.state.lock();
        state.write_back = true;
        drop(state);
        self.wake.notify_all();
    }

    /// A partition has much data in persistent memory.
    pub(super) fn want_moves(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.moves, true) {
            return;
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Shares of a checkpoint wait.
    pub(super) fn want_checkpoint_help(&self) {
        let mut state = self.state.lock();
        state.checkpoint = true;
        drop(state);
        self.wake.notify_all();
    }

    /// Sleeps until there is something to do, at the latest until the next round.
    pub(super) fn wait(&self, next_round: u64) -> Work {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return Work::Stop;
            }
            if std::mem::take(&mut state.checkpoint) {
                return Work::Checkpoint;
            }
            if !state.half_full.is_empty() {
                return Work::Room(std::mem::take(&mut state.half_full));
            }
            if let Some(checkpoints) = state.memory.take() {
                return Work::Memory(checkpoints);
            }
            let left = next_round.saturating_sub(clock::monotonic_ns());
            if left == 0 {
                return Work::Round;
            }
            if std::mem::take(&mut state.write_back) {
                return Work::WriteBack;
            }
            if std::mem::take(&mut state.moves) {
                return Work::Moves;
            }
            (state, _) = self.wake.wait_timeout(state, Duration::from_nanos(left));
        }
    }
}
