//! What waits in memory for a checkpoint, counted per core.

use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{CoreId, PerCore};

use crate::units::nth_core;

/// A core's part of a backlog.
#[derive(Debug)]
struct Part {
    /// Written by the core, and by the task that ends the backlog. Relaxed, as all here: a bound on
    /// memory, which publishes nothing.
    count: AtomicUsize,
    /// From this count on the core looks at the counts of the others.
    look_at: AtomicUsize,
}

/// Counts what waits in memory for something that ends all of it, with no line that all cores
/// write.
#[derive(Debug)]
pub struct Backlog {
    parts: PerCore<Part>,
    most: usize,
}

impl Backlog {
    /// For `cores` cores; `most` of it is enough.
    pub(crate) fn new(cores: usize, most: usize) -> Backlog {
        let part = |_| Part {
            count: AtomicUsize::new(0),
            look_at: AtomicUsize::new(most / (2 * cores)),
        };
        Backlog {
            parts: PerCore::new(cores, part),
            most,
        }
    }

    /// Counts `count` more.
    pub fn add(&self, core: CoreId, count: usize) {
        let part = self.parts.get(core);
        part.count.fetch_add(count, Ordering::Relaxed);
    }

    /// What `core` has added waits no longer.
    pub(crate) fn end(&self, core: CoreId) {
        let part = self.parts.get(core);
        part.count.store(0, Ordering::Relaxed);
        let share = self.most / (2 * self.parts.len());
        part.look_at.store(share, Ordering::Relaxed);
    }

    /// Nothing waits any longer.
    pub(crate) fn end_all(&self) {
        for core in 0..self.parts.len() {
            self.end(nth_core(core, self.parts.len()));
        }
    }

    /// How much waits.
    pub(crate) fn sum(&self) -> usize {
        let counts = self.parts.iter();
        counts.map(|part| part.count.load(Ordering::Relaxed)).sum()
    }

    /// Whether too much waits. A core looks at the counts of the others only once it has added
    /// much itself, so that together they go beyond the bound by half of it at most.
    #[inline]
    pub(crate) fn is_full(&self, core: CoreId) -> bool {
        let part = self.parts.get(core);
        let own = part.count.load(Ordering::Relaxed);
        own > part.look_at.load(Ordering::Relaxed) && self.is_full_now(part, own)
    }

    #[cold]
    fn is_full_now(&self, part: &Part, own: usize) -> bool {
        let sum = self.sum();
        if sum > self.most {
            return true;
        }
        let step = (self.most - sum) / (2 * self.parts.len());
        part.look_at.store(own + step, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_full_when_all_cores_together_have_enough() {
        let backlog = Backlog::new(4, 1000);
        let cores: Vec<CoreId> = (0..4).map(CoreId::new).collect();
        let mut added = 0;
        let full = loop {
            let core = cores[added % 4];
            if backlog.is_full(core) {
                break core;
            }
            assert!(added < 1500);
            backlog.add(core, 1);
            added += 1;
        };
        assert!(added > 1000 && backlog.sum() == added);
        cores.iter().for_each(|core| backlog.end(*core));
        assert!(!backlog.is_full(full) && backlog.sum() == 0);
        // One core has all of it to itself.
        (0..1000).for_each(|_| {
            assert!(!backlog.is_full(full));
            backlog.add(full, 1);
        });
        backlog.add(full, 1);
        assert!(backlog.is_full(full));
    }
}
