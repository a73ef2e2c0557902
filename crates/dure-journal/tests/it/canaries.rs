//! Each rule left out must be noticed by a crash test of the same kind as in `crash.rs`.

use crate::support::buffers::TestRules;
use crate::support::power::Effort;
use crate::support::scatter::{Scatter, ScatterRun, exhaust};
use crate::support::script::{Mix, run_random};
use dure_journal::Rules;
use dure_sync::canary::Rule;

const SEEDS: u64 = 200;

fn without(change: impl FnOnce(&mut Rules)) -> TestRules {
    let mut rules = TestRules::default();
    change(&mut rules.journal);
    rules
}

/// The first violation that random scripts find.
fn random_finds(rules: TestRules, mix: Mix) -> String {
    (0..SEEDS)
        .find_map(|seed| {
            // A broken journal may also trip an assertion of its own; that is noticing, too.
            let played = std::panic::catch_unwind(|| run_random(seed, 2, mix, rules).map(drop));
            played
                .unwrap_or_else(|_| Err(format!("seed={seed} an assertion failed")))
                .err()
        })
        .expect("a rule was left out and no crash test noticed")
}

/// The first violation that short scattered scripts find.
fn exhaustion_finds(rules: TestRules) -> String {
    (3..=5)
        .find_map(|depth| exhaust(depth, rules, Effort::default()).err())
        .expect("a rule was left out and no crash test noticed")
}

#[test]
fn marks_off() {
    println!(
        "{}",
        random_finds(without(|rules| rules.marks = Rule::LEFT_OUT), Mix::ALL)
    );
    println!(
        "{}",
        exhaustion_finds(without(|rules| rules.marks = Rule::LEFT_OUT))
    );
}

#[test]
fn no_self_marks() {
    println!(
        "{}",
        exhaustion_finds(without(|rules| rules.self_marks = Rule::LEFT_OUT))
    );
}

#[test]
fn read_marks_off() {
    let rules = TestRules {
        read_marks: false,
        ..TestRules::default()
    };
    println!("{}", random_finds(rules, Mix::ALL));
    println!("{}", exhaustion_finds(rules));
}

#[test]
fn mark_dropped_at_committed() {
    println!(
        "{}",
        exhaustion_finds(without(|rules| rules.marks_until_valid = Rule::LEFT_OUT))
    );
    println!(
        "{}",
        random_finds(
            without(|rules| rules.marks_until_valid = Rule::LEFT_OUT),
            Mix::ALL
        )
    );
}

#[test]
fn closure_off() {
    // A checkpoint would assert that its cut is valid, which is another way of noticing.
    let mix = Mix {
        checkpoints: false,
        ..Mix::ALL
    };
    println!(
        "{}",
        random_finds(without(|rules| rules.closure = Rule::LEFT_OUT), mix)
    );
}

#[test]
fn flush_off() {
    println!(
        "{}",
        random_finds(without(|rules| rules.flush = Rule::LEFT_OUT), Mix::ALL)
    );
}

#[test]
fn checksum_off() {
    println!(
        "{}",
        random_finds(without(|rules| rules.checksum = Rule::LEFT_OUT), Mix::ALL)
    );
}

#[test]
fn epoch_off() {
    println!(
        "{}",
        random_finds(without(|rules| rules.epoch = Rule::LEFT_OUT), Mix::ALL)
    );
}

/// Core 1's first transaction is built on core 0's, which is not on the medium; its second one
/// stands alone, is durable, and therefore valid.
#[test]
fn scan_stops_at_an_invalid_transaction() {
    let script = [
        Scatter::Change {
            core: 0,
            writes: 1,
            reads: 0,
        },
        Scatter::Change {
            core: 1,
            writes: 1,
            reads: 0,
        },
        Scatter::Prefix(1),
        Scatter::Change {
            core: 1,
            writes: 2,
            reads: 0,
        },
        Scatter::Prefix(1),
        Scatter::Flush,
    ];
    let play = |rules| {
        let mut run = ScatterRun::new(2, rules);
        script.into_iter().for_each(|step| run.step(step));
        run.finish(Effort::default())
    };
    play(TestRules::default()).expect("with the rule, nothing is lost");
    play(without(|rules| rules.skip_invalid = Rule::LEFT_OUT))
        .expect_err("without it, something is");
}

/// The device, not the journal, is broken: it forgets flushes.
#[test]
fn a_device_that_loses_flushes() {
    let rules = TestRules {
        lost_flushes: true,
        ..TestRules::default()
    };
    println!("{}", random_finds(rules, Mix::ALL));
}
