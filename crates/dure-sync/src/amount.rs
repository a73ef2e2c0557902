//! How much of what they enumerate or draw tests run.
//!
//! **Problem.** CI can wait for a larger sample than a developer that has changed a line.
//! **Structure.** A test that takes seconds names two amounts, and [`either`] picks one: with
//! `DURE_TESTS=ci` in the environment, as `.ci/run` sets it, CI's. A variable that asks one suite
//! for more counts more than both. **Invariants.** A canary notices what it looks for with either
//! amount. Only test builds have this module (feature `canaries`). **Crash.** Nothing.

/// `every_day`, or `ci` with `DURE_TESTS=ci`.
///
/// # Panics
/// `DURE_TESTS` is something else: a misspelt word would run less than was asked for.
#[must_use]
pub fn either<T>(every_day: T, ci: T) -> T {
    match std::env::var("DURE_TESTS").as_deref() {
        Err(_) | Ok("") => every_day,
        Ok("ci") => ci,
        Ok(other) => panic!("DURE_TESTS={other}: it is ci, or not set"),
    }
}
