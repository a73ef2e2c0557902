//! Background work: commits and write-back every `commit_interval`, checkpoints and cleaning before
//! they become urgent. One thread, which sleeps while there is nothing to do. An operation that
//! leaves a log half full wakes it, so that a checkpoint makes room before an operation has to wait
//! for one.

use std::time::Duration;

use dure_journal::JournalId;
use dure_store::units::journal_id;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, Condvar, Mutex, Weak, clock, thread};

use super::{Background, Volume};
use crate::ranks::FLUSHER;

/// The thread and the way to end it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    inner: Arc<Inner>,
    /// Number of handles at the end of the last round. Used by rounds only: Relaxed.
    handles: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<FLUSHER, State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Logs that need room, and the number of checkpoints at the time they were noted.
    half_full: Vec<(JournalId, i64)>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flusher {
    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        let thread = {
            let mut state = self.inner.state.lock();
            state.stop = true;
            state.thread.take()
        };
        self.inner.wake.notify_all();
        if let Some(thread) = thread {
            thread
                .join()
                .expect("background work reports its errors, it does not panic");
        }
    }
}

/// Starts the thread if the mount options want one.
pub(super) fn start(volume: &Arc<Volume>) {
    if volume.options.background == Background::None {
        return;
    }
    let inner = volume.background.inner.clone();
    let interval = volume.options.commit_interval;
    let weak = Arc::downgrade(volume);
    let thread = thread::spawn("dure-flusher", move || run(&inner, &weak, interval));
    volume.background.inner.state.lock().thread = Some(thread);
}

/// What there is to do.
enum Work {
    /// The interval is over.
    Round,
    /// Logs need room.
    Room(Vec<(JournalId, i64)>),
    Stop,
}

/// Ends when told to, or when the volume is gone.
fn run(inner: &Inner, volume: &Weak<Volume>, interval: Duration) {
    let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let mut next_round = clock::monotonic_ns().saturating_add(interval);
    loop {
        let work = inner.wait(next_round);
        let Some(volume) = volume.upgrade() else {
            return;
        };
        // A failure has stopped the volume, and the next fsync reports it; this thread has no
        // caller to report to.
        match work {
            Work::Stop => return,
            Work::Round => {
                let _ = volume.background_round();
                next_round = clock::monotonic_ns().saturating_add(interval);
            }
            Work::Room(logs) => {
                for (journal, checkpoints) in logs {
                    let _ = volume.make_log_room_since(journal, checkpoints);
                }
            }
        }
    }
}

impl Inner {
    /// Sleeps until there is something to do, at the latest until the next round.
    fn wait(&self, next_round: u64) -> Work {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return Work::Stop;
            }
            if !state.half_full.is_empty() {
                return Work::Room(std::mem::take(&mut state.half_full));
            }
            let left = next_round.saturating_sub(clock::monotonic_ns());
            if left == 0 {
                return Work::Round;
            }
            (state, _) = self.wake.wait_timeout(state, Duration::from_nanos(left));
        }
    }
}

impl Volume {
    /// The log of `journal` has become half full.
    pub(super) fn want_log_room(&self, journal: JournalId) {
        let checkpoints = self.store.counters.checkpoints.sum();
        let mut state = self.background.inner.state.lock();
        // Without the thread nothing empties the list.
        if state.thread.is_some() {
            state.half_full.push((journal, checkpoints));
            drop(state);
            self.background.inner.wake.notify_all();
        }
    }

    /// One round: writes access times and old pages back, commits, checkpoints when logs or dirty
    /// nodes require it, and cleans. A volume at rest shrinks the logs that have grown.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn background_round(&self) -> dure_store::error::Result<()> {
        self.check_writable()?;
        self.write_access_times();
        self.body.write_back_all(self)?;
        self.commit_all()?;
        if self.is_at_rest() {
            self.give_logs_back()?;
        }
        if self.wants_checkpoint() {
            self.checkpoint()?;
        }
        self.pages.trim();
        if self.wants_cleaning() {
            self.clean(self.cleaning_goal())?;
        }
        Ok(())
    }

    /// Whether nothing has joined a log since the last round.
    fn is_at_rest(&self) -> bool {
        let handles = self.journal().counters().handles;
        let before = self.background.handles.swap(handles, Ordering::Relaxed);
        before == handles
    }

    /// Whether some log is over half full, or over a quarter of the node cache is dirty: a
    /// checkpoint then comes before operations have to make room.
    fn wants_checkpoint(&self) -> bool {
        let journal = self.journal();
        let half_full = (0..self.layout.journals).any(|index| {
            let usage = journal.usage(journal_id(index));
            usage.used * 2 > usage.capacity
        });
        half_full || self.nodes.dirty_count() * 4 > self.nodes.nodes_max()
    }
}
