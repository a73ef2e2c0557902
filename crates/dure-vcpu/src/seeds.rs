//! Which seeds a test tries.
//!
//! **Problem.** A test runs many seeds, a nightly run more, a replay one. **Structure.** The
//! environment overrides the count a test asks for: `DURE_SIM_SEEDS` is how many,
//! `DURE_SIM_SEED` the only one. **Invariants.** Without overrides the seeds are 0, 1, 2, ..
//! **Crash.** Nothing is kept.

use std::ops::Range;

/// The seeds to try, `count` of them unless the environment says otherwise.
///
/// # Panics
/// If an environment variable does not hold a number.
#[must_use]
pub fn seeds(count: u64) -> Range<u64> {
    if let Some(seed) = number("DURE_SIM_SEED") {
        return seed..seed + 1;
    }
    0..number("DURE_SIM_SEEDS").unwrap_or(count)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text
        .parse()
        .unwrap_or_else(|_| panic!("{variable}={text:?} is not a number"));
    Some(number)
}
