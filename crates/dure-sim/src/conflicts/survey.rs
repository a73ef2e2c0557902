//! All pairs, or a share of them, on several threads of the real machine.

use dure_fs::MountOptions;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::sim::Detail;
use dure_sync::{Mutex, thread};

use super::act::{Act, Side};
use super::acts::acts;
use super::exception::{Finder, Line};
use super::plan::{Made, plan};
use super::play::play;

/// No other lock is held with it.
const RANK: u8 = 1;

/// Which pairs, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the volumes are mounted.
    pub mount: MountOptions,
    /// One pair of so many, 1 for all.
    pub every: usize,
    /// Only the pair whose text this is, or else those that contain it.
    pub only: String,
    /// Threads of the real machine.
    pub threads: usize,
    /// What each core does in addition to the call that counts: nothing, except in a test of the
    /// report itself.
    pub beside: Option<fn()>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mount: MountOptions::default(),
            every: 1,
            only: String::new(),
            threads: 1,
            beside: None,
        }
    }
}

/// A pair that commutes and shares a written line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The calls of core 0 and core 1.
    pub pair: String,
    /// The lines.
    pub lines: Vec<Line>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Pairs that do not commute.
    pub ordered: u64,
    /// Pairs that commute.
    pub pairs: u64,
    /// Those of them that share no written line.
    pub conflict_free: u64,
    /// The others.
    pub exceptions: Vec<Exception>,
    /// Calls whose answer was not that of the model.
    pub wrong: Vec<String>,
}

impl Survey {
    /// Conflict-free pairs of 10 000.
    #[must_use]
    pub fn share(&self) -> u64 {
        self.conflict_free * 10_000 / self.pairs.max(1)
    }

    fn add(&mut self, other: Survey) {
        self.ordered += other.ordered;
        self.pairs += other.pairs;
        self.conflict_free += other.conflict_free;
        self.exceptions.extend(other.exceptions);
        self.wrong.extend(other.wrong);
    }
}

/// The pairs, in order.
fn pairs<'a>(first: &'a [Act], second: &'a [Act], options: &Options) -> Vec<(&'a Act, &'a Act)> {
    let all = first.iter().flat_map(|a| {
        let later = second.iter().filter(|b| b.call >= a.call);
        later.map(move |b| (a, b))
    });
    let all: Vec<(&Act, &Act)> = all.collect();
    let named: Vec<(&Act, &Act)> = all
        .iter()
        .copied()
        .filter(|pair| text(pair) == options.only)
        .collect();
    if !named.is_empty() {
        return named;
    }
    let wanted = |pair: &(&Act, &Act)| text(pair).contains(&options.only);
    let wanted = all.into_iter().filter(wanted);
    wanted.step_by(options.every.max(1)).collect()
}

fn text((first, second): &(&Act, &Act)) -> String {
    format!("{first} | {second}")
}

/// Plays the pairs. `progress` is told how many are done, and of how many.
pub fn survey(options: &Options, progress: impl Fn(usize, usize) + Sync) -> Survey {
    let made = Made::new();
    let (first, second) = (acts(Side::First), acts(Side::Second));
    let pairs = pairs(&first, &second, options);
    let next = AtomicUsize::new(0);
    let found: Mutex<RANK, Vec<(usize, Survey)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut finder = Finder::default();
                loop {
                    // Relaxed: each number is given out once, whatever the order.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(pair) = pairs.get(index) else {
                        return;
                    };
                    let one = one(&made, pair, options, &mut finder);
                    found.lock().push((index, one));
                    progress(index + 1, pairs.len());
                }
            });
        }
    });
    let mut all = found.into_inner();
    all.sort_by_key(|(index, _)| *index);
    let mut survey = Survey::default();
    all.into_iter().for_each(|(_, one)| survey.add(one));
    survey
}

fn one(made: &Made, pair: &(&Act, &Act), options: &Options, finder: &mut Finder) -> Survey {
    let mut survey = Survey::default();
    let Some(plan) = plan(made, pair.0, pair.1) else {
        survey.ordered = 1;
        return survey;
    };
    survey.pairs = 1;
    let played = play(&plan, options, Detail::Lines);
    let wrong = played.wrong.into_iter();
    survey.wrong = wrong
        .map(|what| format!("{}: {what}", text(pair)))
        .collect();
    if played.lines.is_empty() {
        survey.conflict_free = 1;
        return survey;
    }
    // Plays the pair again with stacks, which is slower, to find the places in the code.
    let again = play(&plan, options, Detail::Stacks);
    let mut lines: Vec<Line> = again.lines.iter().map(|line| finder.line(line)).collect();
    // The lines come in the order of their addresses, which differ between runs.
    lines.sort();
    survey.exceptions.push(Exception {
        pair: text(pair),
        lines,
    });
    survey
}
