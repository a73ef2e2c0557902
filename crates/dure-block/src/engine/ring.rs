//! A ring: several requests in flight from one core, whatever passes them to the kernel.
//!
//! **Problem.** A core that waits for each request in turn gets one request's latency; threads that
//! wait for it cost a wake-up. **Structure.** A ring per core over a [`Channel`] (io_uring, libaio),
//! created at first use. Submitting puts a request into the ring's table and its entry into the
//! channel; `kick` passes the entries to the kernel. A task that waits becomes the ring's *reaper*:
//! it holds `reaping`, sleeps in the kernel, and completes the requests that arrive, its own and
//! others'. A task that finds a reaper there sleeps on `turn`.
//!
//! # Ownership of requests
//! **Invariants.** A request is in the table from before the kernel gets it until its completion is
//! reaped, so its memory stays. Completions are run under `reaping`: a holder that finds its
//! request incomplete knows that the kernel still has it. A ring is dropped only when nothing is in
//! flight. `submitting` is held over the submitting system call, `reaping` over the waiting one;
//! both belong to one core's ring.
//!
//! # What the kernel refuses
//! A request that it refuses ([`Refused::First`]) is put into `refused`, and the reaper completes
//! it with the error. A channel whose calls fail for good fails its ring ([`Failure`]): what the
//! kernel has not taken is refused, and all that is submitted later. What it has taken it goes on
//! with, and completions are still found in shared memory: they are looked for during a second.
//! Then the requests that are left are *abandoned*: each is an error, and its memory stays
//! allocated for ever, as the kernel may still use it.
//! A kernel that is *busy* (EAGAIN, EBUSY, ENOMEM) is asked again: at once during a millisecond,
//! then every millisecond, and if during 10 s it has neither taken a request nor
//! completed one, the ring fails with that error.
//!
//! # No sleeper is forgotten
//! A task that finds a reaper counts itself as a sleeper, loads `turn`, and then tries `reaping`
//! once more; the reaper lets `reaping` go, raises `turn`, and then looks at the sleepers:
//!
//! ```text
//! sleeper: sleepers += 1; seen = turn; reaping taken? sleep while turn == seen
//! reaper:  let reaping go; turn += 1; sleepers > 0? wake them
//! ```
//!
//! Either the reaper sees the sleeper, or the sleeper the new `turn`. The loom model
//! (`dure-sync/tests/loom/ring.rs`) compiles this file as it is. **Crash.** See [`crate::engine`].

use std::time::Duration;
use std::{fmt, mem};

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Mutex, MutexGuard, futex, thread};

pub(crate) use self::channel::{Arrived, Channel, Refused, Take};
use self::table::{Failure, LOOK_PAUSE, LOOKS_MAX, Table};
use crate::rank::{REAPING_RANK, SUBMITTING_RANK};

// The models compile this file as a module of theirs.
#[path = "ring/channel.rs"]
mod channel;
#[path = "ring/table.rs"]
mod table;

/// How many completions are taken from the kernel at a time.
const BATCH: usize = 16;

/// One ring.
pub(crate) struct Ring<C: Channel> {
    channel: C,
    submitting: Mutex<SUBMITTING_RANK, Table<C>>,
    reaping: Mutex<REAPING_RANK, ()>,
    /// Incremented by the reaper when it has completed requests or leaves; non-reapers sleep on it.
    turn: AtomicU32,
    /// Non-reapers between reading `turn` and waking.
    sleepers: AtomicU32,
}

