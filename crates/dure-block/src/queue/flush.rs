//! The compound flush: concurrent callers share one device flush, never one that started too early.
//!
//! **Problem.** A flush costs more than all other requests together, so callers must share; but a
//! flush that is under way when a caller arrives may not cover the caller's writes. **Structure.**
//! Flushes are numbered as they start. A caller needs the next number to start. A caller that finds
//! no flush running becomes the leader and starts that number itself, for all that need it: there
//! is no flush thread. Committers would fall into two groups, each waiting for the other's flush;
//! so the leader first waits for the sharers of the last flush to come back, for at most a quarter
//! of the time that it took (ext4's journal does the same with its average commit time).
//!
//! # Which writes a flush covers
//! **Invariants.** A caller returns only on the result of a flush that *started* after its call; a
//! failed flush fails each of its sharers exactly once; at most one shared flush of a queue runs.
//! **Crash.** A caller that got `Ok` finds after the crash every write that completed before its
//! call:
//!
//! ```text
//! A: write a ... flush 1 starts .................... ends
//! B:                    write b ... call             (flush 1 does not cover b: crash loses b)
//!                                                    flush 2 starts ... ends, B returns
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Condvar, Mutex, MutexGuard, clock};

use crate::rank::FLUSH_RANK;
use crate::{Error, Result};

/// How [`crate::Queue::flush`] shares device flushes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum FlushPolicy {
    /// Callers share while flushes are slow, and flush by themselves while they are fast: waiting
    /// for another core costs a wake-up, tens of microseconds on many machines (the default).
    #[default]
    Adaptive,
    /// Callers share the next flush to start.
    Compound,
    /// Each caller flushes by itself: the baseline.
    Separate,
    /// **Loses data.** Callers share the flush that is running. A canary: tests must fail with it.
    CanarySharesRunning,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last flush that started.
    started: u64,
    /// Whether flush `started` is still running.
    running: bool,
    /// Callers that need flush `started + 1`, its future leader included.
    next_sharers: u64,
    /// The leader of flush `started + 1` waits for more sharers.
    gathering: bool,
    /// Callers of `flush` when the last flush ended: its sharers, and those that had come too late
    /// for it.
    expected: u64,
    /// When the last flush ended, and how long it took, in ns.
    ended_ns: u64,
    took_ns: u64,
    /// Failed flushes, with the number of sharers that have not taken the error yet.
    failed: BTreeMap<u64, (Error, u64)>,
}

impl State {
    fn is_finished(&self, number: u64) -> bool {
        number < self.started || (number == self.started && !self.running)
    }

    /// The result of a finished flush, for one of its sharers.
    fn take_result(&mut self, number: u64) -> Result<()> {
        assert!(self.is_finished(number), "the flush has finished");
        let Some((error, untold)) = self.failed.get_mut(&number) else {
            return Ok(());
        };
        let error = error.clone();
        *untold -= 1;
        if *untold == 0 {
            self.failed.remove(&number);
        }
        Err(error)
    }
}

/// After a flush longer than this, callers share. Sharing is not free: a sharer sleeps and is
/// woken, tens of microseconds, and the device gets one flush at a time although most can run
/// several. On devices with flushes of 40 to 60 us (a virtio disk, a loop device) two callers with
/// separate flushes have 1.15 to 1.4 times the rate of two that share, and sixteen 1.05 to 1.3
/// times.
const SLOW_NS: u64 = 200_000;
/// After a flush shorter than this, they flush by themselves again; the gap keeps the policy from
/// switching at every flush.
const FAST_NS: u64 = 120_000;
/// A leader waits for at most the duration of the last flush divided by this.
const GATHER_SHARE: u64 = 4;
/// A leader does not wait if more callers than this are expected: half of them share a flush
/// anyway, and the other half works meanwhile (64 callers on 2 cores lost a fifth of their rate by
/// waiting).
const CROWD: u64 = 32;

