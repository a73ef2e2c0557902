//! A ring on a simulated machine, over a kernel of a few lines: no completion is lost or run twice,
//! and nobody sleeps for ever, on every schedule.

use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::sim::{Config, run, seeds};
use dure_sync::{Arc, Condvar, CoreId, Mutex, thread};

#[path = "../../src/engine/ring.rs"]
mod source;

use source::{Arrived, Channel, Ring, Take};

/// Room of the submission queue.
const ENTRIES: usize = 2;

struct Flight {
    slot: Arc<AtomicU32>,
    number: u64,
}

/// Takes at most one entry at a time, now and then none, and completes it later, the last first.
#[derive(Default)]
struct Kernel {
    /// [220] Entries it has, and how often it was asked.
    state: Mutex<220, (Vec<usize>, u64)>,
    came: Condvar,
    completed: AtomicU64,
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

    fn pass(&self, entries: &mut Vec<usize>, pushed: usize) -> usize {
        assert_eq!(entries.len(), pushed, "each entry is passed once");
        let mut state = self.state.lock();
        state.1 += 1;
        if state.1.is_multiple_of(3) {
            return 0;
        }
        state.0.push(entries.remove(0));
        self.came.notify_all();
        1
    }

    fn take(&self, take: Take, arrived: &mut [Arrived]) -> usize {
        let mut state = self.state.lock();
        while take == Take::One && state.0.is_empty() {
            state = self.came.wait(state);
        }
        let Some(index) = state.0.pop() else { return 0 };
        drop(state);
        if take == Take::One {
            thread::sleep(Duration::from_micros(3));
        }
        arrived[0] = Arrived { index, code: 0 };
        1
    }

    fn dispatched(_flight: &mut Flight) {}

    fn finish(&self, flight: Flight, _code: i32) {
        let before = flight.slot.swap(1, Ordering::Release);
        assert_eq!(before, 0, "flight {} completes once", flight.number);
        self.completed.fetch_add(1, Ordering::Relaxed);
    }
}

const TASKS: u64 = 3;
const FLIGHTS: u64 = 4;

/// Tasks submit, wait for some, leave others to whoever comes; the ring is drained at the end.
fn share_a_ring() {
    let ring = Arc::new(Ring::new(Kernel::default()));
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
}

/// A sleeper that nobody wakes ends the run with a deadlock.
#[test]
fn sim_every_flight_of_a_ring_completes_once_and_wakes_who_waits() {
    for seed in seeds(500) {
        run(
            Config::random(TASKS.try_into().unwrap(), seed),
            share_a_ring,
        );
        run(Config::stall(TASKS.try_into().unwrap(), seed), share_a_ring);
    }
}
