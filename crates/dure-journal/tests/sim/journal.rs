//! The journal on virtual cores under unfair schedules, then every crash.
//!
//! Runs with the sim backend only: `cargo xtask sim`. The number of seeds is `DURE_SIM_SEEDS`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic and print"
)]

use crate::support::buffers::TestRules;
use crate::support::disk::format;
use crate::support::power::{Effort, cut_everywhere};
use crate::support::recover::mount;
use crate::support::workload::{Work, run};
use dure_block::crash::Selection;
use dure_sync::canary::Rule;
use dure_sync::sim::{Config, run as run_on, seeds, try_run};

const WORK: Work = Work {
    cores: 2,
    changes: 12,
    commit_percent: 30,
    checkpoint_percent: 4,
    note_max: 2000,
    threads: false,
};

/// One simulated run and all its crashes. Returns how many.
fn simulate(
    config: Config,
    journals: usize,
    work: Work,
    rules: TestRules,
) -> Result<usize, String> {
    let seed = config.seed;
    let played = try_run(config, move || {
        let buffers = mount(format(journals, 3), rules);
        run(&buffers, work, seed);
        buffers.check_settled();
        let selection = Selection {
            exhaustive_max: 5,
            random: 8,
            seed,
            ..Effort::default().selection
        };
        cut_everywhere(
            &buffers,
            Effort {
                selection,
                recovery_every: 64,
            },
        )
    });
    match played {
        Ok(run) => run.value,
        Err(failure) => Err(failure.to_string()),
    }
}

/// Two to eight cores, with a journal each, with shared ones, and with a single one.
fn shape(seed: u64) -> (u16, usize) {
    let cores = [2, 3, 4, 8][usize::try_from(seed % 4).unwrap()];
    let journals = [usize::from(cores), 2, 1][usize::try_from(seed / 4 % 3).unwrap()];
    (cores, journals)
}

fn explore(
    config: fn(usize, u64) -> Config,
    rules: TestRules,
    seeds: impl Iterator<Item = u64>,
) -> Result<usize, String> {
    explore_with(false, config, rules, seeds)
}

fn explore_with(
    threads: bool,
    config: fn(usize, u64) -> Config,
    rules: TestRules,
    seeds: impl Iterator<Item = u64>,
) -> Result<usize, String> {
    let mut states = 0;
    for seed in seeds {
        let (cores, journals) = shape(seed);
        let work = Work {
            cores,
            threads,
            ..WORK
        };
        states += simulate(config(usize::from(cores), seed), journals, work, rules)
            .map_err(|what| format!("seed={seed} cores={cores} journals={journals}: {what}"))?;
    }
    Ok(states)
}

#[test]
fn sim_random_schedules_survive_every_crash() {
    let states = explore(Config::random, TestRules::default(), seeds(24)).unwrap();
    println!("{states} crash states");
}

#[test]
fn sim_stalls_survive_every_crash() {
    let states = explore(Config::stall, TestRules::default(), seeds(24)).unwrap();
    println!("{states} crash states");
}

#[test]
fn sim_images_survive_every_crash() {
    for config in [Config::random, Config::stall] {
        let states = explore(config, TestRules::images(), seeds(24)).unwrap();
        println!("{states} crash states");
    }
}

/// Each journal has a thread that commits it when a task asks, for its own sake or by a timer.
#[test]
fn sim_threads_that_commit_journals_survive_every_crash() {
    for config in [Config::random, Config::stall] {
        let states = explore_with(true, config, TestRules::images(), seeds(24)).unwrap();
        println!("{states} crash states");
    }
}

/// Canary, compound transactions: a commit returns when all journals have committed what it needed
/// when it began, as the released Z-Journal's does.
#[test]
fn sim_a_commit_that_does_not_wait_for_validity_is_noticed() {
    let mut rules = TestRules::images();
    rules.journal.wait_valid = Rule::LEFT_OUT;
    println!(
        "{}",
        explore_with(true, Config::random, rules, 0..400).unwrap_err()
    );
}

/// Canary, compound transactions: the walk takes what is written for durable.
#[test]
fn sim_a_walk_before_the_flush_is_noticed() {
    let mut rules = TestRules::images();
    rules.journal.walk_durable = Rule::LEFT_OUT;
    println!(
        "{}",
        explore_with(true, Config::random, rules, 0..400).unwrap_err()
    );
}

/// Canary, compound transactions: nobody freezes what a committing transaction has not copied yet.
#[test]
fn sim_images_that_are_not_frozen_are_noticed() {
    let mut rules = TestRules::images();
    rules.journal.freeze = Rule::LEFT_OUT;
    println!("{}", explore(Config::stall, rules, 0..400).unwrap_err());
}

/// Canary, compound transactions: transactions that share a buffer are not committed together.
#[test]
fn sim_one_way_marks_are_noticed() {
    let mut rules = TestRules::images();
    rules.journal.two_way = Rule::LEFT_OUT;
    println!("{}", explore(Config::random, rules, 0..400).unwrap_err());
}

/// Canary: a queue whose callers share the flush that is already running.
#[test]
fn sim_a_flush_that_is_too_early_is_noticed() {
    let rules = TestRules {
        early_flush: true,
        ..TestRules::default()
    };
    println!("{}", explore(Config::random, rules, 0..200).unwrap_err());
}

/// Canary: a commit that does not flush.
#[test]
fn sim_no_flush_is_noticed() {
    let mut rules = TestRules::default();
    rules.journal.flush = Rule::LEFT_OUT;
    println!("{}", explore(Config::stall, rules, 0..50).unwrap_err());
}

/// Canary: a commit that does not look at its closure again after another committer has written a
/// longer prefix of a journal it needs.
#[test]
fn sim_a_closure_that_is_not_rechecked_is_noticed() {
    let mut rules = TestRules::default();
    rules.journal.recheck = Rule::LEFT_OUT;
    println!("{}", explore(Config::stall, rules, 0..2000).unwrap_err());
}

/// The same seed gives the same run.
#[test]
fn sim_runs_are_repeatable() {
    let play = |seed| {
        let played = run_on(Config::random(3, seed), move || {
            let buffers = mount(format(2, 3), TestRules::default());
            run(&buffers, Work { cores: 3, ..WORK }, seed);
            (buffers.journal.dump(), buffers.journal.counters())
        });
        (played.value, played.report.schedule_hash)
    };
    for seed in 0..4 {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(
        play(1).1,
        play(2).1,
        "different seeds give different schedules"
    );
}
