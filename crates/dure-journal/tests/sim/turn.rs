//! The life of compound transactions on virtual cores: which task waits for which, and group commit.
//!
//! Runs with the sim backend only: `cargo xtask sim`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic and print"
)]

use std::time::Duration;

use crate::support::buffers::{Buffers, Change, TestRules};
use crate::support::disk::{GRANULES, format};
use crate::support::recover::mount;
use dure_journal::{CommitError, JournalId, Mark};
use dure_sync::canary::Rule;
use dure_sync::sim::{Config, seeds, try_run};
use dure_sync::{Arc, CoreId, clock, thread};

const FLUSH: Duration = Duration::from_millis(1);

fn change(core: u16, writes: u8) -> Change {
    Change {
        core,
        writes,
        reads: 0,
        note: 0,
    }
}

fn slow() -> TestRules {
    TestRules {
        flush_time: FLUSH,
        ..TestRules::images()
    }
}

/// Commits of `cores` cores, each of `rounds` changes, on so many journals. Returns flushes.
fn commit_by(cores: u16, journals: usize, rounds: u64, config: Config) -> u64 {
    let run = try_run(config, move || {
        let buffers = mount(format(journals, 8), slow());
        thread::scope(|scope| {
            for core in 0..cores {
                let buffers = &buffers;
                scope.spawn_on(CoreId::new(core), move || {
                    for _ in 0..rounds {
                        let own = 1 << (usize::from(core) % GRANULES);
                        let mark = buffers.change(change(core, own)).unwrap();
                        buffers.journal.commit(&[mark]).unwrap();
                        assert!(buffers.journal.is_valid(mark));
                    }
                });
            }
        });
        buffers.check_settled();
        buffers.journal.counters().flushes
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// A committer that finds another at work waits, and the next one takes all that joined.
#[test]
fn sim_committers_of_one_journal_share_a_transaction() {
    let (mut all, mut runs) = (0, 0);
    for seed in seeds(16) {
        let flushes = commit_by(16, 1, 16, Config::random(16, seed));
        // Of those that come while a transaction is written, each has the next one: two for each
        // round of all, and some for few at the beginning and the end.
        assert!(flushes <= 2 * 16 + 4, "{flushes} flushes for 256 commits");
        (all, runs) = (all + flushes, runs + 1);
    }
    assert!(
        all * 100 <= runs * 16 * 16 * 13,
        "{all} flushes in {runs} runs"
    );
}

/// The only committer waits for no other.
#[test]
fn sim_the_only_committer_flushes_each_time() {
    assert_eq!(commit_by(1, 1, 8, Config::random(1, 1)), 8);
}

/// Ends after `until` with the number of transactions and when each task was done.
fn times(journals: usize, first: u16, second: u16) -> (Duration, Duration, Duration) {
    let run = try_run(Config::random(4, 1), move || {
        let buffers: Arc<Buffers> = Arc::new(mount(format(journals, 8), slow()));
        let start = clock::monotonic_ns();
        let after = move || Duration::from_nanos(clock::monotonic_ns() - start);
        let (mut ended, mut committed, mut begun) = Default::default();
        thread::scope(|scope| {
            let (buffers, ended) = (&buffers, &mut ended);
            let (committed, begun) = (&mut committed, &mut begun);
            scope.spawn_on(CoreId::new(first), move || {
                let open = buffers.journal.begin_images(CoreId::new(first), 64, 0);
                let open = open.unwrap();
                thread::sleep(Duration::from_millis(100));
                *ended = after();
                drop(open);
            });
            scope.spawn_on(CoreId::new(second), move || {
                thread::sleep(Duration::from_millis(10));
                let mark = buffers.change(change(second, 1)).unwrap();
                buffers.journal.commit(&[mark]).unwrap();
                *committed = after();
            });
            scope.spawn_on(CoreId::new(2), move || {
                thread::sleep(Duration::from_millis(50));
                drop(
                    buffers
                        .journal
                        .begin_images(CoreId::new(second), 64, 0)
                        .unwrap(),
                );
                *begun = after();
            });
        });
        (ended, committed, begun)
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// Locked: the commit waits for the handle that is open, and handles that begin wait for the lock.
#[test]
fn sim_a_locked_transaction_waits_for_open_handles() {
    let (ended, committed, begun) = times(1, 0, 1);
    assert!(committed >= ended + FLUSH, "{committed:?} after {ended:?}");
    assert!(
        begun >= ended && begun < committed,
        "{begun:?} after {ended:?}"
    );
}

/// A journal that the commit does not need is not locked.
#[test]
fn sim_a_commit_waits_for_no_other_journal() {
    let (ended, committed, begun) = times(4, 0, 1);
    assert!(committed < ended / 2, "{committed:?} before {ended:?}");
    assert!(begun < ended, "{begun:?} before {ended:?}");
}

/// How long the commit of a chain takes in which each core's transaction needs the next one's.
fn commit_of_chain(cores: u16, threads: bool) -> Duration {
    let run = try_run(Config::random(usize::from(cores), 1), move || {
        let buffers = mount(format(usize::from(cores), 8), slow());
        let journal = &buffers.journal;
        let mut took = Duration::ZERO;
        thread::scope(|scope| {
            for core in (0..cores).filter(|_| threads) {
                let task = journal.commit_task(JournalId::new(core).unwrap());
                scope.spawn_on(CoreId::new(core), move || {
                    while task.wait() {
                        task.commit().unwrap();
                    }
                });
            }
            let marks: Vec<Mark> = (0..cores)
                .map(|core| buffers.change(change(core, 1)).unwrap())
                .collect();
            thread::sleep(Duration::from_millis(1));
            let start = clock::monotonic_ns();
            journal.commit(&marks[..1]).unwrap();
            took = Duration::from_nanos(clock::monotonic_ns() - start);
            assert!(marks.iter().all(|mark| journal.is_valid(*mark)));
            assert_eq!(journal.counters().transactions, u64::from(cores));
            journal.end_commit_tasks();
        });
        took
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// Threads commit their journals at the same time, and share flushes; one task commits them one
/// after the other.
#[test]
fn sim_journals_are_committed_at_the_same_time() {
    let (one, together) = (commit_of_chain(4, false), commit_of_chain(4, true));
    println!("{one:?} by one task, {together:?} by threads");
    assert!(one >= FLUSH * 4, "{one:?}");
    assert!(together < FLUSH * 3, "{together:?}");
}

/// How long two cores change buffers of both.
const CHANGES: Duration = Duration::from_millis(60);

/// When a commit ends that begins meanwhile, and how many have closed all journals at one moment.
fn commit_beside_changes(rules: TestRules) -> (Duration, u64) {
    let run = try_run(Config::random(3, 1), move || {
        let buffers = mount(format(2, 16), rules);
        let start = clock::monotonic_ns();
        let after = move || Duration::from_nanos(clock::monotonic_ns() - start);
        let mut ended = Duration::ZERO;
        thread::scope(|scope| {
            let (buffers, ended) = (&buffers, &mut ended);
            for core in [0, 1] {
                scope.spawn_on(CoreId::new(core), move || {
                    while after() < CHANGES {
                        buffers.change(change(core, 0b0101)).unwrap();
                        thread::sleep(FLUSH / 10);
                    }
                });
            }
            scope.spawn_on(CoreId::new(2), move || {
                thread::sleep(FLUSH);
                buffers.commit(0b0001).unwrap();
                *ended = after();
            });
        });
        buffers.check_settled();
        (ended, buffers.journal.counters().commits_at_once)
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// In each round core 1's transaction, which core 0's needs, closes a flush later: by then it shares
/// a buffer with core 0's next. Without the end of the rounds the commit ends with the changes.
#[test]
fn sim_a_commit_ends_while_others_share_its_buffers() {
    let (ended, at_once) = commit_beside_changes(slow());
    assert!(ended < CHANGES / 2, "{ended:?}");
    assert_eq!(at_once, 1);
    let mut rules = slow();
    rules.journal.rounds = Rule::LEFT_OUT;
    let (ended, at_once) = commit_beside_changes(rules);
    assert!(ended > CHANGES, "{ended:?}");
    assert_eq!(at_once, 0);
}

/// A task that has asked its journal's thread goes on by itself when the thread cannot commit, and
/// when it ends.
#[test]
fn sim_no_task_waits_for_a_thread_that_fails_or_ends() {
    let run = try_run(Config::random(2, 1), || {
        let buffers = mount(format(1, 4), TestRules::images());
        let journal = &buffers.journal;
        let is_full = |done: Result<(), CommitError>| matches!(done, Err(CommitError::LogFull(_)));
        thread::scope(|scope| {
            let task = journal.commit_task(JournalId::new(0).unwrap());
            scope.spawn_on(CoreId::new(1), move || {
                assert!(task.wait());
                assert!(is_full(task.commit()));
                task.failed();
                // The second time it ends.
                assert!(task.wait());
            });
            let mark = buffers.change(change(0, 1)).unwrap();
            let gate = journal.close_gate();
            assert!(is_full(journal.commit(&[mark])));
            drop(gate);
            journal.commit(&[mark]).unwrap();
            assert!(journal.is_valid(mark));
        });
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}
