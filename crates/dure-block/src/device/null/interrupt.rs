//! The thread of a core that completes requests.
//!
//! **Problem.** A request whose submitter completes it is never under way. **Structure.**
//! [`Interrupts`] is a queue of requests, each with the time when it is due, and a thread bound to
//! the core that takes them out; it sleeps while there is none. **Invariants.** All requests take the
//! same time, so they are due in the order of their arrival. The queue is as long as requests have
//! tags. **Crash.** Nothing is kept.

use std::collections::VecDeque;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, Condvar, CoreId, Mutex, clock, futex, thread};

use crate::Request;
use crate::rank::LANE_RANK;

/// A caller that sleeps until its synchronous request is complete. Written by the thread (Release),
/// read by the caller (Acquire).
type Done = Arc<AtomicU32>;

#[derive(Debug)]
enum Pending {
    Submitted(Request),
    Called(Done),
}

impl Pending {
    fn complete(self) {
        match self {
            Self::Submitted(request) => request.complete(Ok(())),
            Self::Called(done) => {
                // Release: pairs with the Acquire in `call`.
                done.store(1, Ordering::Release);
                futex::wake(&done, 1);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Lane {
    /// With the times when they are due.
    requests: VecDeque<(u64, Pending)>,
    ends: bool,
}

#[derive(Debug)]
struct Shared {
    /// [223]
    lane: Mutex<LANE_RANK, Lane>,
    changed: Condvar,
    after_ns: u64,
}

/// What completes the requests of a core.
#[derive(Debug)]
pub(super) struct Interrupts {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Interrupts {
    /// Starts the thread of `core`, which completes requests after `after`.
    pub(super) fn start(core: CoreId, after: Duration) -> Self {
        let shared = Arc::new(Shared {
            lane: Mutex::new(Lane::default()),
            changed: Condvar::new(),
            after_ns: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX),
        });
        let own = Arc::clone(&shared);
        Self {
            shared,
            thread: Some(thread::spawn_vital("null", &[core], move || own.run())),
        }
    }

    pub(super) fn submit(&self, request: Request) {
        self.shared.push(Pending::Submitted(request));
    }

    /// Returns when a request of this moment is complete.
    pub(super) fn call(&self) {
        let done = Done::new(AtomicU32::new(0));
        self.shared.push(Pending::Called(Arc::clone(&done)));
        // Acquire: pairs with the Release in `complete`.
        while done.load(Ordering::Acquire) == 0 {
            futex::wait(&done, 0, None);
        }
    }
}

impl Shared {
    fn push(&self, pending: Pending) {
        let due_ns = match self.after_ns {
            0 => 0,
            after_ns => clock::monotonic_ns().saturating_add(after_ns),
        };
        let mut lane = self.lane.lock();
        lane.requests.push_back((due_ns, pending));
        let was_empty = lane.requests.len() == 1;
        drop(lane);
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// Completes requests until the device is dropped.
    fn run(&self) {
        let mut lane = self.lane.lock();
        loop {
            let Some((due_ns, _)) = lane.requests.front() else {
                if lane.ends {
                    return;
                }
                lane = self.changed.wait(lane);
                continue;
            };
            let left_ns = match (self.after_ns, lane.ends) {
                (0, _) | (_, true) => 0,
                _ => due_ns.saturating_sub(clock::monotonic_ns()),
            };
            if left_ns > 0 {
                let left = Duration::from_nanos(left_ns);
                lane = self.changed.wait_timeout(lane, left).0;
                continue;
            }
            let (_, pending) = lane.requests.pop_front().expect("there is one");
            drop(lane);
            pending.complete();
            lane = self.lane.lock();
        }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.shared.lane.lock().ends = true;
        self.shared.changed.notify_one();
        // A vital thread that panics ends the process.
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}
