//! Each rule of durability left out must be noticed by the crash tests; with all of them on, the
//! same workloads pass.

#![expect(clippy::print_stdout, reason = "what was noticed is worth reading")]

use dure_block::crash::{Selection, Tear};
use dure_block::record::{Cache, LostFlushes};
use dure_fs::{CrashGuarantee, RecordPolicy};
use dure_sim::crash::{
    At, Base, Call, CrashFrom, Options, Recording, Step, Workload, cores, run_all, workload,
};
use dure_sync::canary::Rule;

fn bases() -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume can be made");
    workload::SETUPS.iter().map(base).collect()
}

fn tearing(tear: Tear) -> Options {
    let selection = Selection {
        exhaustive_max: 8,
        random: 8,
        seed: 1,
        tear,
    };
    Options {
        selection,
        ..Options::default()
    }
}

/// Workloads of one operation whose description holds the text; at most `max`.
fn of_one_operation(text: &str, max: usize) -> Vec<Workload> {
    let all = workload::one_operation().into_iter();
    let holds = |workload: &Workload| workload.to_string().contains(text);
    all.filter(holds).take(max).collect()
}

/// Every third: enough to notice.
fn some(workloads: Vec<Workload>) -> Vec<Workload> {
    workloads.into_iter().step_by(3).collect()
}

/// With all rules nothing is found; after `change` something is.
#[track_caller]
fn must_notice(workloads: &[Workload], tear: Tear, change: impl FnOnce(&mut Options)) {
    assert!(!workloads.is_empty(), "there is something to run");
    let bases = bases();
    let mut options = tearing(tear);
    let outcome = run_all(&bases, workloads, &options, 2);
    let first = outcome.violations.first().map(ToString::to_string);
    assert_eq!(first.or(outcome.failures.first().cloned()), None);
    change(&mut options);
    let outcome = run_all(&bases, workloads, &options, 2);
    let first = outcome.violations.first().map(ToString::to_string);
    let first = first.or(outcome.failures.first().cloned());
    println!(
        "{} of {} workloads notice, the first so:\n{}",
        outcome.violations.len() + outcome.failures.len(),
        workloads.len(),
        first.expect("a rule was left out and no crash test noticed")
    );
}

#[test]
fn lost_flushes() {
    must_notice(&of_one_operation("fsync", 10), Tear::None, |options| {
        options.lost_flushes = LostFlushes::All;
    });
}

/// Persistent memory whose writes are not fenced.
#[test]
fn persistent_memory_without_fences() {
    must_notice(&of_one_operation("fsync", 10), Tear::None, |options| {
        options.cache = Cache::Hidden;
    });
}

#[test]
fn commit_without_flush() {
    must_notice(&of_one_operation("fsync", 10), Tear::None, |options| {
        options.mount.rules.flush = Rule::LEFT_OUT;
    });
}

#[test]
fn marks_off() {
    must_notice(&some(cores::overlapped()), Tear::None, |options| {
        options.mount.rules.marks = Rule::LEFT_OUT;
    });
}

#[test]
fn self_marks_off() {
    must_notice(&some(cores::back_and_forth()), Tear::None, |options| {
        options.mount.rules.self_marks = Rule::LEFT_OUT;
    });
}

#[test]
fn marks_dropped_when_written() {
    must_notice(&some(cores::overlapped()), Tear::None, |options| {
        options.mount.rules.marks_until_valid = Rule::LEFT_OUT;
    });
}

#[test]
fn closure_off() {
    must_notice(&some(cores::chained()), Tear::None, |options| {
        options.mount.rules.closure = Rule::LEFT_OUT;
    });
}

#[test]
fn read_marks_off() {
    must_notice(&cores::directory_loop(), Tear::None, |options| {
        options.mount.volume_rules.store.read_marks = Rule::LEFT_OUT;
    });
}

#[test]
fn no_log_without_its_mark() {
    must_notice(&of_one_operation("fsync", 10), Tear::None, |options| {
        options.mount.records = RecordPolicy::None;
        options.mount.crash_guarantee = CrashGuarantee::Waived;
        options.mount.volume_rules.store.mark_unlogged = Rule::LEFT_OUT;
    });
}

#[test]
fn checksum_off() {
    must_notice(
        &of_one_operation("user.large", 20),
        Tear::Sectors,
        |options| {
            options.mount.rules.checksum = Rule::LEFT_OUT;
        },
    );
}

