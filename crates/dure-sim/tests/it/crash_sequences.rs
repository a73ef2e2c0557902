//! Every crash of random sequences of a few operations.
//!
//! `DURE_CRASH_SEED=n` begins with another seed, `DURE_CRASH_COUNT=n` runs so many;
//! docs/testing/crashes.md.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::{Selection, Tear};
use dure_sim::crash::{Base, CrashSteps, Options, Workload, run_all, sequence, workload};
use dure_sync::amount;

fn variable(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn random_sequences() {
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume can be made");
    let bases: Vec<Base> = workload::SETUPS.iter().map(base).collect();
    let seed = variable("DURE_CRASH_SEED", 1);
    let count = variable("DURE_CRASH_COUNT", amount::either(40, 150));
    let make = |seed: u64| sequence::random(seed, 2 + usize::try_from(seed % 5).expect("small"));
    let workloads: Vec<Workload> = (seed..seed + count).map(make).collect();
    for tear in [Tear::None, Tear::Sectors] {
        let options = Options {
            selection: Selection {
                exhaustive_max: if tear == Tear::None { 8 } else { 2 },
                random: 8,
                seed,
                tear,
            },
            steps: if tear == Tear::None {
                CrashSteps::Every
            } else {
                CrashSteps::Frontiers
            },
            ..Options::default()
        };
        let outcome = run_all(&bases, &workloads, &options, 2);
        println!(
            "{}",
            outcome.report(&format!("seeds {seed}.., tear {tear:?}"))
        );
        assert!(outcome.is_clean());
    }
}
