//! Threads that answer what a ring's thread must not wait for.
//!
//! **Problem.** All requests of a CPU come to one thread. One that waits for the device's flush, or
//! for deletions, would keep the others waiting. **Structure.** The ring's thread hands over the
//! entry; a helper answers it and puts it into the ring's [`Returns`], from which the ring's thread
//! sends it: only that thread talks to its ring. **Invariants.** An entry that was handed over comes
//! back. There are as many helpers as entries at most, and no more than the cache pays for. A
//! helper that panics ends the process. **Crash.** Nothing is kept.

use std::collections::VecDeque;

use dure_sync::thread::{self, JoinHandle};
use dure_sync::{Arc, Condvar, CoreId, Mutex};

use super::entry::{Desk, Entry, Patience};
use super::port::Bell;
use super::schedule::{Policy, policy, set_policy};
use crate::service::{Asks, Service};

/// Rank of the helpers' lock; nothing is taken under it.
const HELPERS: u8 = 13;
/// Rank of the lock of what a ring gets back; nothing is taken under it.
const RETURNS: u8 = 14;

/// Entries that helpers have answered, for the thread of their ring.
pub struct Returns {
    entries: Mutex<RETURNS, Vec<Entry>>,
    bell: Box<dyn Bell>,
}

impl Returns {
    /// None yet.
    #[must_use]
    pub fn new(bell: Box<dyn Bell>) -> Returns {
        Returns {
            entries: Mutex::new(Vec::new()),
            bell,
        }
    }

    /// Takes what there is. The caller that finds nothing may wait at its port.
    #[must_use]
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.entries.lock())
    }

    fn put(&self, entry: Entry) {
        let mut entries = self.entries.lock();
        entries.push(entry);
        let first = entries.len() == 1;
        drop(entries);
        // The task that put the first has rung, or is about to.
        if first {
            self.bell.ring();
        }
    }
}

impl std::fmt::Debug for Returns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Returns").finish_non_exhaustive()
    }
}

/// A request for a helper, and where its entry goes then.
struct Job {
    entry: Entry,
    returns: Arc<Returns>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

/// The helpers of all rings.
pub struct Helpers {
    service: Arc<dyn Service>,
    knows: Asks,
    threads_max: usize,
    /// Where they may run: a ring's thread, which starts them, is bound to one core.
    cores: Vec<CoreId>,
    /// How they run: a ring's thread, which starts them, may give way to its callers.
    policy: Option<Policy>,
    state: Mutex<HELPERS, State>,
    called: Condvar,
}

impl Helpers {
    /// At most `threads_max` of them, on any of `cores`, with the policy of the calling thread; they
    /// are started when they are needed.
    /// `knows` asks the kernel.
    #[must_use]
    pub fn new(
        service: &Arc<dyn Service>,
        knows: Asks,
        threads_max: usize,
        cores: Vec<CoreId>,
    ) -> Arc<Helpers> {
        assert!(threads_max > 0, "somebody has to answer");
        Arc::new(Helpers {
            service: Arc::clone(service),
            knows,
            threads_max,
            cores,
            policy: policy().ok().flatten(),
            state: Mutex::new(State::default()),
            called: Condvar::new(),
        })
    }

    /// Hands over an entry, which comes back through `returns`.
    pub fn take(helpers: &Arc<Helpers>, entry: Entry, returns: &Arc<Returns>) {
        let mut state = helpers.state.lock();
        assert!(!state.closed, "helpers end after the rings");
        let returns = Arc::clone(returns);
        state.jobs.push_back(Job { entry, returns });
        if state.jobs.len() > state.idle && state.threads.len() < helpers.threads_max {
            let helper = Arc::clone(helpers);
            let name = format!("dure-help-{}", state.threads.len());
            let work = move || {
                if let Some(policy) = helper.policy {
                    // A helper that stays as the ring's thread is slower, and no less correct.
                    let _ = set_policy(policy);
                }
                helper.work();
            };
            state
                .threads
                .push(thread::spawn_vital(&name, &helpers.cores, work));
        }
        drop(state);
        helpers.called.notify_one();
    }

    fn work(&self) {
        let mut desk = Desk::default();
        let mut state = self.state.lock();
        loop {
            if let Some(mut job) = state.jobs.pop_front() {
                drop(state);
                let patience = Patience::Waits(&*self.knows);
                job.entry.answer(&*self.service, &mut desk, patience);
                job.returns.put(job.entry);
                state = self.state.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.called.wait(state);
                state.idle -= 1;
            }
        }
    }

    /// Ends them: no ring has anything for them any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        assert!(state.jobs.is_empty(), "the rings have got back all entries");
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.called.notify_all();
        for thread in threads {
            thread
                .join()
                .expect("a helper that panics ends the process");
        }
    }
}

impl std::fmt::Debug for Helpers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helpers")
            .field("threads_max", &self.threads_max)
            .finish_non_exhaustive()
    }
}
