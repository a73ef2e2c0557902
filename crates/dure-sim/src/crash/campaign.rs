//! A suite of workloads on all cores, in shares that can be continued.
//!
//! **Structure.** Groups run in batches; after a batch everything before [`Tally::place`] is done,
//! which is all that a later run needs to go on. Threads share what they recovered ([`Memo`]);
//! workloads of a group that write and promise the same run once. **Invariants.** A plan and a
//! place determine what is run next. **Crash.** A run that is killed repeats one batch.

use std::collections::BTreeSet;

use dure_block::crash::{Selection, Tear};
use dure_fs::units::{to_u64, to_usize};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::thread;

use super::ace::{Ace, Made, shuffled};
use super::base::Base;
use super::call::{Step, Workload};
use super::chipmunk::Class;
use super::memo::Memo;
use super::options::{CrashFrom, CrashSteps, Options, Times};
use super::run::{Counts, Recording, Violation};
use super::workload::SETUPS;
use crate::media::On;

/// What is run of ACE's suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Operations of a workload, 1 to 3.
    pub operations: u32,
    /// Cores the operations are spread over at most, 1 to 3.
    pub cores: usize,
    /// What the order of the groups depends on. 0: by number, so that groups that begin alike
    /// follow each other, which is the fastest way through all of them.
    pub seed: u64,
}

/// Workloads, in groups.
#[derive(Debug)]
enum Groups {
    Ace(Box<Ace>),
    Chipmunk(Vec<&'static Class>),
}

impl Groups {
    fn count(&self) -> u64 {
        match self {
            Groups::Ace(ace) => ace.groups(),
            Groups::Chipmunk(classes) => to_u64(classes.len()),
        }
    }

    fn group(&self, number: u64) -> Vec<Made> {
        match self {
            Groups::Ace(ace) => ace.group(number),
            Groups::Chipmunk(classes) => classes[to_usize(number)].group(),
        }
    }
}

/// What was run so far, and what it showed.
#[derive(Debug, Default)]
pub struct Tally {
    /// Groups before this place of the order are done.
    pub place: u64,
    /// How much was tried.
    pub counts: Counts,
    /// Workloads that wrote and promised what another of their group did.
    pub equal: u64,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// Workloads that did not even run, with the error.
    pub failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.counts = self.counts.plus(other.counts);
        self.equal += other.equal;
        self.violations.extend(other.violations);
        self.failures.extend(other.failures);
    }

    /// Whether everything was as promised.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty()
    }
}

/// Runs a plan.
#[derive(Debug)]
pub struct Campaign {
    groups: Groups,
    /// See [`Plan::seed`].
    seed: u64,
    /// Volumes by setup and journals, from two on.
    bases: Vec<Vec<Base>>,
    threads: usize,
    memo: Memo,
    /// A rule that is left out, for canaries.
    options: Options,
}

/// Groups of a batch, for each thread.
const BATCH: u64 = 24;

/// The rules under which every workload of a campaign runs; whole writes first, then torn ones.
fn thoroughness(options: &Options, from: CrashFrom) -> [Options; 2] {
    let with = |tear, exhaustive_max, random, steps| Options {
        selection: Selection {
            exhaustive_max,
            random,
            seed: 1,
            tear,
        },
        steps,
        from,
        ..options.clone()
    };
    [
        with(Tear::None, 8, 8, CrashSteps::Every),
        with(Tear::Sectors, 2, 4, CrashSteps::Frontiers),
    ]
}

/// Journals of the volume a workload runs on: one for each core, and two at least.
fn journals(workload: &Workload) -> usize {
    let cores = workload.steps.iter().filter_map(|step| match step {
        Step::Core(core) => Some(core + 1),
        _ => None,
    });
    cores.max().unwrap_or(2).max(2)
}

fn bases_of(setup: usize, media: On) -> Vec<Base> {
    let made = (2..=3).map(|journals| Base::on(media, SETUPS[setup], journals));
    made.map(|base| base.expect("a volume can be made"))
        .collect()
}

impl Campaign {
    /// Prepares `plan` for `threads` threads; `options` say how volumes are mounted.
    ///
    /// # Panics
    /// If a volume cannot be made in memory.
    #[must_use]
    pub fn new(plan: Plan, threads: usize, options: Options) -> Campaign {
        let ace = Ace::new(plan.operations, plan.cores);
        Campaign::of((Groups::Ace(Box::new(ace)), plan.seed), threads, options)
    }

