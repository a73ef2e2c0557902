//! The worker threads, and stand-ins for those that wait for the device.
//!
//! **Problem.** One worker per core keeps the cores busy, until as many callers wait in fsync(2) as
//! there are workers: then no thread answers, and the next fsync cannot share their flush.
//! **Structure.** A worker announces that it is about to wait for the device. If no thread is left
//! to answer, a resting one is woken, or another is started. When the wait is over and enough
//! threads are answering, the thread rests: it takes no requests until it is woken.
//!
//! **Invariants.** The number of stand-ins is bounded by the size of the cache. When one thread has
//! ended, no thread rests any more, so that all see the end of the connection. Only requests that
//! flush, or for which the server asks the kernel about an inode, take the crew's lock. **Crash.**
//! Nothing is kept.
//!
//! # Why not more threads at all times
//! The kernel hands requests round-robin to all threads that wait for one, and each thread's caches
//! are colder than the last's.

use std::io;

use dure_sync::thread::{self, JoinHandle};
use dure_sync::{Arc, Condvar, Mutex};

/// Rank of the crew's lock; nothing is taken under it.
const CREW: u8 = 11;
/// Least and greatest number of stand-ins.
const STAND_INS: (usize, usize) = (2, 64);
/// Cache memory required for each stand-in: it takes up to a megabyte of its own while all are
/// busy.
const CACHE_BYTES: u64 = 8 << 20;

/// What a thread of the crew does until the connection ends.
pub type Work = dyn Fn(&Arc<Crew>) -> io::Result<()> + Send + Sync;

/// How many threads a session may have besides its workers, with a cache of so many bytes.
#[must_use]
pub fn stand_ins(cache_bytes: u64) -> usize {
    let afforded = usize::try_from(cache_bytes / CACHE_BYTES).unwrap_or(STAND_INS.1);
    afforded.clamp(STAND_INS.0, STAND_INS.1)
}

/// The threads of a session.
pub struct Crew {
    work: Box<Work>,
    workers: usize,
    stand_ins: usize,
    state: Mutex<CREW, State>,
    /// Signalled to wake a resting thread.
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that were started.
    started: usize,
    /// Started threads that wait for the device.
    waiting: usize,
    /// Started threads that rest and were not woken.
    resting: usize,
    /// Wake-ups that no thread has taken yet.
    calls: usize,
    /// No thread may rest any more: one has ended.
    all_hands: bool,
    /// Threads that are not joined yet.
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl State {
    /// Threads that answer, or are about to.
    fn free(&self) -> usize {
        let away = self.waiting + self.resting;
        self.started
            .checked_sub(away)
            .expect("no more workers wait and rest than were started")
    }
}

impl Crew {
    /// Runs `work` in `workers` threads, and in up to `stand_ins` more when those wait for the
    /// device, until all have ended.
    ///
    /// # Errors
    /// That of the first that failed; the others went on until the end.
    pub fn run(workers: usize, stand_ins: usize, work: Box<Work>) -> io::Result<()> {
        assert!(workers > 0, "at least one worker answers requests");
        let crew = Arc::new(Crew {
            work,
            workers,
            stand_ins,
            state: Mutex::new(State::default()),
            called: Condvar::new(),
        });
        for _ in 0..workers {
            Crew::start(&crew, &mut crew.state.lock());
        }
        let mut result = Ok(());
        loop {
            // A thread that starts another adds it to the list before it ends itself.
            let Some(thread) = crew.state.lock().threads.pop() else {
                return result;
            };
            let ended = thread
                .join()
                .expect("a worker that panics ends the process");
            result = result.and(ended);
        }
    }

    /// The calling worker is about to wait for the device: ensures that another thread can answer,
    /// if the limit allows one.
    pub fn begin_wait(crew: &Arc<Crew>) {
        let mut state = crew.state.lock();
        state.waiting += 1;
        if state.free() > 0 {
            return;
        }
        if state.resting > 0 {
            state.resting -= 1;
            state.calls += 1;
            drop(state);
            crew.called.notify_one();
        } else if state.started < crew.workers + crew.stand_ins {
            Crew::start(crew, &mut state);
        }
    }

