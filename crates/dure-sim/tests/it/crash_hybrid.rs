//! Crashes of volumes in persistent memory and on a disk: of what is done to both, in one order, any
//! subset of the words that no fence covers and of the blocks that no flush covers.
//!
//! `cargo test` runs a sample, `DURE_CRASH_EXHAUSTIVE=1` all workloads of one operation and more
//! random sequences, `DURE_CRASH_SEED=n` another sample. All of two operations:
//! `dure sim crash --seq 2 --media hybrid`.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::Tear;
use dure_block::record::{LostFlushes, LostStores};
use dure_fs::{NodeLog, NumaPolicy};
use dure_sim::crash::{Base, CrashFrom, On, Options, Recording, Workload, run_all, workload};
use dure_sync::canary::Rule;

use crate::sampling;

/// Of the workloads, the part that a sample holds is one in this many.
const SAMPLE: u64 = 25;

fn bases(node_log: NodeLog) -> Vec<Base> {
    bases_on(On::Hybrid(node_log))
}

fn bases_on(media: On) -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::on(media, calls, 2);
    let bases = workload::SETUPS.iter().map(base);
    bases
        .map(|base| base.expect("a volume can be made"))
        .collect()
}

fn options(tear: Tear) -> Options {
    Options {
        selection: sampling::selection(tear),
        ..Options::default()
    }
}

fn chosen(salt: u64) -> Vec<Workload> {
    sampling::one_operation(SAMPLE, salt)
}

#[track_caller]
fn must_hold(what: &str, bases: &[Base], workloads: &[Workload], options: &Options) {
    assert!(!workloads.is_empty(), "something is chosen");
    let outcome = run_all(bases, workloads, options, 2);
    println!("{}", outcome.report(what));
    assert!(outcome.is_clean());
    assert!(outcome.counts.states > outcome.counts.workloads * 20);
}

#[test]
fn one_operation_with_logs_in_persistent_memory() {
    let bases = bases(NodeLog::Nvm);
    must_hold("hybrid", &bases, &chosen(0), &options(Tear::Sectors));
}

#[test]
fn one_operation_with_logs_on_the_disk() {
    let bases = bases(NodeLog::Block);
    must_hold("logs on disk", &bases, &chosen(1), &options(Tear::None));
}

#[test]
fn sequences() {
    let workloads = sampling::sequences();
    must_hold(
        "sequences",
        &bases(NodeLog::Nvm),
        &workloads,
        &options(Tear::None),
    );
}

/// Two regions of persistent memory, of which segments are taken in turn.
fn in_turn(tear: Tear) -> Options {
    let mut options = options(tear);
    options.mount.numa.policy = NumaPolicy::Interleave;
    options
}

#[test]
fn one_operation_on_two_regions() {
    let bases = bases_on(On::HybridRegions);
    must_hold("two regions", &bases, &chosen(3), &in_turn(Tear::Sectors));
}

/// Canary: one region does not fence. Each holds what is promised.
#[test]
fn canary_one_of_two_regions_without_fences() {
    let bases = bases_on(On::HybridRegions);
    let mut workloads = workload::one_operation();
    workloads.retain(|workload| workload.to_string().contains("fsync"));
    workloads.truncate(30);
    for region in 0..2 {
        let options = Options {
            lost_stores: LostStores::Fences,
            lost_region: Some(region),
            ..in_turn(Tear::None)
        };
        let outcome = run_all(&bases, &workloads, &options, 2);
        assert!(!outcome.is_clean(), "region {region}: nobody noticed");
    }
}

/// All data to its blocks, none into the log; and flushed before the records that name it.
#[test]
fn data_on_the_disk_only() {
    for policies in [
        &[("log-data", "0")][..],
        &[("log-data", "0"), ("flush", "two")],
    ] {
        let mut options = options(Tear::None);
        for (key, value) in policies {
            assert_eq!(options.mount.set_policy(key, value), Ok(true));
        }
        let mut workloads = chosen(2);
        workloads.retain(|workload| workload.to_string().contains("write "));
        must_hold(
            &format!("{policies:?}"),
            &bases(NodeLog::Nvm),
            &workloads,
            &options,
        );
    }
}

/// The power fails while a mount recovers, too.
#[test]
fn recovery_itself() {
    let bases = bases(NodeLog::Nvm);
    let workload: Workload = "setup 1; write /foo 0+5000 of 9; fsync /foo; create /new; fsync /new"
        .parse()
        .expect("a workload");
    let options = options(Tear::None);
    let base = &bases[workload.setup];
    let recording = Recording::new(base, &workload, &options).expect("it runs");
    let crashed = recording.crashed(&options, 6).expect("no violation");
    let again = Options {
        from: CrashFrom::Mount,
        ..options
    };
    let sync: Workload = "setup 1; sync".parse().expect("a workload");
    for base in &crashed {
        let recording = Recording::new(base, &sync, &again).expect("it runs");
        let (counts, violations) = recording.crash(&again);
        println!("recovery: {counts:?}");
        let first = violations.first().map(ToString::to_string);
        assert_eq!(first, None);
    }
}

/// With all rules nothing is found; after `change` something is.
#[track_caller]
fn must_notice(text: &str, change: impl FnOnce(&mut Options)) {
    let mut workloads = workload::one_operation();
    workloads.retain(|workload| workload.to_string().contains(text));
    workloads.truncate(10);
    let bases = bases(NodeLog::Nvm);
    let mut options = options(Tear::None);
    must_hold("with all rules", &bases, &workloads, &options);
    change(&mut options);
    let outcome = run_all(&bases, &workloads, &options, 2);
    let first = outcome.violations.first().map(ToString::to_string);
    let first = first.or(outcome.failures.first().cloned());
    println!(
        "{}",
        first.expect("a rule was left out and no crash test noticed")
    );
}

#[test]
fn canary_without_fences() {
    must_notice("fsync", |options| options.lost_stores = LostStores::Fences);
}

#[test]
fn canary_without_write_backs() {
    must_notice("fsync", |options| {
        options.lost_stores = LostStores::WriteBacks
    });
}

/// The record is in persistent memory, and the data that it names is in the disk's cache.
#[test]
fn canary_a_record_before_its_data() {
    must_notice("write /A/foo", |options| {
        options.lost_flushes = LostFlushes::All;
        assert_eq!(options.mount.set_policy("log-data", "0"), Ok(true));
    });
}

/// A record is copied past the cache, and its words may arrive in any order.
#[test]
fn canary_a_torn_record_that_is_not_checked() {
    must_notice("user.large", |options| {
        options.selection.tear = Tear::Words;
        options.mount.rules.checksum = Rule::LEFT_OUT;
    });
}

#[test]
fn canary_data_that_is_not_checked() {
    must_notice("write /A/foo", |options| {
        options.mount.volume_rules.store.data_check = Rule::LEFT_OUT;
    });
}