    /// A campaign of these classes of Chipmunk's bugs, in this order.
    ///
    /// # Panics
    /// If a volume cannot be made in memory.
    #[must_use]
    pub fn chipmunk(classes: &[&'static Class], threads: usize, options: Options) -> Campaign {
        let groups = Groups::Chipmunk(classes.to_vec());
        Campaign::of((groups, 0), threads, options)
    }

    fn of((groups, seed): (Groups, u64), threads: usize, options: Options) -> Campaign {
        assert!(threads > 0, "somebody works");
        Campaign {
            groups,
            seed,
            bases: (0..SETUPS.len())
                .map(|setup| bases_of(setup, options.media))
                .collect(),
            threads,
            memo: Memo::default(),
            options,
        }
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.groups.count()
    }

    /// The group at `place` of the order.
    fn group(&self, place: u64) -> Vec<Made> {
        let number = match self.seed {
            0 => place,
            seed => shuffled(self.groups(), seed, place),
        };
        self.groups.group(number)
    }

    /// Runs the next batch behind `tally.place`; false if nothing was left.
    ///
    /// # Panics
    /// If a thread does.
    pub fn batch(&self, tally: &mut Tally) -> bool {
        let end = self
            .groups()
            .min(tally.place + BATCH * u64::try_from(self.threads).expect("few"));
        if tally.place >= end {
            return false;
        }
        let next = AtomicU64::new(tally.place);
        let (bases, options, memo) = (&self.bases, &self.options, &self.memo);
        let work = || {
            let mut part = Tally::default();
            loop {
                // Relaxed: only the number itself is shared.
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= end {
                    return part;
                }
                run_group(&self.group(place), bases, options, memo, &mut part);
                memo.trim();
            }
        };
        let parts: Vec<Tally> = thread::scope(|scope| {
            let handles: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            let join = |handle: thread::ScopedJoinHandle<'_, Tally>| {
                handle.join().expect("a panic in a workload is a failure")
            };
            handles.into_iter().map(join).collect()
        });
        parts.into_iter().for_each(|part| tally.add(part));
        tally.place = end;
        true
    }

    /// Runs only one workload, with every crash of it.
    #[must_use]
    pub fn replay(workload: &Workload, options: &Options) -> Tally {
        let mut bases: Vec<Vec<Base>> = SETUPS.iter().map(|_| Vec::new()).collect();
        bases[workload.setup] = bases_of(workload.setup, options.media);
        let made = Made {
            workload: workload.clone(),
            from: 0,
        };
        let mut tally = Tally::default();
        run_group(&[made], &bases, options, &Memo::default(), &mut tally);
        tally
    }
}

/// What the clock says: the same for all workloads that begin alike, which then leave equal media.
fn times(made: &Made) -> Times {
    let mut beginning = made.workload.clone();
    beginning.steps.truncate(made.from);
    Times::of(&beginning)
}

fn run_group(
    group: &[Made],
    bases: &[Vec<Base>],
    options: &Options,
    memo: &Memo,
    tally: &mut Tally,
) {
    let mut seen = BTreeSet::new();
    for made in group {
        let base = &bases[made.workload.setup][journals(&made.workload) - 2];
        let options = Options {
            times: options.times.or_else(|| Some(times(made))),
            ..options.clone()
        };
        let [whole, torn] = thoroughness(&options, CrashFrom::Step(made.from));
        let recording = match Recording::new(base, &made.workload, &whole) {
            Ok(recording) => recording,
            Err(what) => {
                let workload = &made.workload;
                tally.failures.push(format!("workload: {workload}\n{what}"));
                continue;
            }
        };
        if !seen.insert(recording.fingerprint()) {
            tally.equal += 1;
            continue;
        }
        let (mut counts, mut violations) = recording.crash_with(&whole, memo);
        if violations.is_empty() {
            let (more, found) = recording.crash_with(&torn, memo);
            counts.states += more.states;
            counts.images += more.images;
            counts.recovered += more.recovered;
            violations = found;
        }
        tally.counts = tally.counts.plus(counts);
        tally.violations.extend(violations);
    }
}
