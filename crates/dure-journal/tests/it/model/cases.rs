//! The cases, with the letters of docs/design/journal-model.md.

use dure_sync::amount;

use super::rules::{Data, Fsync, NodeReuse, Records, RecoveryCrash, Rules};
use super::search::search;
use super::state::CORES;

/// With data blocks an operation writes buffer 0, or both.
const WITH_DATA: &[u8] = &[0b01, 0b11];

/// One granule of a node, or two nodes.
const WITH_IMAGES: &[u8] = &[0b001, 0b010, 0b101, 0b110];

/// Core 1 changes nodes that cores 0 and 2 have, a transaction each: one with the node of core 2.
const MEETING: [&[u8]; CORES] = [&[0b0101], &[0b1001, 0b0100], &[0b1000]];

fn images() -> Rules {
    Rules {
        records: Records::Image,
        write_sets: WITH_IMAGES,
        checkpoints: 1,
        ..Rules::default()
    }
}

/// At least `DURE_MODEL_OPS` operations.
fn sized(mut rules: Rules) -> Rules {
    if let Ok(text) = std::env::var("DURE_MODEL_OPS") {
        let least = text.parse().expect("DURE_MODEL_OPS is a number");
        rules.operations = rules.operations.max(least);
    }
    rules
}

fn must_hold(rules: Rules) {
    let crashes = crashes_that_hold(rules);
    assert!(crashes > 100_000, "the search covers something");
}

/// For what differs little from a case that is searched in full: an operation fewer, but in CI.
fn must_hold_too(rules: Rules) {
    let operations = amount::either(rules.operations - 1, rules.operations);
    let crashes = crashes_that_hold(Rules {
        operations,
        ..rules
    });
    assert!(
        crashes > amount::either(1_000, 100_000),
        "the search covers something"
    );
}

/// How many crashes the search finds, none of which loses anything.
fn crashes_that_hold(rules: Rules) -> u64 {
    let outcome = search(&sized(rules));
    println!("{} states, {} crashes", outcome.states, outcome.crashes);
    if let Some((violation, story)) = outcome.violation {
        panic!("{violation}\n{story:#?}");
    }
    outcome.crashes
}

fn must_fail(rules: Rules) {
    let outcome = search(&sized(rules));
    println!("{} states, {} crashes", outcome.states, outcome.crashes);
    let (violation, story) = outcome
        .violation
        .expect("a rule was left out and nothing was lost");
    println!("{violation} after {} steps", story.len());
}

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident: $verdict:ident { $($change:tt)* })*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $verdict(Rules { $($change)*, ..Rules::default() });
        }
    )*};
}

macro_rules! image_cases {
    ($($(#[$doc:meta])* $name:ident: $verdict:ident { $($change:tt)* })*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $verdict(Rules { $($change)*, ..images() });
        }
    )*};
}

