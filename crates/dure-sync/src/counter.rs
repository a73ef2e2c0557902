//! Statistics that every core may update.
//!
//! **Problem.** One shared counter per operation would be the hottest line of the program.
//! **Structure.** One padded slot per core, summed on demand. **Invariants.** The sum is exact
//! while no task is adding; otherwise it lies between two true values. It orders nothing else.
//! **Crash.** Starts at zero.

use crate::atomic::{AtomicI64, Ordering};
use crate::{PerCore, core_count};

/// A sharded counter.
#[derive(Debug)]
pub struct Counter {
    /// Written by the core of the slot (rarely another, after migration), read by `sum`;
    /// publishes nothing, hence Relaxed.
    slots: PerCore<AtomicI64>,
}

impl Counter {
    /// A counter at zero with a slot for each core.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: PerCore::new(core_count(), |_| AtomicI64::new(0)),
        }
    }

    /// Adds `delta`.
    #[inline]
    pub fn add(&self, delta: i64) {
        self.slots.local().fetch_add(delta, Ordering::Relaxed);
    }

    /// The sum over all cores.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.slots.iter().fold(0_i64, |sum, slot| {
            sum.wrapping_add(slot.load(Ordering::Relaxed))
        })
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(dure_backend = "sim", dure_backend = "loom"))))]
mod tests {
    use super::*;
    use crate::{CoreId, clock, thread};

    const ROUNDS: u64 = 2000;

    /// Median ns of a sum over `slots` slots by core 0: all in its near cache, and each written by
    /// core 1 since.
    fn sum_ns(slots: usize) -> (u64, u64) {
        let counts = PerCore::new(slots, |_| AtomicI64::new(1));
        let load = |slot: &AtomicI64| slot.load(Ordering::Relaxed);
        let on = |core, task: &(dyn Fn() -> u64 + Sync)| {
            thread::scope(|scope| {
                let thread = scope.spawn_on(CoreId::new(core), task);
                thread.join().expect("it only counts")
            })
        };
        let sum = || {
            let start = clock::monotonic_ns();
            let total: i64 = std::hint::black_box(&counts).iter().map(load).sum();
            let ns = clock::monotonic_ns() - start;
            assert!(total > 0);
            ns
        };
        let write = || {
            for slot in counts.iter() {
                slot.fetch_add(1, Ordering::Relaxed);
            }
            0
        };
        let mut far: Vec<u64> = Vec::new();
        let mut near = far.clone();
        for _ in 0..ROUNDS {
            on(1, &write);
            far.push(on(0, &sum));
            near.push(on(0, &|| {
                sum();
                sum()
            }));
        }
        let middle = |mut all: Vec<u64>| {
            all.sort_unstable();
            all[all.len() / 2]
        };
        (middle(near), middle(far))
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -p dure-sync --lib -- --ignored --nocapture sums"]
    #[expect(clippy::print_stdout, reason = "the numbers are its result")]
    fn sums() {
        for slots in [2, 64, 256] {
            let (near, far) = sum_ns(slots);
            println!(
                "{slots} slots: {near} ns in the near cache, {far} ns written by another core"
            );
            assert!(near > 0 || far > 0);
        }
    }
}
