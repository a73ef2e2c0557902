//! Every crash of two operations on two cores, whose journals depend on each other.
//!
//! `DURE_CRASH=full` runs all pairs, otherwise a sample; docs/testing/crashes.md.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::{Selection, Tear};
use dure_sim::crash::{
    At, Base, Call, CrashSteps, Memo, Options, Recording, Step, Times, Workload, cores,
    run_all_with, workload,
};
use dure_sync::amount;

fn bases() -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume can be made");
    workload::SETUPS.iter().map(base).collect()
}

/// Of the pairs, the part that a sample holds is one in this many.
fn sample() -> usize {
    amount::either(20, 5)
}

#[track_caller]
fn must_hold(name: &str, all: Vec<Workload>) {
    let full = std::env::var("DURE_CRASH").is_ok();
    let workloads: Vec<_> = all
        .into_iter()
        .step_by(if full { 1 } else { sample() })
        .collect();
    let (bases, memo) = (bases(), Memo::default());
    for tear in [Tear::None, Tear::Sectors] {
        let options = Options {
            selection: Selection {
                exhaustive_max: if tear == Tear::None { 12 } else { 4 },
                random: if full { 50 } else { 8 },
                seed: 1,
                tear,
            },
            steps: if full || tear == Tear::None {
                CrashSteps::Every
            } else {
                CrashSteps::Frontiers
            },
            ..Options::default()
        };
        let outcome = run_all_with(&bases, &workloads, &options, 2, &memo);
        println!("{}", outcome.report(&format!("{name}, tear {tear:?}")));
        assert!(outcome.is_clean());
    }
}

#[test]
fn one_fsync_behind_two_operations() {
    must_hold("chained", cores::chained());
}

#[test]
fn two_fsyncs_at_once() {
    must_hold("overlapped", cores::overlapped());
}

#[test]
fn three_commits_at_once() {
    must_hold("back and forth", cores::back_and_forth());
}

#[test]
fn a_directory_below_itself() {
    must_hold("directory loop", cores::directory_loop());
}

/// docs/testing/crashes.md, 1: the rename set the inode's ctime to the same tick of the clock, so
/// no byte of the inode changed and the rename did not depend on the chmod.
#[test]
fn bug_1_a_rename_in_the_same_tick_survived_a_lost_chmod() {
    let from = "A/foo";
    let to = "A/new";
    let mode = dure_fs::RenameMode::Replace;
    let steps = vec![
        Step::Core(0),
        Step::Call(Call::Chmod {
            at: At::Path(from),
            mode: 0o600,
        }),
        Step::Core(1),
        Step::Call(Call::Rename { from, to, mode }),
        Step::Fsync(At::Path(to)),
    ];
    let options = Options {
        times: Some(Times::Still),
        ..Options::default()
    };
    let workload = Workload { setup: 1, steps };
    let recording = Recording::new(&bases()[1], &workload, &options).expect("it runs");
    let (_, violations) = recording.crash(&options);
    assert!(violations.is_empty(), "{}", violations[0]);
}
