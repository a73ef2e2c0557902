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

/// How much waits, as far as the core that asks knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    /// Less than half of the bound, or no task has looked.
    Little,
    /// More than half: said to a core each time it has added much.
    Half,
    /// Too much.
    Full,
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

    /// Whether much waits, or too much. A core looks at the counts of the others only once it has
    /// added much itself, so that together they go beyond the bound by half of it at most.
    #[inline]
    pub(crate) fn fill(&self, core: CoreId) -> Fill {
        let part = self.parts.get(core);
        let own = part.count.load(Ordering::Relaxed);
        if own > part.look_at.load(Ordering::Relaxed) {
            self.look(part, own)
        } else {
            Fill::Little
        }
    }

    #[cold]
    fn look(&self, part: &Part, own: usize) -> Fill {
        let sum = self.sum();
        if sum > self.most {
            return Fill::Full;
        }
        let step = (self.most - sum) / (2 * self.parts.len());
        part.look_at.store(own + step, Ordering::Relaxed);
        if sum > self.most / 2 {
            Fill::Half
        } else {
            Fill::Little
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_full_when_all_cores_together_have_enough() {
        let backlog = Backlog::new(4, 1000);
        let cores: Vec<CoreId> = (0..4).map(CoreId::new).collect();
        let (mut added, mut half) = (0, None);
        let full = loop {
            let core = cores[added % 4];
            match backlog.fill(core) {
                Fill::Full => break core,
                Fill::Half => drop(half.get_or_insert(added)),
                Fill::Little => {}
            }
            assert!(added < 1500);
            backlog.add(core, 1);
            added += 1;
        };
        assert!(half.is_some_and(|half| (501..750).contains(&half)));
        assert!(added > 1000 && backlog.sum() == added);
        cores.iter().for_each(|core| backlog.end(*core));
        assert!(backlog.fill(full) == Fill::Little && backlog.sum() == 0);
        // One core has all of it to itself.
        (0..1000).for_each(|_| {
            assert!(backlog.fill(full) < Fill::Full);
            backlog.add(full, 1);
        });
        backlog.add(full, 1);
        assert_eq!(backlog.fill(full), Fill::Full);
    }
}
