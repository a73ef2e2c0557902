//! The requests of a ring, and what is known of a kernel that does not take them.
//!
//! **Problem, structure, invariants.** See [`super`]. **Crash.** See [`crate::engine`].

use std::time::Duration;

use dure_sync::clock::monotonic_ns;

use super::{Arrived, Channel};

/// For how long a busy kernel is asked again without a pause, and for how long at all.
const BUSY_SPIN_NS: u64 = 1_000_000;
const BUSY_MAX_NS: u64 = 10_000_000_000;
/// How often, and with what pause, a ring that has failed looks for completions. Nor is a busy
/// kernel asked more often.
pub(super) const LOOKS_MAX: u32 = 1000;
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// That a channel fails for good.
pub(super) struct Failure {
    /// The negative error number.
    pub(super) code: i32,
    /// How often completions have been looked for since.
    pub(super) looks: u32,
}

/// The requests that a ring has.
pub(super) struct Table<C: Channel> {
    pub(super) flights: Vec<Option<C::Flight>>,
    pub(super) free: Vec<usize>,
    /// Indices of entries that the kernel has not taken.
    pub(super) pushed: Vec<usize>,
    /// Completions of what the kernel refused to take.
    pub(super) refused: Vec<Arrived>,
    pub(super) in_flight: usize,
    /// Since when the kernel is busy, and has neither taken nor completed a request.
    pub(super) busy_since_ns: Option<u64>,
    pub(super) failure: Option<Failure>,
    pub(super) entries: C::Entries,
}

impl<C: Channel> Table<C> {
    pub(super) fn new() -> Self {
        Self {
            flights: Vec::new(),
            free: Vec::new(),
            pushed: Vec::new(),
            refused: Vec::new(),
            in_flight: 0,
            busy_since_ns: None,
            failure: None,
            entries: C::Entries::default(),
        }
    }

    /// The channel fails for good. Its entries are never passed, so their memory has no owner.
    pub(super) fn fail(&mut self, code: i32) {
        let failure = self.failure.get_or_insert(Failure { code, looks: 0 });
        let code = failure.code;
        let refusals = self.pushed.drain(..).map(|index| Arrived { index, code });
        self.refused.extend(refusals);
    }

    /// The kernel says that it is busy.
    pub(super) fn busy(&mut self, code: i32) {
        let now = monotonic_ns();
        if now - *self.busy_since_ns.get_or_insert(now) > BUSY_MAX_NS {
            self.fail(code);
        }
    }

    /// How long to wait before a busy kernel is asked again.
    pub(super) fn pause(&self) -> Duration {
        match self.busy_since_ns {
            Some(since) if monotonic_ns() - since > BUSY_SPIN_NS => LOOK_PAUSE,
            _ => Duration::ZERO,
        }
    }

    /// Takes out the flights that the kernel may still have. Their places stay empty: a completion
    /// that comes after all belongs to no flight.
    pub(super) fn abandon(&mut self) -> Vec<C::Flight> {
        assert!(self.pushed.is_empty() && self.refused.is_empty());
        let flights: Vec<_> = self.flights.iter_mut().filter_map(Option::take).collect();
        assert_eq!(flights.len(), self.in_flight);
        self.in_flight = 0;
        flights
    }
}
