//! Who answers: the workers, and stand-ins for those that wait for the device.
//!
//! **Problem.** One worker per core keeps the cores busy, until as many callers wait in fsync(2) as there
//! are workers: then nobody answers, and the next fsync cannot share their flush. **Structure.** A worker
//! says when it begins to wait for the device and when that ends; if nobody is left to answer, another
//! thread starts. **Invariants.** At most [`STAND_INS`] are started; they stay until the end, and sleep
//! while there is nothing to do. Only requests that flush take the crew's lock. **Crash.** Nothing is
//! kept.

use std::io;

use dure_sync::thread::{self, JoinHandle};
use dure_sync::{Arc, Mutex};

/// Rank of the crew's lock; nothing is taken under it.
const CREW: u8 = 11;
/// More threads than workers at most.
const STAND_INS: usize = 64;

/// What a thread of the crew does until the connection ends.
pub type Work = dyn Fn(&Arc<Crew>) -> io::Result<()> + Send + Sync;

/// The threads of a session.
pub struct Crew {
    work: Box<Work>,
    state: Mutex<CREW, State>,
    most: usize,
}

#[derive(Debug)]
struct State {
    /// Threads that were started.
    started: usize,
    /// Of them, those that wait for the device.
    waiting: usize,
    /// Those nobody has joined.
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Crew {
    /// Runs `work` in `workers` threads, and more when those wait for the device, until all have ended.
    ///
    /// # Errors
    /// That of the first that failed; the others went on until the end.
    pub fn run(workers: usize, work: Box<Work>) -> io::Result<()> {
        assert!(workers > 0, "somebody has to answer");
        let crew = Arc::new(Crew {
            work,
            state: Mutex::new(State {
                started: 0,
                waiting: 0,
                threads: Vec::new(),
            }),
            most: workers + STAND_INS,
        });
        for _ in 0..workers {
            Crew::start(&crew);
        }
        let mut result = Ok(());
        loop {
            // A thread that starts another one enters it before it ends itself.
            let Some(thread) = crew.state.lock().threads.pop() else {
                return result;
            };
            let ended = thread.join().expect("a panic has ended the process");
            result = result.and(ended);
        }
    }

    /// Calls `wait`, which waits for the device, and sees to it that somebody else answers meanwhile.
    pub fn stand_in_during<T>(crew: &Arc<Crew>, wait: impl FnOnce() -> T) -> T {
        let nobody_left = {
            let mut state = crew.state.lock();
            state.waiting += 1;
            assert!(state.waiting <= state.started, "only the crew waits");
            state.waiting == state.started && state.started < crew.most
        };
        if nobody_left {
            Crew::start(crew);
        }
        let result = wait();
        crew.state.lock().waiting -= 1;
        result
    }

    fn start(crew: &Arc<Crew>) {
        let member = Arc::clone(crew);
        let mut state = crew.state.lock();
        let name = format!("dure-fuse-{}", state.started);
        state.started += 1;
        state.threads.push(thread::spawn(&name, move || {
            let unless_done = EndOfProcess;
            let ended = (member.work)(&member);
            std::mem::forget(unless_done);
            ended
        }));
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("state", &self.state)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// Ends the process when a panic drops it: whoever waits for the worker's answer would wait for ever.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        std::process::abort();
    }
}