cases! {
    /// Deltas, one-way marks, self-marks, last writers until valid, versions, no reclaim order.
    a0_the_journal_as_it_is: must_hold { operations: 3 }
    /// The same, with recovery cut off before its one header write.
    a0r_crash_inside_recovery: must_hold_too { recovery_crash: RecoveryCrash::BeforeHeader }
    a1_marks_off: must_fail { marks: false }
    a2_last_writer_dropped_when_committed: must_fail { marks_until_valid: false }
    a3_no_self_marks: must_fail { self_marks: false }
    a4_image_before_its_last_writer_is_valid: must_fail { image_waits_for_valid: false }
    a5_nat_block_with_staged_entries: must_fail { nat_unstaged: false }
    a6_no_flush_between_image_and_nat: must_fail { flush_image_before_nat: false }
    a7_no_flush_between_nat_and_header: must_fail { flush_nat_before_header: false }
    a8_log_reused_before_header_is_durable: must_fail { flush_header_before_reuse: false }
    a9_second_nat_write_before_the_first_is_flushed: must_fail { nat_serial: false }
    a10_recovery_stops_at_an_invalid_transaction: must_fail { skip_invalid: false }
    a11_order_of_commits_instead_of_versions: must_fail { by_version: false }
    a12_recovery_advances_tails_one_at_a_time: must_fail {
        recovery_crash: RecoveryCrash::TailsOneAtATime
    }
    a13_in_place_without_reclaim_order: must_fail { in_place: true }
    a14_in_place_with_reclaim_order: must_hold_too { in_place: true, reclaim_order: true }
    a15_node_reuse_version_restarts: must_fail { node_reuse: NodeReuse::VersionRestarts }
    a16_node_reuse_version_continues: must_hold_too { node_reuse: NodeReuse::VersionContinues }
    a17_free_forgets_the_version: must_fail { node_reuse: NodeReuse::FreeForgetsVersion }
    a18_free_keeps_a_tombstone: must_hold_too { node_reuse: NodeReuse::FreeKeepsVersion }
    a18r_and_recovery_is_cut_off: must_hold_too {
        node_reuse: NodeReuse::FreeKeepsVersion, recovery_crash: RecoveryCrash::BeforeHeader,
        checkpoints: 1
    }
    /// Finding 3: marks form cycles, so validity built up from nothing never gets there.
    a19_validity_found_inductively: must_fail { greatest: false }
    b1_data_with_two_flushes: must_hold { data: Data::TwoFlushes, write_sets: WITH_DATA }
    b2_data_with_one_flush_unchecked: must_fail {
        data: Data::OneFlushUnchecked, write_sets: WITH_DATA
    }
    b3_check_every_slot_of_a_transaction: must_fail { data: Data::CheckAll, write_sets: WITH_DATA }
    b4_check_newest_slots_in_one_pass: must_fail {
        data: Data::CheckNewestOnce, write_sets: WITH_DATA
    }
    b5_check_surviving_slots_until_stable: must_hold {
        data: Data::CheckSurvivors, write_sets: WITH_DATA
    }
    b5r_and_recovery_is_cut_off: must_hold_too {
        data: Data::CheckSurvivors, write_sets: WITH_DATA, recovery_crash: RecoveryCrash::BeforeHeader
    }
    b6_blocks_reused_before_the_free_is_valid: must_fail {
        data: Data::CheckSurvivorsReuseEarly, write_sets: WITH_DATA
    }
}

image_cases! {
    /// Whole nodes, two-way marks of running transactions, one-way marks of closed ones, frozen
    /// copies; each transaction closes separately, and validity is found later.
    i0_images_as_they_are: must_hold { operations: 3 }
    i0r_and_recovery_is_cut_off: must_hold_too {
        checkpoints: 0, recovery_crash: RecoveryCrash::BeforeHeader
    }
    /// Half of an operation is in the other core's copy, which survives alone.
    i1_no_two_way_marks: must_fail { two_way: false }
    /// A copy brings back what a transaction that is lost has changed.
    i2_no_one_way_marks: must_fail { marks: false }
    i3_last_writer_dropped_when_committed: must_fail { marks_until_valid: false }
    /// A copy holds a part of an operation that came after its transaction had closed.
    i4_no_frozen_copies: must_fail { freeze: false }
    /// A copy holds other granules, too, whose last writers are lost.
    i5_marks_of_the_granules_changed_only: must_fail { mark_whole_node: false }
    /// The released fsync: what its transaction marks goes on between the two commits, and the newer
    /// part of it marks what nobody waits for.
    i6_fsync_waits_for_commits_in_all_journals: must_fail { fsync: Fsync::AllCommitted }
    /// The same wait is enough if all close at one moment.
    i6b_fsync_closes_all_at_one_moment: must_hold_too { fsync: Fsync::ClosedAtOnce }
    i7_pieces_without_marks: must_fail { pieces_mark: false }
    i8_order_of_commits_instead_of_versions: must_fail { by_version: false }
    i9_marks_of_other_cores_only: must_fail { self_marks: false }
    i10_validity_found_inductively: must_fail { greatest: false }
    i11_image_before_its_last_writer_is_valid: must_fail { image_waits_for_valid: false }
    i12_log_reused_before_header_is_durable: must_fail { flush_header_before_reuse: false }
    /// A crash takes away what was taken for valid.
    i13_walk_takes_what_is_written_for_durable: must_fail { walk_durable: false }
    i14_walk_takes_what_is_finished_for_valid: must_fail { walk_transitive: false }
    /// Core 1's first transaction needs core 2's; its second one shares core 0's, too, which then
    /// names only the second.
    i15_replaced_two_way_mark_is_not_passed_on: must_fail {
        pass_on: false, cores: 3, operations: 4, write_sets_of: Some(MEETING), checkpoints: 0
    }
    i16_replaced_two_way_mark_is_passed_on: must_hold {
        cores: 3, operations: 4, write_sets_of: Some(MEETING), checkpoints: 0
    }
    /// An older image in another log is put over a newer one.
    i17_in_place_without_reclaim_order: must_fail { in_place: true }
    i18_in_place_with_reclaim_order: must_hold_too { in_place: true, reclaim_order: true }
}
