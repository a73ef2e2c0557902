//! Where the time of a run went, by name.
//!
//! **Structure.** Waits have the names of their locks. Cache lines have none of their own: the sample
//! of moves says who asked for each, and a line is called after the place in the program that most
//! often did; lines of one place are one cause.

use std::collections::BTreeMap;

use dure_sync::sim::{Account, Waiting};

use super::stage::Done;
use super::{Cause, ranks};
use crate::conflicts::Finder;

/// Lines that are named; the rest are together.
const LINES_MAX: usize = 8;

/// A place, and what moves of its lines took.
#[derive(Default)]
struct Moved {
    ns: u64,
    moves: u64,
}

/// Moves by the name of the line, those that took longest first.
fn lines(account: &Account) -> Vec<(String, Moved)> {
    let mut finder = Finder::default();
    let mut askers: BTreeMap<usize, BTreeMap<String, u64>> = BTreeMap::new();
    for one in &account.moves {
        let place = finder.place(&one.stack);
        let name = match place.at.is_empty() {
            true => "of the machine".to_owned(),
            false => format!("{} {}", place.function, place.at),
        };
        *askers
            .entry(one.address >> 6)
            .or_default()
            .entry(name)
            .or_default() += 1;
    }
    let mut names: BTreeMap<String, Moved> = BTreeMap::new();
    for one in &account.moves {
        let own = &askers[&(one.address >> 6)];
        let most = own.iter().max_by_key(|(_, count)| **count);
        let (name, _) = most.expect("a line was asked for");
        let moved = names.entry(name.clone()).or_default();
        moved.moves += 1;
        if !one.is_in_wait {
            moved.ns += one.ns;
        }
    }
    let mut all: Vec<(String, Moved)> = names.into_iter().collect();
    all.sort_by_key(|(_, moved)| std::cmp::Reverse((moved.ns, moved.moves)));
    let rest = all.split_off(all.len().min(LINES_MAX));
    if !rest.is_empty() {
        let ns = rest.iter().map(|(_, moved)| moved.ns).sum();
        let moves = rest.iter().map(|(_, moved)| moved.moves).sum();
        all.push((format!("{} others", rest.len()), Moved { ns, moves }));
    }
    all
}

fn waiting(what: Waiting) -> String {
    match what {
        Waiting::Lock(rank) => format!("lock {}", ranks::name(rank)),
        Waiting::Condition(rank) => format!("condition of {}", ranks::name(rank)),
        Waiting::Device => "device".to_owned(),
    }
}

/// All causes, the largest first.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn causes(done: &Done) -> Vec<Cause> {
    let account = &done.counts;
    let total = account.total_ns().max(1) as f64;
    let works = done.works as f64;
    let cause = |name: &str, ns: u64| Cause {
        name: name.to_owned(),
        share: ns as f64 / total,
        lines_per_op: 0.0,
    };
    let mut causes = vec![
        cause("compute", account.compute_ns),
        cause("copies", account.copies_ns),
        cause("kernel", account.kernel_ns),
        cause("asleep", account.asleep_ns),
    ];
    for (what, ns) in &account.waits_ns {
        causes.push(cause(&waiting(*what), *ns));
    }
    let lines = lines(account);
    // The sample says how the time divides, not how much it is.
    let sampled: u64 = lines.iter().map(|(_, moved)| moved.ns).sum();
    for (name, moved) in lines {
        let part = moved.ns as f64 / sampled.max(1) as f64;
        causes.push(Cause {
            name: format!("line {name}"),
            share: account.lines_ns as f64 * part / total,
            lines_per_op: moved.moves as f64 * account.every.max(1) as f64 / works,
        });
    }
    causes.retain(|cause| cause.share > 0.0 || cause.lines_per_op > 0.0);
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    causes
}

/// The largest cause that has grown by a tenth of all time against a run on one core; otherwise what
/// that spends most time on.
pub(super) fn bottleneck(causes: &[Cause], alone: &[Cause]) -> String {
    let before = |name: &str| {
        let found = alone.iter().find(|cause| cause.name == name);
        found.map_or(0.0, |cause| cause.share)
    };
    let grown = causes
        .iter()
        .map(|cause| (cause, cause.share - before(&cause.name)));
    let most = grown.max_by(|a, b| a.1.total_cmp(&b.1));
    match (most, causes.first()) {
        (Some((cause, growth)), _) if growth >= 0.1 => cause.name.clone(),
        (_, Some(first)) => format!("none: {}", first.name),
        _ => "none".to_owned(),
    }
}
