//! A ring on a simulated machine, over a kernel of a few lines: no completion is lost or run twice,
//! and nobody sleeps for ever, on every schedule; nor where the kernel refuses requests, or fails
//! for good and never completes some of those that it has.

use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::clock::monotonic_ns;
use dure_sync::sim::{Config, run, seeds};
use dure_sync::{Arc, Condvar, CoreId, Mutex, thread};

#[path = "../../src/engine/ring.rs"]
#[expect(dead_code, reason = "the model needs a part of it")]
mod source;

use source::{Arrived, Channel, Refused, Ring, Take};

/// Room of the submission queue.
const ENTRIES: usize = 2;

struct Flight {
    slot: Arc<AtomicU32>,
    number: u64,
}

/// Takes at most one entry at a time, now and then none, and completes it later, the last first.
#[derive(Default)]
struct Kernel {
    /// [220]
    state: Mutex<220, State>,
    came: Condvar,
    /// Each so many calls it refuses an entry; 0: never.
    refuses: u64,
    /// From this call it takes none, and completes no flight with an even index; 0: never.
    fails: u64,
    /// From this call it is busy for ever, and completes no flight with an even index; 0: never.
    is_busy_from: u64,
    completed: AtomicU64,
    refused: AtomicU64,
    abandoned: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Entries it has.
    taken: Vec<usize>,
    /// How often it was asked to take some.
    calls: u64,
    has_failed: bool,
    busy_since_ns: Option<u64>,
    /// Calls since it has been busy for 2 ms.
    late_calls: u64,
}

impl State {
    fn is_stuck(&self) -> bool {
        self.has_failed || self.busy_since_ns.is_some()
    }

    /// Whether it is busy; counts how often it says so.
    fn says_busy(&mut self) -> bool {
        let is_late = |since| monotonic_ns() - since > 2_000_000;
        self.late_calls += u64::from(self.busy_since_ns.is_some_and(is_late));
        self.busy_since_ns.is_some()
    }
}

/// What it says when it is busy, refuses, and fails.
const BUSY: i32 = -11;
const REFUSED: i32 = -9;
const FAILED: i32 = -22;

