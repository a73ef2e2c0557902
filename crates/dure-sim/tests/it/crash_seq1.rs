//! Every crash of every workload of one operation: nothing promised is lost, nothing is half there.
//!
//! `cargo test` runs a seeded sample. `DURE_CRASH=full` runs everything (about four
//! minutes); `DURE_CRASH_SEED=n` another sample; `DURE_CRASH_ONLY=text` the workloads whose
//! description holds the text, in full. See docs/testing/crashes.md.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::{Selection, Tear};
use dure_sim::crash::{Base, Memo, Options, Outcome, Workload, run_all_with, workload};
use dure_sync::amount;

/// Of the workloads, the part that a sample holds is one in this many.
fn sample() -> u64 {
    amount::either(24, 6)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn chosen(all: Vec<Workload>) -> Vec<Workload> {
    if let Some(text) = variable("DURE_CRASH_ONLY") {
        let holds = |workload: &Workload| workload.to_string().contains(&text);
        return all.into_iter().filter(holds).collect();
    }
    if variable("DURE_CRASH").is_some() {
        return all;
    }
    let seed = variable("DURE_CRASH_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let is_chosen = |workload: &Workload| {
        let text = workload.to_string();
        xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), seed).is_multiple_of(sample())
    };
    all.into_iter().filter(is_chosen).collect()
}

fn run(name: &str, workloads: &[Workload], selection: Selection, memo: &Memo) -> Outcome {
    let bases: Vec<Base> = workload::SETUPS
        .iter()
        .map(|calls| Base::new(calls).expect("a volume"))
        .collect();
    let options = Options {
        selection,
        ..Options::default()
    };
    let outcome = run_all_with(&bases, workloads, &options, 2, memo);
    println!("{}", outcome.report(name));
    outcome
}

#[test]
fn every_crash_of_one_operation_leaves_a_legal_tree() {
    let all = workload::one_operation();
    println!("seq-1: {} workloads in all", all.len());
    let workloads = chosen(all);
    assert!(!workloads.is_empty(), "something is chosen");
    let memo = Memo::default();
    for tear in [Tear::None, Tear::Sectors] {
        let full = variable("DURE_CRASH").is_some();
        let selection = Selection {
            exhaustive_max: if tear == Tear::None { 12 } else { 4 },
            random: if full { 100 } else { 8 },
            seed: 1,
            tear,
        };
        let outcome = run(
            &format!("seq-1, tear {tear:?}"),
            &workloads,
            selection,
            &memo,
        );
        assert!(outcome.is_clean());
    }
}
