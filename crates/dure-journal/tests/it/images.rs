//! compound transactions: the same crashes as with deltas, and every rule of its own left out once.

use crate::support::buffers::TestRules;
use crate::support::power::Effort;
use crate::support::script::{Mix, Run, Step, change, long_scripts, random_scripts, run_random};
use dure_journal::{JournalId, Mark, Rules, TraceEvent};
use dure_sync::canary::Rule;

#[test]
fn random_scripts_survive_every_crash() {
    let states = random_scripts(TestRules::images());
    println!("{states} crash states");
    assert!(states > 1000);
}

#[test]
fn long_scripts_wrap_around_the_log() {
    println!("{} crash states", long_scripts(TestRules::images()));
}

fn run() -> Run {
    Run::new(2, 2, TestRules::images(), Effort::default())
}

/// Cores 0 and 1 change one buffer: their transactions are valid together from then on, in both
/// directions. Each is committed separately.
#[test]
fn sharing_makes_running_transactions_one() {
    for granule in [0b0001, 0b0010] {
        for root in [0b0100, 0b1000] {
            let mut run = run();
            run.step(change(0, 0b0001, 0)).unwrap();
            run.step(change(1, granule, 0)).unwrap();
            // Something else of each, in the other buffer of nobody's sharing.
            run.step(change(u16::from(root == 0b1000), 0b1100, 0))
                .unwrap();
            run.step(Step::Commit(root)).unwrap();
            let counters = run.buffers.journal.counters();
            assert_eq!(
                (counters.transactions, counters.flushes),
                (2, 2),
                "{counters}"
            );
            assert_eq!(counters.images, 2, "each buffer once: {counters}");
            assert!(counters.two_way > 0);
            run.finish().unwrap();
        }
    }
}

/// With one journal this is JBD2: any number of changes of a buffer is one image.
#[test]
fn one_journal_logs_each_buffer_once_per_commit() {
    let mut run = Run::new(1, 2, TestRules::images(), Effort::default());
    for round in 0..20 {
        run.step(change(round % 2, 0b0001 << (round % 4), 0))
            .unwrap();
    }
    run.step(Step::Commit(0b1111)).unwrap();
    let counters = run.buffers.journal.counters();
    assert_eq!(
        (counters.images, counters.transactions),
        (2, 1),
        "{counters}"
    );
    run.finish().unwrap();
}

/// The first violation that random scripts find.
fn notices(turn_off: impl Fn(&mut Rules)) -> String {
    let mut rules = TestRules::images();
    turn_off(&mut rules.journal);
    (0..400)
        .find_map(|seed| {
            // A broken journal may also trip an assertion of its own; that is noticing, too.
            let played =
                std::panic::catch_unwind(|| run_random(seed, 2, Mix::ALL, rules).map(drop));
            played
                .unwrap_or_else(|_| Err(format!("seed={seed} an assertion failed")))
                .err()
        })
        .expect("a rule was left out and no crash test noticed")
}

#[test]
fn marks_off() {
    println!("{}", notices(|rules| rules.marks = Rule::LEFT_OUT));
}

#[test]
fn two_way_marks_off() {
    println!("{}", notices(|rules| rules.two_way = Rule::LEFT_OUT));
}

#[test]
fn flush_off() {
    println!("{}", notices(|rules| rules.flush = Rule::LEFT_OUT));
}

#[test]
fn epoch_off() {
    println!("{}", notices(|rules| rules.epoch = Rule::LEFT_OUT));
}

/// Long notes make compound transactions of several segments.
const LONG: Mix = Mix {
    note_max: 3000,
    checkpoints: false,
    reboots: false,
    ..Mix::ALL
};

#[test]
fn pieces_off() {
    let mut rules = TestRules::images();
    rules.journal.whole = Rule::LEFT_OUT;
    let found = (0..4000).find_map(|seed| run_random(seed, 2, LONG, rules).err());
    println!("{}", found.expect("half of a transaction is noticed"));
}

