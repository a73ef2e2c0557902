//! Every write and every flush of a workload fails once: contract 5 of docs/design/durability.md.
//!
//! `DURE_FAULTS=full` sweeps over all workloads of one operation.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_sim::crash::faults::{Sweep, sweep};
use dure_sim::crash::{Base, Options, Workload, workload};

/// Of the workloads, the part that a sample holds is one in this many.
const SAMPLE: usize = 29;

/// Policies that change what is written, and when.
const POLICIES: &[&str] = &[
    "journal=zjournal",
    "data=journal,fsync=all",
    "journal=jbd2,data=journal",
    "flush=two,alloc=global,log-data=0",
    "node_lock=mutex",
    "node_lock=rwsem",
];

fn run(workloads: impl Iterator<Item = Workload>) -> Sweep {
    run_with(workloads, &Options::default())
}

fn run_with(workloads: impl Iterator<Item = Workload>, options: &Options) -> Sweep {
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume can be made");
    let bases: Vec<Base> = workload::SETUPS.iter().map(base).collect();
    let mut all = Sweep::default();
    for workload in workloads {
        let found = sweep(&bases[workload.setup], &workload, options);
        let found = found.unwrap_or_else(|what| panic!("{what}"));
        all.faults += found.faults;
        all.replaced += found.replaced;
        all.reasons.extend(found.reasons);
    }
    all.reasons.sort();
    let mut kinds = all.reasons.clone();
    kinds
        .iter_mut()
        .for_each(|reason| reason.retain(|c| !c.is_ascii_digit()));
    kinds.dedup();
    println!(
        "{} faults, {} replaced, {} stopped:",
        all.faults,
        all.replaced,
        all.reasons.len()
    );
    kinds.iter().for_each(|kind| println!("  {kind}"));
    all
}

#[test]
fn every_failed_write_or_flush_is_replaced_or_stops_the_volume() {
    let full = std::env::var("DURE_FAULTS").is_ok();
    let all = workload::one_operation().into_iter();
    let found = run(all.step_by(if full { 1 } else { SAMPLE }));
    assert!(
        found.replaced > 20,
        "no failed write of data went elsewhere"
    );
    assert!(found.reasons.len() > 20, "no failure stopped a volume");
}

#[test]
fn other_policies_replace_or_stop_too() {
    let full = std::env::var("DURE_FAULTS").is_ok();
    for (number, policies) in POLICIES.iter().enumerate() {
        let mut options = Options::default();
        for policy in policies.split(',') {
            let (key, value) = policy.split_once('=').expect("key=value");
            let set = options.mount.set_policy(key, value);
            assert_eq!(set, Ok(true), "{policy}");
        }
        let all = workload::one_operation().into_iter();
        // Others for each.
        let sample = all.skip(number).step_by(if full { 1 } else { 6 * SAMPLE });
        let found = run_with(sample, &options);
        assert!(found.reasons.len() > 20, "{policies}: {}", found.faults);
    }
}

/// Of a workload that writes data and nothing else, the failed writes of data are all replaced.
#[test]
fn a_failed_write_of_data_goes_to_another_block() {
    let text = "setup 1; write /A/bar 0+40960 of 9; fsync /A/bar";
    let found = run(std::iter::once(text.parse().expect("a workload")));
    assert!(found.replaced > 0, "{found:?}");
}

/// One with a failed flush, one with a failed write of the log: the text says which, and where.
#[test]
fn a_stopped_volume_says_why() {
    let text = "setup 1; chmod /foo 600; fsync /foo";
    let found = run(std::iter::once(text.parse().expect("a workload")));
    let says = |what: &str| found.reasons.iter().any(|reason| reason.contains(what));
    assert!(
        says("flushing the device failed") && says("writing a transaction failed"),
        "{:?}",
        found.reasons
    );
    assert_eq!(found.replaced, 0);
}
