//! A ring of the block layer, whose source this compiles as it is, over a kernel of a few lines.
//!
//! Each flight brings a word that its submitter wrote, and its completion adds to it, by a load and
//! a store: a count is lost if the reaper does not see what the submitter did, or the waiter what
//! the reaper did. The kernel takes one entry at a time, completes in any order, and its locks are
//! loom's own, so that what is weakened is the ring. That nobody sleeps for ever is left to the
//! simulation (`dure-block/tests/sim/ring.rs`).

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, thread};

use super::{BOTH, canaries, explore_with};

#[path = "../../../dure-block/src/engine/ring.rs"]
#[expect(dead_code, reason = "the model needs a part of it")]
mod source;

use source::{Arrived, Channel, Refused, Ring, Take};

/// What is under way: the word, and the word that says that it is done.
struct Flight {
    word: Arc<AtomicU32>,
    done: Arc<AtomicU32>,
}

#[derive(Default)]
struct Kernel {
    taken: loom::sync::Mutex<Vec<usize>>,
}

impl Channel for Kernel {
    type Flight = Flight;
    type Entries = Vec<usize>;

    fn push(&self, entries: &mut Vec<usize>, index: usize, _flight: &mut Flight) -> bool {
        // Room for one.
        if entries.is_empty() {
            entries.push(index);
        }
        *entries == [index]
    }

    fn pass(&self, entries: &mut Vec<usize>, pushed: usize) -> Result<usize, Refused> {
        assert_eq!(entries.len(), pushed, "each entry is passed once");
        self.taken.lock().unwrap().append(entries);
        Ok(pushed)
    }

    fn take(&self, _take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused> {
        // The last first.
        match self.taken.lock().unwrap().pop() {
            None => Ok(0),
            Some(index) => {
                arrived[0] = Arrived { index, code: 1 };
                Ok(1)
            }
        }
    }

    fn dispatched(_flight: &mut Flight) {}

    fn finish(&self, flight: Flight, code: i32) {
        // Relaxed: locks of the ring order it after what the submitter did.
        let now = flight.word.load(Ordering::Relaxed);
        let more = u32::try_from(code).unwrap();
        flight.word.store(now + more, Ordering::Relaxed);
        // Release: as that of a slot; pairs with the Acquire of the waiter.
        let before = flight.done.swap(1, Ordering::Release);
        assert_eq!(before, 0, "a flight completes once");
    }

    fn abandon(&self, _flight: Flight, _code: i32) {
        unreachable!("this kernel does not fail");
    }
}

/// Submits a flight, waits, and sees its completion.
fn fly(ring: &Ring<Kernel>) {
    let (word, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    word.store(6, Ordering::Relaxed);
    ring.submit(Flight {
        word: Arc::clone(&word),
        done: Arc::clone(&done),
    });
    ring.wait(|| done.load(Ordering::Acquire) == 1);
    assert_eq!(word.load(Ordering::Relaxed), 7, "the completion is seen");
}

fn two_tasks_share_a_ring() {
    let ring = Arc::new(Ring::new(Kernel::default()));
    let other = {
        let ring = Arc::clone(&ring);
        thread::spawn("submitter", move || fly(&ring))
    };
    fly(&ring);
    other.join().unwrap();
    assert_eq!(ring.poll(Take::Ready), 0, "nothing is left");
}

#[test]
fn each_flight_of_a_ring_completes_once_and_is_seen() {
    explore_with(2, two_tasks_share_a_ring);
    canaries(|| explore_with(2, two_tasks_share_a_ring), BOTH);
}
