//! A seeded share of the workloads of two and three operations, on up to three cores in every
//! commit order. `dure sim crash` runs all of them; docs/testing/crashes.md.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_sim::crash::campaign::{Campaign, Plan, Tally};
use dure_sim::crash::{Options, Workload};
use dure_sync::amount;
use dure_sync::canary::Rule;

fn run(operations: u32, cores: usize, options: Options, workloads: u64) -> Tally {
    let seed = 1;
    let plan = Plan {
        operations,
        cores,
        seed,
    };
    let campaign = Campaign::new(plan, 2, options);
    let mut tally = Tally::default();
    while tally.counts.workloads < workloads && tally.is_clean() && campaign.batch(&mut tally) {}
    println!(
        "seq-{operations}: {} of {} groups, {:?}",
        tally.place,
        campaign.groups(),
        tally.counts
    );
    tally
}

#[track_caller]
fn must_be_clean(tally: &Tally) {
    for violation in tally.violations.iter().take(5) {
        println!("{violation}\n");
    }
    for failure in tally.failures.iter().take(5) {
        println!("{failure}\n");
    }
    assert!(tally.is_clean());
}

#[test]
fn a_share_of_two_operations() {
    must_be_clean(&run(2, 3, Options::default(), amount::either(50, 200)));
}

#[test]
fn a_share_of_three_operations() {
    must_be_clean(&run(3, 3, Options::default(), amount::either(50, 200)));
}

#[test]
fn canary_a_commit_without_a_flush_is_noticed() {
    let mut options = Options::default();
    options.mount.rules.flush = Rule::LEFT_OUT;
    let tally = run(2, 3, options.clone(), 200);
    let violation = tally
        .violations
        .first()
        .expect("no flush, and nothing was lost");
    // The workload it names shows it alone, from its text.
    let text = violation.workload.to_string();
    let workload: Workload = text.parse().expect("a workload can be read back");
    assert!(!Campaign::replay(&workload, &options).is_clean());
    assert!(Campaign::replay(&workload, &Options::default()).is_clean());
}

/// On one core: where fsyncs overlap, threads that wait for the same flush go on in any order.
#[test]
fn the_same_share_writes_and_finds_the_same() {
    let counts = || {
        let tally = run(2, 1, Options::default(), amount::either(25, 100));
        (
            tally.place,
            tally.equal,
            tally.counts.workloads,
            tally.counts.states,
        )
    };
    assert_eq!(counts(), counts());
}
