//! Real threads on the real journal, then every crash.

use crate::support::buffers::TestRules;
use crate::support::disk::format;
use crate::support::power::{Effort, cut_everywhere};
use crate::support::recover::mount;
use crate::support::workload::{Work, run};

fn stress(journals: usize, work: Work, seeds: u64) {
    stress_with(journals, work, seeds, TestRules::default());
}

fn stress_with(journals: usize, work: Work, seeds: u64, rules: TestRules) {
    let mut states = 0;
    for seed in 0..seeds {
        let buffers = mount(format(journals, 3), rules);
        run(&buffers, work, seed);
        // The last handles are committed too, so that all effects must have been settled.
        while buffers.commit_all().is_err() {
            buffers.checkpoint();
        }
        buffers.check_settled();
        let counters = buffers.journal.counters();
        assert_eq!(counters.effects, counters.handles, "one effect per handle");
        states += cut_everywhere(&buffers, Effort::default()).unwrap();
    }
    println!("{states} crash states");
}

#[test]
fn two_threads_with_a_journal_each() {
    let work = Work {
        cores: 2,
        changes: 60,
        commit_percent: 30,
        checkpoint_percent: 2,
        note_max: 1000,
        threads: false,
    };
    stress(2, work, 30);
}

#[test]
fn four_threads_share_two_journals() {
    let work = Work {
        cores: 4,
        changes: 40,
        commit_percent: 20,
        checkpoint_percent: 2,
        note_max: 3000,
        threads: false,
    };
    stress(2, work, 15);
}

#[test]
fn four_threads_on_the_single_journal() {
    let work = Work {
        cores: 4,
        changes: 40,
        commit_percent: 20,
        checkpoint_percent: 2,
        note_max: 1000,
        threads: false,
    };
    stress(1, work, 15);
}

/// Compound transactions, with and without a thread that commits each journal.
#[test]
fn four_threads_share_buffers_of_four_journals() {
    for threads in [false, true] {
        let work = Work {
            cores: 4,
            changes: 40,
            commit_percent: 30,
            checkpoint_percent: 2,
            note_max: 1000,
            threads,
        };
        stress_with(4, work, 10, TestRules::images());
        stress_with(1, work, 5, TestRules::images());
    }
}