/// A change after the cut of a checkpoint, before its commit: the closed transaction keeps its own
/// copy, and the change does not wait for it.
#[test]
fn a_buffer_of_a_closed_transaction_is_frozen() {
    let play = |rules| {
        let mut run = Run::new(2, 2, rules, Effort::default());
        run.step(change(0, 0b0001, 0))?;
        run.step(Step::CheckpointCopy)?;
        // Both buffers at once: a copy of the first taken late would hold half of this.
        run.step(change(1, 0b0101, 0))?;
        run.step(Step::CheckpointFinish(1))?;
        let frozen = run.buffers.journal.counters().frozen;
        run.finish().map(|_| frozen)
    };
    assert_eq!(play(TestRules::images()), Ok(1));
    let mut rules = TestRules::images();
    rules.journal.freeze = Rule::LEFT_OUT;
    println!("{}", play(rules).expect_err("half of a change is noticed"));
}

/// Model cases I15 and I16. Core 1's first transaction shares a buffer with core 0's, and needs core
/// 2's, which is lost. Its second one shares another buffer with core 0's, which then names only
/// the second.
#[test]
fn a_replaced_two_way_mark_is_passed_on() {
    let play = |rules| {
        let mut run = Run::new(3, 2, rules, Effort::default());
        run.step(change(0, 0b00_0101, 0))?;
        run.step(change(2, 0b01_0000, 0))?;
        run.step(change(1, 0b01_0001, 0))?;
        run.step(Step::Timer(1))?;
        run.step(change(1, 0b00_0100, 0))?;
        run.step(Step::Timer(1))?;
        run.step(Step::Timer(0))?;
        run.finish()
    };
    play(TestRules::images()).unwrap();
    let mut rules = TestRules::images();
    rules.journal.pass_on = Rule::LEFT_OUT;
    println!("{}", play(rules).expect_err("half of a change is noticed"));
}

/// Model case I6, in the rounds of one task. Core 0's transaction has a buffer that core 1's
/// changed; core 0's timer closes it, then core 1's thread its own, which has changed a buffer of
/// core 0's next one meanwhile.
#[test]
fn a_commit_goes_on_until_its_roots_are_valid() {
    let mut run = run();
    run.step(change(0, 0b0001, 0)).unwrap();
    run.step(change(1, 0b0001, 0)).unwrap();
    run.step(Step::Timer(0)).unwrap();
    run.step(change(0, 0b0100, 0)).unwrap();
    run.step(change(1, 0b0100, 0)).unwrap();
    assert!(
        !run.buffers
            .journal
            .is_valid(Mark::new(JournalId::new(0).unwrap(), 1))
    );
    run.step(Step::Commit(0b0001)).unwrap();
    // Core 0's first, core 1's, and core 0's second, on which core 1's depends.
    assert_eq!(run.buffers.journal.counters().transactions, 3);
    run.finish().unwrap();
}

/// The commit of one journal, and of all that a checkpoint has closed.
#[test]
fn commits_begin_and_end_in_the_trace() {
    let mut run = run();
    run.buffers.journal.trace().start(1000);
    run.step(change(0, 0b0001, 0)).unwrap();
    run.step(Step::Timer(0)).unwrap();
    run.step(change(0, 0b0001, 0)).unwrap();
    run.step(change(1, 0b0001, 0)).unwrap();
    run.step(Step::CheckpointCopy).unwrap();
    run.step(Step::CheckpointFinish(1)).unwrap();
    let records = run.buffers.journal.trace().read(&[]).records;
    let commits = records.iter().filter_map(|record| match record.event {
        TraceEvent::CommitBegin => Some(None),
        TraceEvent::CommitEnd { journals } => Some(Some(journals)),
        _ => None,
    });
    assert_eq!(commits.collect::<Vec<_>>(), [None, Some(1), None, Some(2)]);
}

/// The example of the documents: core 0 changes blocks 0 and 1, core 1 blocks 0 and 2, and core 1
/// commits first. After a crash its transaction is complete, and rejected.
#[test]
fn a_crash_between_the_commits_of_two_cores() {
    let mut run = run();
    run.step(change(0, 0b00_0101, 0)).unwrap();
    run.step(change(1, 0b01_0001, 0)).unwrap();
    run.step(Step::Timer(1)).unwrap();
    let first = Mark::new(JournalId::new(1).unwrap(), 1);
    assert!(!run.buffers.journal.is_valid(first));
    // Here every crash has all three buffers as they were.
    run.finish().unwrap();
    run.step(Step::Timer(0)).unwrap();
    assert!(run.buffers.journal.is_valid(first));
    run.finish().unwrap();
}
