//! Statistics that every core may bump.
//!
//! **Problem.** One shared counter per operation would be the hottest line of the program.
//! **Structure.** One padded slot per core, summed on demand. **Invariants.** The sum is exact
//! when nobody is adding; otherwise it lies between two true values. It orders nothing else.
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