/// Two transactions of one journal are unflushed; the first is lost, the second kept. Recovery ends
/// the log before both. The first transaction of the next epoch takes the place, sequence and
/// number of the lost one, and behind it stands the second: only the epoch says that it does not
/// count.
#[test]
fn epoch_off() {
    let bases = bases();
    let path = "after";
    let then = Workload {
        setup: 1,
        steps: vec![
            Step::Core(0),
            Step::Call(Call::Create { path }),
            Step::Fsync(At::Path(path)),
        ],
    };
    let good = Options {
        from: CrashFrom::Mount,
        ..tearing(Tear::None)
    };
    let mut bad = good.clone();
    bad.mount.rules.epoch = Rule::LEFT_OUT;
    let mut noticed = None;
    let make = |path| {
        let begin = Step::FsyncBegin(At::Path(path));
        [Step::Call(Call::Create { path }), begin]
    };
    let end = [Step::FsyncEnd, Step::Core(0)];
    let steps = [make("A/one"), make("B/two"), end].concat();
    let first = Recording::new(&bases[1], &Workload { setup: 1, steps }, &good);
    let crashed = first.expect("it runs").crashed(&good, usize::MAX);
    let found = |base: &Base, options: &Options| match Recording::new(base, &then, options) {
        Ok(second) => second.crash(options).1.first().map(ToString::to_string),
        Err(what) => Some(what),
    };
    for base in crashed.unwrap_or_else(|found| panic!("{found}")) {
        assert_eq!(found(&base, &good), None);
        noticed = noticed.or(found(&base, &bad));
    }
    println!(
        "{}",
        noticed.expect("epochs were ignored and no crash test noticed")
    );
}

#[test]
fn header_before_tables() {
    must_notice(&of_one_operation("checkpoint", 40), Tear::None, |options| {
        options.mount.volume_rules.store.tables_before_header = Rule::LEFT_OUT;
    });
}

#[test]
fn space_before_nodes() {
    must_notice(&of_one_operation("checkpoint", 40), Tear::None, |options| {
        options.mount.volume_rules.store.nodes_before_space = Rule::LEFT_OUT;
    });
}

#[test]
fn tails_before_header() {
    must_notice(&of_one_operation("checkpoint", 40), Tear::None, |options| {
        options.mount.volume_rules.store.header_before_tails = Rule::LEFT_OUT;
    });
}

#[test]
fn reuse_before_valid() {
    must_notice(&workload::full_volume(), Tear::None, |options| {
        options.mount.volume_rules.store.reuse_after_valid = Rule::LEFT_OUT;
    });
}

#[test]
fn data_check_off() {
    must_notice(
        &of_one_operation("write /A/foo", 20),
        Tear::None,
        |options| {
            options.mount.volume_rules.store.data_check = Rule::LEFT_OUT;
        },
    );
}

#[test]
fn data_written_after_its_slots_are_logged() {
    must_notice(
        &of_one_operation("write /A/foo", 20),
        Tear::None,
        |options| {
            options.mount.volume_rules.data_before_log = Rule::LEFT_OUT;
            options.mount.volume_rules.store.data_check = Rule::LEFT_OUT;
        },
    );
}

/// The journals are those of two cores; recovery of each on its own keeps what builds on nothing.
#[test]
fn recovery_without_marks() {
    must_notice(&some(cores::overlapped()), Tear::None, |options| {
        options.mount.rules.recover_marks = Rule::LEFT_OUT;
    });
}

#[test]
fn replay_in_the_order_of_the_logs() {
    must_notice(&some(cores::back_and_forth()), Tear::None, |options| {
        options.mount.rules.by_version = Rule::LEFT_OUT;
    });
}

/// docs/testing/races.md, published 8: a block revoked in one journal is replayed from another. A
/// change of the file's leaf is in core 1's log, its removal in that of core 0; the checkpoint
/// takes the leaf away, and of the two headers that let the logs go only that of core 0 is on the
/// medium.
#[test]
fn published_8_a_change_of_a_freed_node_in_another_journal() {
    let steps = vec![
        Step::Core(1),
        Step::Call(Call::Write {
            at: At::Path("A/bar"),
            offset: 25 * 4096,
            len: 4096,
            fill: 3,
        }),
        Step::Sync,
        Step::Core(0),
        Step::Call(Call::Unlink { path: "A/bar" }),
        Step::Sync,
        Step::Checkpoint,
    ];
    let workloads = [Workload { setup: 1, steps }];
    must_notice(&workloads, Tear::None, |options| {
        options.mount.rules.tombstones = Rule::LEFT_OUT;
    });
}

#[test]
fn pairs_changed_before_a_snapshot_has_kept_them() {
    let texts = [
        "setup 1; snapshot 0; write /foo 0+5000 of 9; checkpoint; checkpoint",
        "setup 1; create /new; snapshot 0; unlink /A/foo; sync; checkpoint; checkpoint",
    ];
    let workloads = texts.map(|text| text.parse().expect("a workload"));
    must_notice(&workloads, Tear::None, |options| {
        options.mount.volume_rules.store.keep_before_change = Rule::LEFT_OUT;
    });
}
