//! Every crash of two operations on two cores.
#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::Selection;
use dure_sim::crash::{Base, Options, cores, run_all, workload};

#[test]
fn two_cores() {
    let bases: Vec<Base> = workload::SETUPS
        .iter()
        .map(|calls| Base::new(calls).expect("a volume"))
        .collect();
    for (name, all) in [
        ("chained", cores::chained()),
        ("overlapped", cores::overlapped()),
        ("back", cores::back_and_forth()),
    ] {
        let n: usize = std::env::var("N").map_or(100, |n| n.parse().expect("n"));
        let stride = (all.len() / n).max(1);
        let some: Vec<_> = all
            .iter()
            .filter(|w| std::env::var("ONLY").map_or(true, |o| w.to_string().contains(&o)))
            .step_by(stride)
            .cloned()
            .collect();
        let options = Options {
            selection: Selection {
                seed: 1,
                ..Selection::default()
            },
            ..Options::default()
        };
        let begin = dure_sync::clock::monotonic_ns();
        let outcome = run_all(&bases, &some, &options, 2);
        let ms = (dure_sync::clock::monotonic_ns() - begin) / 1_000_000;
        println!(
            "{name} of {}: {:?} violations {} failures {} ms {ms}",
            all.len(),
            outcome.counts,
            outcome.violations.len(),
            outcome.failures.len()
        );
        for failure in outcome.failures.iter().take(5) {
            println!("{failure}\n");
        }
        for violation in outcome.violations.iter().take(5) {
            println!("{violation}\n");
        }
    }
}
