//! Many workloads on a few threads, which share what they recovered.

use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{clock, thread};

use super::base::Base;
use super::call::Workload;
use super::memo::Memo;
use super::options::Options;
use super::run::{Counts, Recording, Violation};

/// What a suite found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How much was tried.
    pub counts: Counts,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// Workloads that did not even run.
    pub failures: Vec<String>,
    /// Nanoseconds it took.
    pub time_ns: u64,
}

/// Violations, and failures, that a report shows in full.
const SHOWN: usize = 5;

impl Outcome {
    /// Whether everything ran and nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty()
    }

    /// A line of counts under `name`, then the first of what was wrong.
    #[must_use]
    pub fn report(&self, name: &str) -> String {
        let mut text = format!(
            "{name}: workloads={} states={} images={} recovered={} violations={} failures={} seconds={}",
            self.counts.workloads,
            self.counts.states,
            self.counts.images,
            self.counts.recovered,
            self.violations.len(),
            self.failures.len(),
            self.time_ns / 1_000_000_000
        );
        let violations = self.violations.iter().take(SHOWN).map(ToString::to_string);
        let failures = self.failures.iter().take(SHOWN).cloned();
        for what in violations.chain(failures) {
            text += "\n\n";
            text += &what;
        }
        text
    }
}

/// Runs all workloads on `threads` threads. `bases` are the volumes, by setup.
///
/// # Panics
/// If a thread does.
#[must_use]
pub fn run_all(
    bases: &[Base],
    workloads: &[Workload],
    options: &Options,
    threads: usize,
) -> Outcome {
    run_all_with(bases, workloads, options, threads, &Memo::default())
}

/// As [`run_all`]; `memo` is that of runs whose volumes are recovered in the same way.
///
/// # Panics
/// If a thread does.
#[must_use]
pub fn run_all_with(
    bases: &[Base],
    workloads: &[Workload],
    options: &Options,
    threads: usize,
    memo: &Memo,
) -> Outcome {
    let begin = clock::monotonic_ns();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcome = Outcome::default();
        loop {
            // Relaxed: only the number itself is shared.
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(workload) = workloads.get(number) else {
                return outcome;
            };
            match Recording::new(&bases[workload.setup], workload, options) {
                Ok(recording) => {
                    let (counts, violations) = recording.crash_with(options, memo);
                    memo.trim();
                    outcome.counts = outcome.counts.plus(counts);
                    outcome.violations.extend(violations);
                }
                Err(what) => outcome
                    .failures
                    .push(format!("workload: {workload}\n{what}")),
            }
        }
    };
    let parts: Vec<Outcome> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, Outcome>| {
            handle.join().expect("a panic in a workload is a failure")
        };
        handles.into_iter().map(join).collect()
    });
    let mut all = Outcome::default();
    for part in parts {
        all.counts = all.counts.plus(part.counts);
        all.violations.extend(part.violations);
        all.failures.extend(part.failures);
    }
    all.time_ns = clock::monotonic_ns() - begin;
    all
}