/// Shares flushes of one device.
#[derive(Debug)]
pub(crate) struct FlushGate {
    policy: FlushPolicy,
    /// Policy `Adaptive`: flushes are slow. Read by every caller, written when that changes.
    slow: AtomicBool,
    state: Mutex<FLUSH_RANK, State>,
    finished: Condvar,
    /// Signalled when all sharers that a leader waits for have come.
    gathered: Condvar,
}

impl FlushGate {
    pub(crate) fn new(policy: FlushPolicy) -> Self {
        Self {
            policy,
            slow: AtomicBool::new(true),
            state: Mutex::new(State::default()),
            finished: Condvar::new(),
            gathered: Condvar::new(),
        }
    }

    /// Returns when a flush that started after this call has finished. `device_flush` runs on this
    /// core, with no lock held, if this caller starts it.
    pub(crate) fn flush(&self, device_flush: impl FnOnce() -> Result<()>) -> Result<()> {
        // Relaxed: the flag decides which caller flushes, not what a flush covers.
        let fast = self.policy == FlushPolicy::Adaptive && !self.slow.load(Ordering::Relaxed);
        if fast || self.policy == FlushPolicy::Separate {
            return self.timed(device_flush).0;
        }
        let mut state = self.state.lock();
        if self.policy == FlushPolicy::CanarySharesRunning && state.running {
            let number = state.started;
            while !state.is_finished(number) {
                state = self.finished.wait(state);
            }
            return Ok(());
        }
        let number = state.started + 1;
        state.next_sharers += 1;
        if state.gathering && state.next_sharers >= state.expected {
            self.gathered.notify_one();
        }
        while state.running || state.gathering || state.started >= number {
            if state.is_finished(number) {
                return state.take_result(number);
            }
            state = self.finished.wait(state);
        }
        // No flush is running and ours has not started: start it for all that need it.
        assert_eq!(state.started + 1, number, "flushes start in order");
        let mut state = self.gather(state);
        state.started = number;
        state.running = true;
        let sharers = std::mem::take(&mut state.next_sharers);
        assert!(sharers > 0, "the leader is a sharer");
        drop(state);

        let (result, took_ns, ended_ns) = self.timed(device_flush);

        let mut state = self.state.lock();
        (state.took_ns, state.ended_ns) = (took_ns, ended_ns);
        state.expected = sharers + state.next_sharers;
        assert!(
            state.running && state.started == number,
            "one flush runs at a time"
        );
        state.running = false;
        if let Err(error) = &result
            && sharers > 1
        {
            state.failed.insert(number, (error.clone(), sharers - 1));
        }
        drop(state);
        self.finished.notify_all();
        result
    }

    /// Waits until all expected sharers have come, but not for long.
    fn gather<'g>(
        &'g self,
        mut state: MutexGuard<'g, FLUSH_RANK, State>,
    ) -> MutexGuard<'g, FLUSH_RANK, State> {
        if state.expected > CROWD {
            return state;
        }
        let end = state.ended_ns + state.took_ns / GATHER_SHARE;
        state.gathering = true;
        while state.next_sharers < state.expected {
            let left = end.saturating_sub(clock::monotonic_ns());
            if left == 0 {
                break;
            }
            (state, _) = self
                .gathered
                .wait_timeout(state, Duration::from_nanos(left));
        }
        state.gathering = false;
        state
    }

    /// Runs the flush and notes whether flushes are slow. Also returns how long it took, and when
    /// it ended.
    fn timed(&self, device_flush: impl FnOnce() -> Result<()>) -> (Result<()>, u64, u64) {
        let start = clock::monotonic_ns();
        let result = device_flush();
        let end = clock::monotonic_ns();
        let took = end - start;
        if self.policy != FlushPolicy::Adaptive {
            return (result, took, end);
        }
        // Relaxed: see above. Stored only when it changes, so that the line stays shared.
        let slow = self.slow.load(Ordering::Relaxed);
        if slow && took < FAST_NS || !slow && took > SLOW_NS {
            self.slow.store(!slow, Ordering::Relaxed);
        }
        (result, took, end)
    }
}
