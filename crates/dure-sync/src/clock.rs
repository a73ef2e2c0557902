//! Clocks.
//!
//! **Problem.** A simulated run owns time. **Structure.** One monotonic clock for durations and
//! one clock of day for timestamps of files, which a test may hold still. **Invariants.**
//! [`monotonic_ns`] never decreases.
//! **Crash.** Nothing is kept.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use crate::backend;

/// A time of day: seconds since the epoch (negative before it) and nanoseconds of the second.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1 000 000 000.
    pub nanos: u32,
}

impl From<SystemTime> for Timestamp {
    /// # Panics
    /// If the time is 2^63 seconds away from 1970, which no clock shows.
    fn from(time: SystemTime) -> Timestamp {
        let (distance, is_before) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (after, false),
            Err(before) => (before.duration(), true),
        };
        let secs = i64::try_from(distance.as_secs()).expect("a time of this era");
        let nanos = distance.subsec_nanos();
        match (is_before, nanos) {
            (false, _) => Timestamp { secs, nanos },
            (true, 0) => Timestamp { secs: -secs, nanos },
            (true, _) => Timestamp {
                secs: -secs - 1,
                nanos: 1_000_000_000 - nanos,
            },
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let second = if time.secs < 0 {
            SystemTime::UNIX_EPOCH - whole
        } else {
            SystemTime::UNIX_EPOCH + whole
        };
        second + Duration::from_nanos(time.nanos.into())
    }
}

/// Nanoseconds of a clock that never goes back and counts from an unspecified start.
#[must_use]
pub fn monotonic_ns() -> u64 {
    backend::monotonic_ns()
}

/// CPU time that this thread has used, in nanoseconds. A virtual task has no such time: all that
/// passes counts.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    backend::thread_cpu_ns()
}

crate::task_local! {
    /// The time of day that this task is told instead of the real one.
    static PRETENDED: Cell<Option<Timestamp>> = const { Cell::new(None) };
}

/// From now on this task is told `time` as the time of day; `None`: the real one. Test-only: what a
/// test writes on a medium must not depend on when it runs.
#[doc(hidden)]
pub fn pretend_wall(time: Option<Timestamp>) {
    PRETENDED.with(|pretended| pretended.set(time));
}

/// The time of day, exact.
#[must_use]
pub fn wall() -> Timestamp {
    PRETENDED.with(Cell::get).unwrap_or_else(backend::wall)
}

/// The time of day as of the last timer tick (a few ms old), which is cheaper to read.
#[must_use]
pub fn wall_coarse() -> Timestamp {
    PRETENDED
        .with(Cell::get)
        .unwrap_or_else(backend::wall_coarse)
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_standard_library() {
        let epoch = SystemTime::UNIX_EPOCH;
        for (time, secs, nanos) in [
            (epoch, 0, 0),
            (epoch + Duration::new(5, 7), 5, 7),
            (epoch - Duration::new(5, 7), -6, 999_999_993),
            (epoch - Duration::new(5, 0), -5, 0),
        ] {
            let stamp = Timestamp { secs, nanos };
            assert_eq!(Timestamp::from(time), stamp);
            assert_eq!(SystemTime::from(stamp), time);
        }
        for secs in [i64::MIN + 1, i64::MAX] {
            let stamp = Timestamp { secs, nanos: 3 };
            assert_eq!(Timestamp::from(SystemTime::from(stamp)), stamp);
        }
    }
}
