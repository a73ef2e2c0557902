//! Crashes with every policy of the mount options that changes what is on the medium: the workloads
//! of one operation, and those of two cores.
//!
//! `cargo test` runs a sample per combination, `DURE_CRASH=full` a larger one,
//! `DURE_CRASH_EXHAUSTIVE=1` all workloads (half an hour in release), `DURE_CRASH_SEED=n` another
//! sample, `DURE_CRASH_POLICY=text` only the combinations that hold the text,
//! `DURE_CRASH_ONLY=text` only the workloads whose description holds it. See
//! docs/testing/crashes.md.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::{Selection, Tear};
use dure_fs::{DirectoryRule, MountOptions, RangeRule};
use dure_sim::crash::{
    Base, CrashSteps, Memo, Options, Workload, cores, mount_options, run_all, run_all_with,
    workload,
};
use dure_sync::amount;

/// Of the workloads, the part that a sample holds is one in this many; of those that take a range
/// with another range lock, too.
fn sample() -> (u64, u64) {
    match variable("DURE_CRASH") {
        Some(_) => (10, 1),
        None => amount::either((160, 4), (40, 1)),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn mount(policies: &str) -> MountOptions {
    let mut options = mount_options();
    for policy in policies.split(',') {
        let (key, value) = policy.split_once('=').unwrap_or((policy, ""));
        assert_eq!(options.set_policy(key, value), Ok(true), "{policy}");
        if key == "range_lock" {
            // Few tasks meet here.
            options.volume_rules.ranges = RangeRule::AtOnce;
        }
    }
    options
}

fn chosen(policies: &str) -> Vec<Workload> {
    let mut all = workload::one_operation();
    all.extend(cores::chained());
    all.extend(cores::overlapped());
    all.extend(cores::back_and_forth());
    all.extend(cores::directory_loop());
    if policies.contains("data=writeback") {
        let has_data = |text: &str| text.contains("write ") || text.contains("truncate ");
        all.retain(|workload| !has_data(&workload.to_string()));
    }
    if let Some(text) = variable("DURE_CRASH_ONLY") {
        all.retain(|workload| workload.to_string().contains(&text));
        return all;
    }
    if variable("DURE_CRASH_EXHAUSTIVE").is_none() {
        let (one_in, one_in_ranges) = sample();
        let seed = variable("DURE_CRASH_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        // The first write of a file makes its range lock, the second takes a range.
        let ranges = policies.contains("range_lock=");
        let takes_a_range = |text: &str| ranges && text.matches("write ").count() > 1;
        all.retain(|workload| {
            let text = format!("{policies} {workload}");
            let one_in = if takes_a_range(&text) {
                one_in_ranges
            } else {
                one_in
            };
            xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), seed).is_multiple_of(one_in)
        });
    }
    all
}

#[track_caller]
fn must_hold(policies: &str) {
    must_hold_on(policies, &mount(policies));
}

#[track_caller]
fn must_hold_on(policies: &str, mount: &MountOptions) {
    if variable("DURE_CRASH_POLICY").is_some_and(|text| !policies.contains(&text)) {
        return;
    }
    let bases: Vec<Base> = workload::SETUPS
        .iter()
        .map(|calls| Base::new(calls).expect("a volume"))
        .collect();
    let workloads = chosen(policies);
    assert!(!workloads.is_empty(), "something is chosen");
    let full = variable("DURE_CRASH_EXHAUSTIVE").is_some();
    let memo = Memo::default();
    for tear in [Tear::None, Tear::Sectors] {
        let options = Options {
            selection: Selection {
                exhaustive_max: if tear == Tear::None { 10 } else { 4 },
                random: if full { 50 } else { 8 },
                seed: 1,
                tear,
            },
            steps: if full || tear == Tear::None {
                CrashSteps::Every
            } else {
                CrashSteps::Frontiers
            },
            mount: mount.clone(),
            ..Options::default()
        };
        let outcome = run_all_with(&bases, &workloads, &options, 2, &memo);
        println!("{}", outcome.report(&format!("{policies}, tear {tear:?}")));
        assert!(outcome.is_clean());
        let all = variable("DURE_CRASH_ONLY").is_none();
        if mount.volume_rules.ranges == RangeRule::AtOnce && all {
            let none = mount.range_lock.policy().is_whole_file();
            let files = outcome.counts.files_with_ranges;
            assert_eq!(files == 0, none, "ranges of {files} files were taken");
        }
    }
}

/// No flush is needed there: each write is durable when it returns, and torn between words of 8
/// bytes while it is under way.
#[test]
fn on_persistent_memory() {
    if variable("DURE_CRASH_POLICY").is_some_and(|text| !"nvm".contains(&text)) {
        return;
    }
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume");
    let bases: Vec<Base> = workload::SETUPS.iter().map(base).collect();
    let full = variable("DURE_CRASH_EXHAUSTIVE").is_some();
    let mut options = Options::on_nvm();
    options.selection.random = if full { 50 } else { 8 };
    let outcome = run_all(&bases, &chosen("nvm"), &options, 2);
    println!("{}", outcome.report("nvm, tear Words"));
    assert!(outcome.is_clean());
    let states = outcome.counts.states;
    assert!(
        states > outcome.counts.workloads * 20,
        "only {states} states"
    );
}

#[test]
fn images_in_a_journal_per_core() {
    must_hold("journal=zjournal");
}

#[test]
fn images_in_one_journal() {
    must_hold("journal=jbd2,fsync=all");
}

#[test]
fn images_with_one_shared_cursor() {
    must_hold("journal=zjournal,alloc=global");
}

#[test]
fn data_in_the_log() {
    must_hold("data=journal");
}

/// No log, no promise: what a crash leaves is refused by mount, and can be repaired.
#[test]
fn no_log() {
    must_hold("journal=none,no-crash-guarantee");
}

/// JBD2: one journal, whole nodes, all data.
#[test]
fn the_baseline() {
    must_hold("journal=jbd2,data=journal,fsync=all,log-data=0");
}

/// Z-Journal with its block-group affinity, and an fsync of what a file depends on.
#[test]
fn images_and_data_in_a_journal_per_core() {
    must_hold("journal=zjournal,data=journal,alloc=local");
}

/// Namespace operations only: pages may read as zeroes, which is not a legal tree here (see
/// `file/tests/lost_pages.rs` of dure-fs).
#[test]
fn names_with_unordered_data() {
    must_hold("data=writeback,log-data=0");
}

#[test]
fn deltas_with_one_shared_cursor() {
    must_hold("alloc=global,fsync=all");
}

/// The default is `node_lock=optimistic`: all other suites run with it.
#[test]
fn a_page_lock_per_node() {
    must_hold("node_lock=mutex");
}

#[test]
fn a_semaphore_per_node() {
    must_hold("node_lock=rwsem,journal=zjournal");
}

/// The default is `range_lock=segment`: all other suites run with it.
#[test]
fn one_lock_per_file() {
    must_hold("range_lock=inode");
}

#[test]
fn an_interval_tree_per_file() {
    must_hold("range_lock=tree");
}

#[test]
fn a_bit_per_page() {
    must_hold("range_lock=bitmap,data=journal");
}

/// Changes of a directory's entries share it, as where cores share directories.
#[test]
fn entries_beside_each_other() {
    let mut mount = mount_options();
    mount.volume_rules.directories = DirectoryRule::AtOnce;
    must_hold_on("directories shared", &mount);
}