impl Kernel {
    fn complete(&self, flight: &Flight) {
        let before = flight.slot.swap(1, Ordering::Release);
        assert_eq!(before, 0, "flight {} completes once", flight.number);
        self.completed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Channel for Kernel {
    type Flight = Flight;
    type Entries = Vec<usize>;

    fn push(&self, entries: &mut Vec<usize>, index: usize, _flight: &mut Flight) -> bool {
        if entries.len() == ENTRIES {
            return false;
        }
        entries.push(index);
        true
    }

    fn pass(&self, entries: &mut Vec<usize>, pushed: usize) -> Result<usize, Refused> {
        assert_eq!(entries.len(), pushed, "each entry is passed once");
        let mut state = self.state.lock();
        assert!(!state.has_failed, "a ring that has failed passes nothing");
        state.calls += 1;
        if state.calls == self.fails {
            state.has_failed = true;
            self.came.notify_all();
            return Err(Refused::All(FAILED));
        }
        if self.refuses > 0 && state.calls.is_multiple_of(self.refuses) {
            entries.remove(0);
            return Err(Refused::First(REFUSED));
        }
        if state.calls == self.is_busy_from {
            state.busy_since_ns = Some(monotonic_ns());
            self.came.notify_all();
        }
        if state.says_busy() || state.calls.is_multiple_of(3) {
            return Err(Refused::Busy(BUSY));
        }
        state.taken.push(entries.remove(0));
        self.came.notify_all();
        Ok(1)
    }

    fn take(&self, take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused> {
        let mut state = self.state.lock();
        while take == Take::One && state.taken.is_empty() && !state.is_stuck() {
            state = self.came.wait(state);
        }
        if state.is_stuck() {
            state.taken.retain(|index| index % 2 == 1);
        }
        let Some(index) = state.taken.pop() else {
            return match take {
                Take::One if state.has_failed => Err(Refused::All(FAILED)),
                Take::One if state.says_busy() => Err(Refused::Busy(BUSY)),
                _ => Ok(0),
            };
        };
        drop(state);
        if take == Take::One {
            thread::sleep(Duration::from_micros(3));
        }
        arrived[0] = Arrived { index, code: 0 };
        Ok(1)
    }

    fn dispatched(_flight: &mut Flight) {}

    fn finish(&self, flight: Flight, code: i32) {
        assert!([0, BUSY, REFUSED, FAILED].contains(&code));
        self.refused
            .fetch_add(u64::from(code < 0), Ordering::Relaxed);
        self.complete(&flight);
    }

    fn abandon(&self, flight: Flight, code: i32) {
        assert!([BUSY, FAILED].contains(&code));
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.complete(&flight);
    }
}

const TASKS: u64 = 3;
const FLIGHTS: u64 = 4;
const CORES: usize = 3;

/// Tasks submit, wait for some, leave others to whoever comes; the ring is drained at the end.
fn share_a_ring(kernel: Kernel) -> Arc<Ring<Kernel>> {
    let ring = Arc::new(Ring::new(kernel));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let ring = Arc::clone(&ring);
            let core = CoreId::new(u16::try_from(task).unwrap());
            thread::spawn_on("submitter", core, move || {
                let slots: Vec<_> = (0..FLIGHTS)
                    .map(|number| {
                        let slot = Arc::new(AtomicU32::new(0));
                        ring.submit(Flight {
                            slot: Arc::clone(&slot),
                            number: task * FLIGHTS + number,
                        });
                        slot
                    })
                    .collect();
                ring.kick();
                // The last is nobody's.
                for slot in &slots[..slots.len() - 1] {
                    ring.wait(|| slot.load(Ordering::Acquire) == 1);
                }
                ring.poll(Take::Ready);
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    ring.drain();
    let completed = ring.channel().completed.load(Ordering::Relaxed);
    assert_eq!(completed, TASKS * FLIGHTS);
    ring
}

/// A sleeper that nobody wakes ends the run with a deadlock.
#[test]
fn sim_every_flight_of_a_ring_completes_once_and_wakes_who_waits() {
    for seed in seeds(500) {
        for config in [Config::random(CORES, seed), Config::stall(CORES, seed)] {
            run(config, || drop(share_a_ring(Kernel::default())));
        }
    }
}

/// Flights that the kernel refuses complete with its error, the others as ever.
#[test]
fn sim_every_flight_that_is_refused_completes_once() {
    for seed in seeds(200) {
        for config in [Config::random(CORES, seed), Config::stall(CORES, seed)] {
            let refused = run(config, || {
                let ring = share_a_ring(Kernel {
                    refuses: 4,
                    ..Kernel::default()
                });
                assert_eq!(ring.channel().abandoned.load(Ordering::Relaxed), 0);
                ring.channel().refused.load(Ordering::Relaxed)
            });
            assert!(refused.value > 0, "seed {seed}: nothing was refused");
        }
    }
}

/// A kernel that fails was a panic. What it has and never completes is abandoned, and nobody waits
/// for it for ever.
#[test]
fn sim_every_flight_of_a_ring_that_fails_completes_once() {
    let (mut refused, mut abandoned) = (0, 0);
    for seed in seeds(200) {
        for config in [Config::random(CORES, seed), Config::stall(CORES, seed)] {
            let failed = run(config, move || {
                let ring = share_a_ring(Kernel {
                    fails: 1 + seed % 8,
                    ..Kernel::default()
                });
                let kernel = ring.channel();
                let counts = [&kernel.refused, &kernel.abandoned];
                counts.map(|count| count.load(Ordering::Relaxed))
            });
            refused += failed.value[0];
            abandoned += failed.value[1];
        }
    }
    assert!(refused > 0 && abandoned > 0, "{refused} and {abandoned}");
}

/// A kernel that is busy for ever kept who waits asking for ever, at the full speed of a core. Now
/// it is asked every millisecond, for 10 s: for completions, and to take what it has not.
#[test]
fn sim_every_flight_of_a_ring_that_stays_busy_completes_once() {
    let (mut refused, mut abandoned) = (0, 0);
    // A run is 20,000 calls, a fifth of a second: a hundred say as much as any number.
    for seed in seeds(20).take(100) {
        for config in [Config::random(CORES, seed), Config::stall(CORES, seed)] {
            let failed = run(config, move || {
                let ring = share_a_ring(Kernel {
                    is_busy_from: 1 + seed % 8,
                    ..Kernel::default()
                });
                let kernel = ring.channel();
                let counts = [&kernel.refused, &kernel.abandoned];
                let counts = counts.map(|count| count.load(Ordering::Relaxed));
                (counts, kernel.state.lock().late_calls)
            });
            let (counts, calls) = failed.value;
            refused += counts[0];
            abandoned += counts[1];
            // Each of the tasks passes entries and looks for completions.
            assert!(calls < TASKS * 2 * 10_100, "seed {seed}: {calls} calls");
        }
    }
    assert!(refused > 0 && abandoned > 0, "{refused} and {abandoned}");
}
