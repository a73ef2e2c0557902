//! The bugs of the published per-core journal, one test each: with dure's rule a crash loses
//! nothing, without it something is lost, in the same few steps.
//!
//! **Structure.** Each script leaves the logs as a crash in the middle of commits does. The numbers
//! are those of docs/testing/races.md. **Invariants.** What must be noticed is found in the very
//! script.

use crate::support::buffers::TestRules;
use crate::support::power::Effort;
use crate::support::scatter::{Scatter, ScatterRun};
use dure_journal::Rules;
use dure_sync::canary::Rule;

const fn change(core: u16, writes: u8) -> Scatter {
    let reads = 0;
    Scatter::Change {
        core,
        writes,
        reads,
    }
}

fn play(journals: usize, script: &[Scatter], rules: TestRules) -> Result<usize, String> {
    let run = || {
        let mut run = ScatterRun::new(journals, rules);
        script.iter().for_each(|step| run.step(*step));
        run.finish(Effort::default())
    };
    // A broken journal may trip an assertion of its own; that is noticing, too.
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err("an assertion failed".into()))
}

/// Holds with all rules and fails without the one that `change` takes away.
#[track_caller]
fn needs(journals: usize, script: &[Scatter], change: impl FnOnce(&mut Rules)) {
    let mut rules = TestRules::default();
    play(journals, script, rules).unwrap();
    change(&mut rules.journal);
    let found = play(journals, script, rules);
    assert!(found.is_err(), "the rule was left out and nothing was lost");
}

/// recovery.c replays each journal on its own: core 1's transaction, built on what core 0 lost, is
/// kept.
#[test]
fn published_1_recovery_of_each_journal_on_its_own() {
    let script = [
        change(0, 0b011),
        change(1, 0b101),
        Scatter::Prefix(1),
        Scatter::Flush,
    ];
    needs(2, &script, |rules| rules.recover_marks = Rule::LEFT_OUT);
}

/// After a transaction is FINISHED a writer on another core adds no mark, although it is not valid:
/// core 1's is on the medium, core 0's is not, and core 2 builds on core 1's.
#[test]
fn published_2_no_mark_of_what_is_committed_and_not_valid() {
    let script = [
        change(0, 0b01),
        change(1, 0b11),
        Scatter::Prefix(1),
        Scatter::Flush,
        change(2, 0b10),
        Scatter::Prefix(2),
        Scatter::Flush,
    ];
    needs(3, &script, |rules| rules.marks_until_valid = Rule::LEFT_OUT);
}

/// zj_get_target_transaction takes a finished transaction for a valid one: core 2's marks core 1's,
/// which is complete and falls because core 0's is missing.
#[test]
fn published_3_a_finished_but_invalid_predecessor_counts() {
    let script = [
        change(0, 0b01),
        change(1, 0b11),
        change(2, 0b10),
        Scatter::Prefix(1),
        Scatter::Prefix(2),
        Scatter::Flush,
    ];
    needs(3, &script, |rules| rules.transitive = Rule::LEFT_OUT);
}

/// A timestamp of the commit cannot order two versions of a block in a cycle: core 1 changes the
/// granule first and last, core 0 in between, and each commits once.
#[test]
fn published_4_the_time_of_a_commit_orders_versions() {
    let script = [
        change(1, 0b01),
        change(0, 0b01),
        change(1, 0b01),
        Scatter::Prefix(0),
        Scatter::Prefix(1),
        Scatter::Flush,
    ];
    needs(2, &script, |rules| rules.by_version = Rule::LEFT_OUT);
}

/// A mark into the own journal is one too: core 0's second transaction is built on core 1's, which
/// is built on core 0's first; the log is written out of order by nobody, but core 1's may be
/// missing.
#[test]
fn published_4b_two_sided_pairs_fall_together() {
    let script = [
        change(0, 0b01),
        change(1, 0b11),
        change(0, 0b10),
        Scatter::Prefix(0),
        Scatter::Flush,
    ];
    needs(2, &script, |rules| rules.marks = Rule::LEFT_OUT);
}
