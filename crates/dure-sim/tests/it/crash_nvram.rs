//! Crashes of volumes whose dirty pages are in persistent memory, on a volume
//! that has a disk too (`page_cache=nvram`).
//!
//! `cargo test` runs a sample, `DURE_CRASH_EXHAUSTIVE=1` all workloads of one operation and more
//! random sequences, `DURE_CRASH_SEED=n` another sample.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::Tear;
use dure_block::record::LostStores;
use dure_fs::NodeLog;
use dure_sim::crash::{Base, On, Options, Workload, run_all, workload};
use dure_sync::canary::Rule;

use crate::sampling;

/// Of the workloads, the part that a sample holds is one in this many.
const SAMPLE: u64 = 25;
/// Two writes that fill some segments of persistent memory, of which a few stay as they are.
const FILLING: &str = "setup 1; write /foo 0+270000 of 9; write /A/foo 0+140000 of 8; write /foo 4000+5000 of 7; \
                       writeback; write /A/foo 9000+300 of 6; writeback; rename /foo /bar Replace; truncate /A/foo \
                       70000; writeback; unlink /bar; write /A/foo 0+150000 of 5; writeback";

fn bases() -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::on(On::Hybrid(NodeLog::Nvm), calls, 2);
    let bases = workload::SETUPS.iter().map(base);
    bases
        .map(|base| base.expect("a volume can be made"))
        .collect()
}

fn options(policies: &[(&str, &str)]) -> Options {
    let mut options = Options {
        selection: sampling::selection(Tear::Words),
        ..Options::default()
    };
    // As little as may be, and moved as soon as may be.
    for (key, value) in [
        ("page_cache", "nvram"),
        ("nvram", "512K"),
        ("nvram_low", "90"),
    ] {
        assert_eq!(options.mount.set_policy(key, value), Ok(true));
    }
    for (key, value) in policies {
        assert_eq!(options.mount.set_policy(key, value), Ok(true));
    }
    options
}

const ALL: &[(&str, &str)] = &[];
/// As published.
const MOVE: &[(&str, &str)] = &[("nvram_absorb", "move"), ("nvram_low", "cached")];
const SYNC: &[(&str, &str)] = &[("nvram_absorb", "sync")];

fn chosen(salt: u64) -> Vec<Workload> {
    sampling::one_operation(SAMPLE, salt)
}

#[track_caller]
fn must_hold(what: &str, workloads: &[Workload], options: &Options) {
    assert!(!workloads.is_empty(), "something is chosen");
    let outcome = run_all(&bases(), workloads, options, 2);
    println!("{}", outcome.report(what));
    assert!(outcome.is_clean());
    assert!(outcome.counts.states > outcome.counts.workloads * 20);
}

#[test]
fn one_operation_with_all_data_absorbed() {
    must_hold("all", &chosen(0), &options(ALL));
}

#[test]
fn one_operation_with_synced_data_absorbed() {
    must_hold("sync", &chosen(1), &options(SYNC));
}

/// A page that is written again in persistent memory is there as it was, or as it is.
#[test]
fn one_operation_with_data_that_leaves_memory() {
    must_hold("move", &chosen(2), &options(MOVE));
}

#[test]
fn sequences_with_absorbed_data() {
    let workloads = sampling::sequences();
    must_hold("sequences", &workloads, &options(ALL));
}

/// What is in persistent memory moves to the disk between and behind calls.
#[test]
fn data_that_moves_to_the_disk() {
    let workload: Workload = FILLING.parse().expect("a workload");
    for policies in [ALL, MOVE, SYNC] {
        must_hold("moves", std::slice::from_ref(&workload), &options(policies));
    }
}

/// With all rules nothing is found; after `change` something is.
#[track_caller]
fn must_notice(change: impl FnOnce(&mut Options)) {
    let workload: Workload = FILLING.parse().expect("a workload");
    let mut options = options(ALL);
    change(&mut options);
    let outcome = run_all(&bases(), &[workload], &options, 1);
    let first = outcome.violations.first().map(ToString::to_string);
    let first = first.or(outcome.failures.first().cloned());
    println!(
        "{}",
        first.expect("a rule was left out and no crash test noticed")
    );
}

/// The record in persistent memory says that a page is on the disk, which has it in its cache only.
#[test]
fn canary_a_move_that_is_not_flushed() {
    must_notice(|options| {
        options.mount.volume_rules.store.data_before_record = Rule::LEFT_OUT;
    });
}

#[test]
fn canary_absorbed_data_without_fences() {
    must_notice(|options| options.lost_stores = LostStores::Fences);
}
