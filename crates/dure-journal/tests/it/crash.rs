//! Crashes of the real journal: scripts on a small file system, cut at every instant.
//!
//! What must hold is in `support/truth.rs`: a handle is there wholly or not at all, never without
//! what it wrote after or read from; what a commit returned for is there; versions have no gaps;
//! the result does not depend on threads, nor on how often recovery was cut; an old epoch's log is
//! never replayed. `canaries.rs` shows that each rule's absence is noticed.

use crate::support::buffers::TestRules;
use crate::support::power::{Effort, cut_everywhere};
use crate::support::scatter::{Scatter, ScatterRun, exhaust};
use crate::support::script::{Run, Step, change, long_scripts, random_scripts};
use dure_journal::{JournalId, Mark};

#[test]
fn random_scripts_survive_every_crash() {
    let states = random_scripts(TestRules::default());
    println!("{states} crash states");
    assert!(states > 1000);
}

#[test]
fn long_scripts_wrap_around_the_log() {
    println!("{} crash states", long_scripts(TestRules::default()));
}

#[test]
fn every_short_script_of_two_journals_survives_every_crash() {
    let depth = std::env::var("DURE_CRASH_DEPTH").map_or(5, |text| text.parse().unwrap());
    let states = exhaust(depth, TestRules::default(), Effort::default()).unwrap();
    println!("{states} crash states");
    assert!(states > 1000);
}

/// Z-Journal's example: core 0 modifies blocks 0 and 1; core 1 modifies 0 and 2; core 1 commits
/// first; crash before core 0's commit: core 1's transaction must be rejected.
#[test]
fn seed_two_core_example() {
    let script = [
        Scatter::Change {
            core: 0,
            writes: 0b011,
            reads: 0,
        },
        Scatter::Change {
            core: 1,
            writes: 0b101,
            reads: 0,
        },
        Scatter::Prefix(1),
        Scatter::Flush,
    ];
    let mut run = ScatterRun::new(2, TestRules::default());
    script.into_iter().for_each(|step| run.step(step));
    // Written behind the API's back and durable, but alone: rejected.
    let recovered = crate::support::power::last_state(&run.buffers).unwrap();
    assert_eq!(recovered.scan.transactions().len(), 1);
    assert_eq!(recovered.scan.survivors(), [false]);
    assert!(recovered.granules.iter().all(|(version, _)| *version == 0));
    // Core 0's log follows: now both count, in the order of versions.
    run.step(Scatter::Prefix(0));
    run.step(Scatter::Flush);
    let recovered = crate::support::power::last_state(&run.buffers).unwrap();
    assert_eq!(recovered.scan.survivors(), [true, true]);
    let versions: Vec<u64> = recovered
        .granules
        .iter()
        .map(|(version, _)| *version)
        .collect();
    assert_eq!(versions, [2, 1, 1, 0, 0, 0]);
    run.finish(Effort::default()).unwrap();
}

/// The same example through the API: committing core 1's handle takes core 0's along.
#[test]
fn seed_two_core_example_cannot_happen_through_commit() {
    let mut run = Run::new(2, 2, TestRules::default(), Effort::default());
    run.step(change(0, 0b011, 0)).unwrap();
    run.step(change(1, 0b101, 0)).unwrap();
    run.step(Step::Commit(0b100)).unwrap();
    let first = |journal| Mark::new(JournalId::new(journal).unwrap(), 1);
    assert!(
        run.buffers.journal.is_valid(first(0)),
        "granule 2 is built on core 0's granule 0"
    );
    assert!(run.buffers.journal.is_valid(first(1)));
    assert_eq!(run.buffers.journal.counters().transactions, 2);
    assert_eq!(
        run.buffers.journal.counters().flushes,
        1,
        "one flush for the whole closure"
    );
    run.finish().unwrap();
}

/// Z-Journal's figure with three cores, as marks of the policy `delta`: core 2 writes blocks 4 and
/// 5 (which are both in granule 2 here) and starts its commit; core 1 writes 2, 3 and 4 (granules 1
/// and 2); core 0 writes 0, 1 and 3 (granules 0 and 1); core 1 then writes 0.
/// Z-Journal merges cores 0 and 1 into one transaction by two-sided marks; here the marks point
/// one way each and form a cycle between the two transactions, with core 2 below both.
#[test]
fn seed_three_core_figure() {
    let script = [
        Scatter::Change {
            core: 2,
            writes: 0b0100,
            reads: 0,
        },
        Scatter::Prefix(2),
        Scatter::Change {
            core: 1,
            writes: 0b0110,
            reads: 0,
        },
        Scatter::Change {
            core: 0,
            writes: 0b0011,
            reads: 0,
        },
        Scatter::Change {
            core: 1,
            writes: 0b0001,
            reads: 0,
        },
    ];
    let survivors = |last: &[Scatter]| {
        let mut run = ScatterRun::new(3, TestRules::default());
        script
            .into_iter()
            .chain(last.iter().copied())
            .for_each(|step| run.step(step));
        let all = cut_everywhere(&run.buffers, Effort::default());
        all.unwrap_or_else(|what| panic!("{what}"));
        let recovered = crate::support::power::last_state(&run.buffers).unwrap();
        let journals = recovered
            .scan
            .transactions()
            .iter()
            .map(|found| found.journal.number());
        journals.zip(recovered.scan.survivors()).collect::<Vec<_>>()
    };
    // Only one half of the cycle: rejected; core 2 stands alone.
    let only_one = survivors(&[Scatter::Prefix(1), Scatter::Flush]);
    assert_eq!(only_one, [(1, false), (2, true)]);
    let only_other = survivors(&[Scatter::Prefix(0), Scatter::Flush]);
    assert_eq!(only_other, [(0, false), (2, true)]);
    // The whole cycle is valid.
    let both = survivors(&[Scatter::Prefix(1), Scatter::Prefix(0), Scatter::Flush]);
    assert_eq!(both, [(0, true), (1, true), (2, true)]);
}

/// After a recovery, the log of the old epoch stands where the new one is being written.
#[test]
fn an_old_epoch_is_never_replayed() {
    for draw in 0..40 {
        let mut run = Run::new(2, 2, TestRules::default(), Effort::default());
        for round in 0..3 {
            for core in [0, 1, 0, 1, 1] {
                run.step(change(core, 0b0011, 0)).unwrap();
                run.step(Step::Commit(0b0011)).unwrap();
            }
            run.step(Step::Reboot(draw * 7919 + round)).unwrap();
            // One short transaction in front of the old ones, which would follow it seamlessly.
            run.step(change(1, 0b0100, 0)).unwrap();
            run.step(Step::Commit(0b0100)).unwrap();
        }
        run.finish().unwrap();
    }
}

/// A checkpoint whose steps are spread over other operations, with the power cut in each.
#[test]
fn a_fuzzy_checkpoint_survives_every_crash() {
    for steps in 1..=4 {
        let mut run = Run::new(2, 2, TestRules::default(), Effort::default());
        for round in 0..12_u8 {
            run.step(change(u16::from(round % 2), 0b0011 << (round % 3), 0))
                .unwrap();
            if round % 3 == 0 {
                run.step(Step::Commit(0b0001)).unwrap();
            }
            if round % 4 == 0 {
                run.step(Step::CheckpointCopy).unwrap();
            }
            if round % 4 == 2 {
                run.step(Step::CheckpointFinish(steps)).unwrap();
            }
        }
        run.finish().unwrap();
    }
}
