//! Which workloads a crash test in persistent memory runs: a sample, or with
//! `DURE_CRASH_EXHAUSTIVE=1` all; `DURE_CRASH_SEED=n` chooses another sample.

use dure_block::crash::{Selection, Tear};
use dure_sim::crash::{Workload, sequence, workload};
use dure_sync::amount;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

fn is_exhaustive() -> bool {
    variable("DURE_CRASH_EXHAUSTIVE").is_some()
}

fn seed() -> u64 {
    variable("DURE_CRASH_SEED").unwrap_or(1)
}

/// Which subsets of what is not durable are tried, torn so.
pub(crate) fn selection(tear: Tear) -> Selection {
    Selection {
        exhaustive_max: 8,
        random: if is_exhaustive() { 50 } else { 8 },
        seed: 1,
        tear,
    }
}

/// Of the workloads of one operation one in `part` in CI, and fewer every day; others with another
/// `salt`.
pub(crate) fn one_operation(part: u64, salt: u64) -> Vec<Workload> {
    let mut all = workload::one_operation();
    if !is_exhaustive() {
        let (seed, part) = (seed() + salt, part * amount::either(4, 1));
        all.retain(|workload| {
            let text = workload.to_string();
            xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), seed).is_multiple_of(part)
        });
    }
    all
}

/// Random sequences of two to four operations.
pub(crate) fn sequences() -> Vec<Workload> {
    let count = if is_exhaustive() {
        500
    } else {
        amount::either(10, 40)
    };
    let make = |seed: u64| sequence::random(seed, 2 + usize::try_from(seed % 3).expect("small"));
    (seed()..seed() + count).map(make).collect()
}