impl<C: Channel> Ring<C> {
    pub(crate) fn new(channel: C) -> Self {
        Self {
            channel,
            submitting: Mutex::new(Table::new()),
            reaping: Mutex::new(()),
            turn: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// What it passes requests through.
    pub(crate) fn channel(&self) -> &C {
        &self.channel
    }

    /// Takes a request.
    pub(crate) fn submit(&self, flight: C::Flight) {
        let mut table = self.submitting.lock();
        let index = table.free.pop().unwrap_or_else(|| {
            table.flights.push(None);
            table.flights.len() - 1
        });
        table.flights[index] = Some(flight);
        table.in_flight += 1;
        loop {
            if let Some(Failure { code, .. }) = table.failure {
                table.refused.push(Arrived { index, code });
                return;
            }
            let Table {
                flights, entries, ..
            } = &mut *table;
            let flight = flights[index].as_mut().expect("it was put there above");
            if self.channel.push(entries, index, flight) {
                break;
            }
            self.kick_locked(&mut table);
            if table.busy_since_ns.is_some() {
                // It may be busy because of completions, and the task that reaps needs the table.
                let pause = table.pause();
                drop(table);
                if self.poll(Take::Ready) == 0 {
                    sleep(pause);
                }
                table = self.submitting.lock();
            }
        }
        table.pushed.push(index);
    }

    /// Passes all submitted requests to the kernel.
    pub(crate) fn kick(&self) {
        self.kick_locked(&mut self.submitting.lock());
    }

    fn kick_locked(&self, table: &mut Table<C>) {
        if table.pushed.is_empty() {
            return;
        }
        for index in &table.pushed {
            if let Some(flight) = &mut table.flights[*index] {
                C::dispatched(flight);
            }
        }
        while !table.pushed.is_empty() {
            match self.channel.pass(&mut table.entries, table.pushed.len()) {
                Ok(taken) => {
                    table.pushed.drain(..taken);
                    table.busy_since_ns = None;
                }
                // The next kick passes what is left, and every waiter kicks.
                Err(Refused::Busy(code)) => return table.busy(code),
                Err(Refused::First(code)) => {
                    let index = table.pushed.remove(0);
                    table.refused.push(Arrived { index, code });
                }
                Err(Refused::All(code)) => table.fail(code),
            }
        }
    }

    /// Passes all submitted requests to the kernel, and completes those that it refuses.
    fn kick_and_refuse(&self, _reaping: &MutexGuard<'_, REAPING_RANK, ()>) -> usize {
        let refused = {
            let mut table = self.submitting.lock();
            self.kick_locked(&mut table);
            mem::take(&mut table.refused)
        };
        refused.chunks(BATCH).map(|some| self.complete(some)).sum()
    }

    /// Returns when `is_done`, which the completion of a request of this ring makes true.
    pub(crate) fn wait(&self, is_done: impl Fn() -> bool) {
        while !is_done() {
            match self.reaping.try_lock() {
                Some(reaping) => {
                    let refused = self.kick_and_refuse(&reaping);
                    if refused + self.reap(&reaping) == 0 && !is_done() {
                        self.sleep_in_kernel(&reaping);
                    }
                    drop(reaping);
                    self.pass_turn();
                }
                None => self.sleep_for_turn(&is_done),
            }
        }
    }

    /// Runs the completions that have arrived, or waits for one if any request is in flight.
    pub(crate) fn poll(&self, take: Take) -> usize {
        let Some(reaping) = self.reaping.try_lock() else {
            self.kick();
            return 0;
        };
        let mut count = self.kick_and_refuse(&reaping) + self.reap(&reaping);
        if count == 0 && take == Take::One && self.submitting.lock().in_flight > 0 {
            count = self.sleep_in_kernel(&reaping);
        }
        drop(reaping);
        self.pass_turn();
        count
    }

    /// Waits until the kernel has a completion for this ring, and runs it.
    fn sleep_in_kernel(&self, reaping: &MutexGuard<'_, REAPING_RANK, ()>) -> usize {
        let mut table = self.submitting.lock();
        if !table.pushed.is_empty() || !table.refused.is_empty() {
            // The kernel does not have all requests: do not wait for one it does not have.
            let pause = table.pause();
            drop(table);
            sleep(pause);
            return self.reap(reaping);
        }
        let Some(failure) = &mut table.failure else {
            drop(table);
            let count = self.run_arrived(Take::One);
            if count == 0 {
                let pause = self.submitting.lock().pause();
                sleep(pause);
            }
            return count;
        };
        if failure.looks < LOOKS_MAX {
            failure.looks += 1;
            drop(table);
            thread::sleep(LOOK_PAUSE);
            return self.reap(reaping);
        }
        let code = failure.code;
        let abandoned = table.abandon();
        drop(table);
        let count = abandoned.len();
        let abandon = |flight| self.channel.abandon(flight, code);
        abandoned.into_iter().for_each(abandon);
        count
    }

    /// Runs all completions that have arrived.
    fn reap(&self, _reaping: &MutexGuard<'_, REAPING_RANK, ()>) -> usize {
        let mut count = 0;
        loop {
            match self.run_arrived(Take::Ready) {
                0 => return count,
                more => count += more,
            }
        }
    }

    /// Takes a batch of completions and runs them. The caller holds `reaping`.
    fn run_arrived(&self, take: Take) -> usize {
        let mut arrived = [Arrived::default(); BATCH];
        match self.channel.take(take, &mut arrived) {
            Ok(count) => self.complete(&arrived[..count]),
            Err(refused) => {
                let mut table = self.submitting.lock();
                match refused {
                    Refused::Busy(code) => table.busy(code),
                    Refused::First(code) | Refused::All(code) => table.fail(code),
                }
                0
            }
        }
    }

    /// Completes the flights of a batch; returns how many are not abandoned. The caller holds
    /// `reaping`.
    fn complete(&self, arrived: &[Arrived]) -> usize {
        if arrived.is_empty() {
            return 0;
        }
        let mut count = 0;
        let mut flights = [const { None }; BATCH];
        {
            let mut table = self.submitting.lock();
            for (place, arrived) in flights.iter_mut().zip(arrived) {
                *place = table.flights[arrived.index].take();
                if place.is_none() {
                    let has_failed = table.failure.is_some();
                    assert!(has_failed, "the kernel completes a request once");
                    continue;
                }
                table.free.push(arrived.index);
                count += 1;
            }
            table.in_flight -= count;
            table.busy_since_ns = None;
        }
        for (flight, arrived) in flights.into_iter().zip(arrived) {
            if let Some(flight) = flight {
                self.channel.finish(flight, arrived.code);
            }
        }
        count
    }

    fn sleep_for_turn(&self, is_done: &impl Fn() -> bool) {
        // SeqCst: either the reaper sees us in `sleepers`, or we see its `turn`.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.turn.load(Ordering::SeqCst);
        match self.reaping.try_lock() {
            // The reaper has just left: it may have raised `turn` before we loaded `seen`. Another
            // task may have gone to sleep because we held the lock.
            Some(reaping) => {
                drop(reaping);
                self.pass_turn();
            }
            None if is_done() => {}
            None => drop(futex::wait(&self.turn, seen, None)),
        }
        // Relaxed: a reaper that still counts us wakes no task.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn pass_turn(&self) {
        // SeqCst: see `sleep_for_turn`.
        self.turn.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.turn, u32::MAX);
        }
    }

    /// Waits until the kernel has no request of this ring any more.
    pub(crate) fn drain(&self) {
        while self.submitting.lock().in_flight > 0 {
            self.poll(Take::One);
        }
    }
}

/// Lets others run, at least.
fn sleep(pause: Duration) {
    match pause {
        Duration::ZERO => thread::yield_now(),
        _ => thread::sleep(pause),
    }
}

impl<C: Channel> fmt::Debug for Ring<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl<C: Channel> Drop for Ring<C> {
    fn drop(&mut self) {
        assert_eq!(
            self.submitting.get_mut().in_flight,
            0,
            "a ring is drained before it is dropped"
        );
    }
}
