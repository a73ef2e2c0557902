//! Clocks.
//!
//! **Problem.** A simulated run owns time. **Structure.** One monotonic clock for durations and
//! one clock of day for timestamps of files. **Invariants.** [`monotonic_ns`] never decreases.
//! **Crash.** Nothing is kept.

use crate::backend;

/// A time of day: seconds since the epoch (negative before it) and nanoseconds of the second.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1 000 000 000.
    pub nanos: u32,
}

/// Nanoseconds of a clock that never goes back and counts from an unspecified start.
#[must_use]
pub fn monotonic_ns() -> u64 {
    backend::monotonic_ns()
}

/// The time of day, exact.
#[must_use]
pub fn wall() -> Timestamp {
    backend::wall()
}

/// The time of day as of the last timer tick (a few ms old), which is cheaper to read.
#[must_use]
pub fn wall_coarse() -> Timestamp {
    backend::wall_coarse()
}
