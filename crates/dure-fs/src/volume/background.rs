//! Work nobody asked for: commits and write-back every `commit_interval`, checkpoints and cleaning before
//! they become urgent. One thread, which sleeps while there is nothing to do.

use std::time::Duration;

use dure_sync::{Arc, Condvar, Mutex, Weak, thread};

use super::{Background, Volume};
use crate::ranks::FLUSHER;
use crate::units::journal_id;

/// The thread and the way to end it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<FLUSHER, State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
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

/// Ends when told to, or when the volume is gone.
fn run(inner: &Inner, volume: &Weak<Volume>, interval: Duration) {
    loop {
        let state = inner.state.lock();
        if state.stop {
            return;
        }
        let (state, _) = inner.wake.wait_timeout(state, interval);
        if state.stop {
            return;
        }
        drop(state);
        let Some(volume) = volume.upgrade() else {
            return;
        };
        // A failure has stopped the volume and shows at the next fsync; there is nobody to tell here.
        let _ = volume.background_round();
    }
}

impl Volume {
    /// One round: writes access times and old pages back, commits, and checkpoints when logs or dirty nodes ask for it.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn background_round(&self) -> crate::error::Result<()> {
        self.check_writable()?;
        self.write_access_times();
        self.write_back_all()?;
        self.commit_all()?;
        if self.wants_checkpoint() {
            self.checkpoint()?;
        }
        if self.wants_cleaning() {
            self.clean(self.cleaning_goal())?;
        }
        Ok(())
    }

    /// Whether some log is half full, or half of the node cache is dirty.
    fn wants_checkpoint(&self) -> bool {
        let journal = self.journal();
        let half_full = (0..self.layout.journals).any(|index| {
            let usage = journal.usage(journal_id(index));
            usage.used * 2 > usage.capacity
        });
        half_full || self.nodes.dirty_count() * 2 > self.nodes.nodes_max()
    }
}
