//! Clocks.
//!
//! **Problem.** A simulated run owns time. **Structure.** One monotonic clock for durations and
//! one clock of day for timestamps of files, which a test may hold still. **Invariants.**
//! [`monotonic_ns`] never decreases.
//! **Crash.** Nothing is kept.

use std::cell::Cell;

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