    /// The calling worker's wait is over, and it has answered. If enough threads are answering, it
    /// rests until it is woken, after `before_rest`.
    pub fn end_wait(&self, before_rest: impl FnOnce()) {
        let mut state = self.state.lock();
        assert!(
            state.waiting > 0,
            "the worker was counted when it began to wait"
        );
        state.waiting -= 1;
        if state.free() <= self.workers || state.all_hands {
            return;
        }
        state.resting += 1;
        drop(state);
        before_rest();
        let mut state = self.state.lock();
        while state.calls == 0 && !state.all_hands {
            state = self.called.wait(state);
        }
        if state.calls > 0 {
            state.calls -= 1;
        } else {
            state.resting -= 1;
        }
    }

    fn start(crew: &Arc<Crew>, state: &mut State) {
        let member = Arc::clone(crew);
        let name = format!("dure-fuse-{}", state.started);
        state.started += 1;
        state.threads.push(thread::spawn(&name, move || {
            let unless_done = EndOfProcess;
            let ended = (member.work)(&member);
            member.state.lock().all_hands = true;
            member.called.notify_all();
            std::mem::forget(unless_done);
            ended
        }));
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("workers", &self.workers)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Ends the process when a panic drops it: a caller that waits for this worker's reply would
/// otherwise wait for ever.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use dure_sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Rank of the counts of a test.
    const COUNTS: u8 = 12;

    #[derive(Debug, Default)]
    struct Counts {
        /// Threads now taking requests, and the most of them ever.
        taking: usize,
        most: usize,
        /// Requests left.
        left: usize,
    }

    /// All callers wait for one flush that comes when they are `together`; then the requests are
    /// short.
    #[test]
    fn as_many_wait_as_have_to_and_then_few_answer() {
        const TOGETHER: usize = 9;
        let counts = Arc::new(Mutex::<COUNTS, Counts>::new(Counts {
            left: 400,
            ..Counts::default()
        }));
        let arrived = Arc::new(AtomicUsize::new(0));
        let (seen, flush) = (Arc::clone(&counts), Arc::clone(&arrived));
        let work = move |crew: &Arc<Crew>| {
            loop {
                {
                    let mut counts = counts.lock();
                    if counts.left == 0 {
                        return Ok(());
                    }
                    counts.left -= 1;
                    if flush.load(Ordering::SeqCst) > TOGETHER {
                        counts.taking += 1;
                        counts.most = counts.most.max(counts.taking);
                    }
                }
                if flush.fetch_add(1, Ordering::SeqCst) < TOGETHER {
                    Crew::begin_wait(crew);
                    while flush.load(Ordering::SeqCst) < TOGETHER {
                        thread::yield_now();
                    }
                    // So that all of them end their wait after the last one began.
                    thread::sleep(std::time::Duration::from_millis(50));
                    crew.end_wait(|| {});
                } else {
                    thread::sleep(std::time::Duration::from_millis(1));
                    let mut counts = counts.lock();
                    counts.taking = counts.taking.saturating_sub(1);
                }
            }
        };
        Crew::run(2, 64, Box::new(work)).unwrap();
        // It came to the flush at all: with two threads it never would.
        assert!(arrived.load(Ordering::SeqCst) > TOGETHER);
        let counts = seen.lock();
        assert_eq!(counts.left, 0);
        assert!((1..=2).contains(&counts.most), "{counts:?}");
    }

    #[test]
    fn a_small_cache_pays_for_few_stand_ins() {
        assert_eq!([16, 64, 1024].map(|mib| stand_ins(mib << 20)), [2, 8, 64]);
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let work = move |crew: &Arc<Crew>| {
            begun.fetch_add(1, Ordering::SeqCst);
            Crew::begin_wait(crew);
            // Long enough for every thread that the others start.
            thread::sleep(std::time::Duration::from_millis(200));
            crew.end_wait(|| {});
            Ok(())
        };
        Crew::run(2, stand_ins(16 << 20), Box::new(work)).unwrap();
        assert_eq!(counted.load(Ordering::SeqCst), 2 + 2);
    }

    #[test]
    fn an_error_of_one_is_told_when_all_have_ended() {
        let turns = AtomicUsize::new(0);
        let work = move |_: &Arc<Crew>| match turns.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::other("broken")),
            _ => Ok(()),
        };
        let error = Crew::run(3, 64, Box::new(work)).unwrap_err();
        assert_eq!(error.to_string(), "broken");
    }
}
