//! The whole file system under unfair schedules in persistent memory, and there and on a disk; then
//! crashes of each run, of all its media at one instant.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- media::`. The number of seeds is
//! `DURE_SIM_SEEDS`; a profile takes one in five, one of a volume with a disk one in 19.

#![expect(clippy::print_stdout, reason = "tests print what they have seen")]

use dure_block::record::{LostFlushes, LostStores};
use dure_fs::{NodeLog, Rules, StoreRules};
use dure_sim::schedules::{On, Plan, Scene, play};
use dure_sync::canary::Rule;
use dure_sync::sim::Config;

use crate::fs::{base_of, bases_on, explore_plans, plan};

pub(crate) const HYBRID: On = On::Hybrid(NodeLog::Nvm);
/// Data goes to the disk at once, none into the log.
const TO_DISK: &[(&str, &str)] = &[("log-data", "0")];
/// As little persistent memory as may be, and data that moves to the disk as soon as may be.
pub(crate) const NVRAM: &[(&str, &str)] = &[
    ("page_cache", "nvram"),
    ("nvram", "1M"),
    ("nvram_low", "90"),
];
/// The same of what is synced only, none of it into the log; all cores share a segment, which fills
/// sooner.
const NVRAM_SYNC: &[(&str, &str)] = &[
    ("page_cache", "nvram"),
    ("nvram", "1M"),
    ("nvram_low", "90"),
    ("nvram_absorb", "sync"),
    ("alloc", "global"),
    ("log-data", "0"),
];

const SHARED: &[(&str, &str)] = &[("page_cache", "none"), ("range_lock_wait", "queue")];
const SHARED_POSIX: &[(&str, &str)] = &[
    ("page_cache", "none"),
    ("range_lock_wait", "queue"),
    ("durability", "posix"),
];

/// One of some seeds shows a violation once `change` was made to the plan.
#[track_caller]
fn must_be_noticed(media: On, change: impl Fn(Plan) -> Plan) {
    let bases = bases_on(media);
    for seed in 0..400 {
        let plan = change(plan(Config::random, seed));
        if let Err(what) = play(base_of(&bases, seed), &plan) {
            println!("noticed: {what}");
            return;
        }
    }
    panic!("400 seeds did not show that a rule was left out");
}

/// In persistent memory, without a page cache: what any call has returned for is there.
#[test]
fn sim_fs_direct_calls_are_durable_when_they_return() {
    explore_on(On::Nvm, &[("page_cache", "none")]);
}

#[test]
fn sim_fs_direct_calls_are_durable_when_they_are_synced() {
    explore_on(On::Nvm, &[("page_cache", "none"), ("durability", "posix")]);
}

/// The same where each file has a range lock from its first call on: overwrites share the file.
#[test]
fn sim_fs_direct_overwrites_that_share_a_file_survive_crashes() {
    explore_on(On::Nvm, SHARED);
    explore_on(On::Nvm, SHARED_POSIX);
}

/// Operations that are not committed before they release their locks.
#[test]
fn sim_fs_direct_canary_operations_that_are_not_committed() {
    must_be_noticed(On::Nvm, |plan| Plan {
        policies: &[("page_cache", "none")],
        store_rules: StoreRules {
            strict_joins: Rule::LEFT_OUT,
            ..StoreRules::default()
        },
        ..plan
    });
}

fn explore_on(media: On, policies: &'static [(&'static str, &'static str)]) {
    let (count, step) = match media {
        On::Nvm => (200, 5),
        // A step that leaves no kind of seed out.
        _ => (380, 19),
    };
    explore_plans((media, count, step), |plan| Plan { policies, ..plan });
}

/// Logs and nodes in persistent memory, data on a disk: a crash leaves a state of both.
#[test]
fn sim_fs_hybrid_survives_crashes_of_both_media() {
    explore_on(HYBRID, &[]);
    explore_on(HYBRID, TO_DISK);
}

/// Tables in persistent memory, the rest on a disk.
#[test]
fn sim_fs_hybrid_with_logs_on_the_disk_survives_crashes() {
    explore_on(On::Hybrid(NodeLog::Block), &[]);
}

/// Two regions of persistent memory and a disk.
#[test]
fn sim_fs_hybrid_of_two_regions_survives_crashes() {
    explore_on(On::HybridRegions, &[("numa", "interleave")]);
}

/// Calls of all cores of a run together that fill some segments of persistent memory, if all they
/// write goes there; else four times as many.
const DATA_CALLS: u32 = 320;

/// So much data that some of it moves to the disk.
fn data(plan: Plan, policies: &'static [(&'static str, &'static str)]) -> Plan {
    let calls = if policies == NVRAM { 1 } else { 4 } * DATA_CALLS;
    Plan {
        policies,
        scene: Scene::Data,
        calls: calls / u32::from(plan.cores),
        ..plan
    }
}

fn explore_data(policies: &'static [(&'static str, &'static str)]) {
    let total = explore_plans((HYBRID, 380, 19), |plan| data(plan, policies));
    let moves = total.absorbed > 0 && total.moved > 0;
    assert!(moves || total.crashes < 100, "nothing moves: {total:?}");
}

/// Dirty pages in persistent memory: what writes, appends and truncates have returned for is there,
/// also while it moves to the disk.
#[test]
fn sim_fs_nvram_data_is_durable_when_calls_return() {
    explore_data(NVRAM);
}

/// The same where data is in persistent memory when it is synced.
#[test]
fn sim_fs_nvram_data_is_durable_when_it_is_synced() {
    explore_data(NVRAM_SYNC);
}

/// A sync that does not flush the disk: the record in persistent memory names data that the disk
/// has in its cache only.
#[test]
fn sim_fs_hybrid_canary_no_flush() {
    must_be_noticed(HYBRID, |plan| Plan {
        policies: TO_DISK,
        rules: Rules {
            flush: Rule::LEFT_OUT,
            ..Rules::default()
        },
        ..plan
    });
}

/// A disk that loses its flushes.
#[test]
fn sim_fs_hybrid_canary_lost_flushes() {
    must_be_noticed(HYBRID, |plan| Plan {
        policies: TO_DISK,
        lost_flushes: LostFlushes::All,
        ..plan
    });
}

/// Records in persistent memory that no fence covers.
#[test]
fn sim_fs_hybrid_canary_lost_fences() {
    must_be_noticed(HYBRID, |plan| Plan {
        lost_stores: LostStores::Fences,
        ..plan
    });
}

/// The record in persistent memory says that a page is on the disk, which has it in its cache only.
#[test]
fn sim_fs_nvram_canary_a_move_that_is_not_flushed() {
    must_be_noticed(HYBRID, |plan| Plan {
        store_rules: StoreRules {
            data_before_record: Rule::LEFT_OUT,
            ..StoreRules::default()
        },
        ..data(plan, NVRAM)
    });
}

/// Data in persistent memory that no fence covers.
#[test]
fn sim_fs_nvram_canary_lost_fences() {
    must_be_noticed(HYBRID, |plan| Plan {
        policies: NVRAM,
        lost_stores: LostStores::Fences,
        ..plan
    });
}
