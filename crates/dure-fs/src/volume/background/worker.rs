//! A worker: a thread that sleeps until there is work for its partitions.

use std::time::Duration;

use dure_journal::JournalId;
use dure_sync::{Arc, Condvar, CoreId, Mutex, Tally, Weak, clock, thread};

use crate::ranks::WORKER;
use crate::volume::Volume;

/// The thread of some partitions, the way to wake it, and the way to end it.
#[derive(Debug)]
pub(super) struct Worker {
    partitions: Vec<CoreId>,
    state: Mutex<WORKER, State>,
    wake: Condvar,
    rounds: Tally,
    /// Pages that its rounds wrote.
    pages: Tally,
    /// Images of nodes that it wrote for checkpoints of others.
    images: Tally,
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
enum Work {
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

    pub(super) fn activity(&self, volume: &Volume) -> WorkerActivity {
        WorkerActivity {
            partitions: self.partitions.clone(),
            rounds: self.rounds.get(),
            pages: self.pages.get(),
            images: self.images.get(),
            backlog: self
                .partitions
                .iter()
                .map(|core| volume.dirty_pages(*core))
                .sum(),
        }
    }

    /// Starts the thread, bound to `cores`. Number 0 leads.
    pub(super) fn start(
        worker: &Arc<Worker>,
        number: usize,
        cores: &[CoreId],
        volume: &Arc<Volume>,
    ) {
        let (own, weak) = (Arc::clone(worker), Arc::downgrade(volume));
        let interval = volume.options.commit_interval;
        let name = format!("dure-worker-{number}");
        let thread = thread::spawn_vital(&name, cores, move || {
            own.run(number == 0, &weak, interval);
        });
        worker.state.lock().thread = Some(thread);
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

    /// Ends when told to, or when the volume is gone.
    fn run(&self, leads: bool, volume: &Weak<Volume>, interval: Duration) {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut next_round = clock::monotonic_ns().saturating_add(interval);
        loop {
            let work = self.wait(next_round);
            let Some(volume) = volume.upgrade() else {
                return;
            };
            // A failure has stopped the volume, and the next fsync reports it; this thread has no
            // caller to report to.
            match work {
                Work::Stop => return,
                Work::Round => {
                    let mut pages = 0;
                    let _ = volume.round_of(&self.partitions, leads, &mut pages);
                    self.rounds.add(1);
                    self.pages.add(pages);
                    next_round = clock::monotonic_ns().saturating_add(interval);
                }
                Work::Checkpoint => self.images.add(volume.help_checkpoint(&self.partitions)),
                Work::WriteBack => {
                    let mut pages = 0;
                    if volume.write_back_many(&self.partitions, &mut pages) {
                        self.want_write_back();
                    }
                    self.pages.add(pages);
                }
                Work::Moves => {
                    if volume.move_absorbed(&self.partitions).unwrap_or(false) {
                        self.want_moves();
                    }
                }
                Work::Memory(checkpoints) => drop(volume.checkpoint_since(checkpoints)),
                Work::Room(logs) => {
                    for (journal, checkpoints) in logs {
                        let _ = volume.make_log_room_since(journal, checkpoints);
                    }
                }
            }
        }
    }

    /// Sleeps until there is something to do, at the latest until the next round.
    fn wait(&self, next_round: u64) -> Work {
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
