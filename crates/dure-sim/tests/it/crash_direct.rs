//! Crashes of volumes in persistent memory whose files are not in memory: of what is done to it any
//! subset of the words that no fence covers. With `durability=strict` each call that has returned
//! is there, and the running one wholly or not at all.
//!
//! `cargo test` runs a sample, `DURE_CRASH_EXHAUSTIVE=1` all workloads of one operation and more
//! random sequences, `DURE_CRASH_SEED=n` another sample. All of two operations:
//! `dure sim crash --seq 2 --mount nvm=emulated,page_cache=none`.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::Tear;
use dure_block::record::LostStores;
use dure_fs::Durability;
use dure_sim::crash::{Base, CrashFrom, On, Options, Recording, Workload, run_all, workload};
use dure_sync::canary::Rule;

use crate::sampling;

/// Of the workloads, the part that a sample holds is one in this many.
const SAMPLE: u64 = 20;

fn bases() -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::on(On::Nvm, calls, 2);
    let bases = workload::SETUPS.iter().map(base);
    bases
        .map(|base| base.expect("a volume can be made"))
        .collect()
}

fn options(durability: Durability) -> Options {
    let mut options = Options {
        selection: sampling::selection(Tear::Sectors),
        ..Options::direct()
    };
    options.mount.durability = Some(durability);
    options
}

fn chosen(salt: u64) -> Vec<Workload> {
    sampling::one_operation(SAMPLE, salt)
}

#[track_caller]
fn must_hold(what: &str, workloads: &[Workload], options: &Options) {
    assert!(!workloads.is_empty(), "something is chosen");
    let outcome = run_all(&bases(), workloads, options, 2);
    println!("{}", outcome.report(what));
    assert!(outcome.is_clean());
    assert!(outcome.counts.states > outcome.counts.workloads * 10);
}

#[test]
fn one_operation_is_durable_when_it_returns() {
    must_hold("strict", &chosen(0), &options(Durability::Strict));
}

#[test]
fn one_operation_is_durable_when_it_is_synced() {
    must_hold("posix", &chosen(1), &options(Durability::Posix));
}

#[test]
fn sequences() {
    let workloads = sampling::sequences();
    must_hold("sequences", &workloads, &options(Durability::Strict));
}

/// The power fails while a mount recovers, too.
#[test]
fn recovery_itself() {
    let bases = bases();
    let workload: Workload = "setup 1; write /foo 0+5000 of 9; create /new; truncate /foo 100"
        .parse()
        .expect("a workload");
    let options = options(Durability::Strict);
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
    workloads.truncate(6);
    let mut options = options(Durability::Strict);
    must_hold("with all rules", &workloads, &options);
    change(&mut options);
    let outcome = run_all(&bases(), &workloads, &options, 2);
    let first = outcome.violations.first().map(ToString::to_string);
    let first = first.or(outcome.failures.first().cloned());
    println!(
        "{}",
        first.expect("a rule was left out and no crash test noticed")
    );
}

#[test]
fn canary_without_fences() {
    must_notice("create", |options| options.lost_stores = LostStores::Fences);
}

#[test]
fn canary_without_write_backs() {
    must_notice("create", |options| {
        options.lost_stores = LostStores::WriteBacks;
    });
}

/// A record is fenced before the data that it names is copied. Recovery would notice that by the
/// checksum, so that is left out, too; with the data first nothing depends on it.
#[test]
fn canary_a_record_before_its_data() {
    let change = |options: &mut Options| {
        options.mount.volume_rules.store.data_check = Rule::LEFT_OUT;
    };
    let mut unchecked = options(Durability::Strict);
    change(&mut unchecked);
    let mut writes = workload::one_operation();
    writes.retain(|workload| workload.to_string().contains("write /A/foo"));
    writes.truncate(6);
    must_hold("data that recovery does not check", &writes, &unchecked);
    must_notice("write /A/foo", |options| {
        change(options);
        options.mount.volume_rules.data_before_log = Rule::LEFT_OUT;
    });
}

/// Operations that are durable only when something is synced.
#[test]
fn canary_operations_that_are_not_committed() {
    let mut workloads = workload::one_operation();
    workloads.retain(|workload| workload.to_string().contains("create"));
    workloads.truncate(6);
    let mut options = options(Durability::Strict);
    options.mount.volume_rules.store.strict_joins = Rule::LEFT_OUT;
    let outcome = run_all(&bases(), &workloads, &options, 2);
    assert!(
        !outcome.violations.is_empty(),
        "a call returned and was lost, and no test noticed"
    );
}
