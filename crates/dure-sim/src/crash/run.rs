//! Runs a workload on a recording device, cuts the power everywhere, and judges what recovery makes
//! of it.
//!
//! **Structure.** [`Base`] is a volume with a tree, made once. [`Recording`] is a workload that ran
//! on an overlay of it: what was written, and when each step began and ended. [`Recording::crash`]
//! makes the states of the medium, recovers each that is new, and compares it with `legal`.
//! **Invariants.** States depend on the workload and [`Options`] alone; two states with the same
//! content are recovered once, and compared with what was promised each time. **Crash.** That is
//! what it is about.

use std::collections::BTreeSet;
use std::fmt;

use dure_block::crash::{Choice, CrashImages, CrashPoint, Selection};
use dure_block::overlay::OverlayRam;
use dure_block::ram::{Image, RamDevice};
use dure_block::record::{LostFlushes, RecordDevice};
use dure_block::share;
use dure_fs::units::to_u64;
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions};
use dure_sync::clock::{Timestamp, pretend_wall};
use dure_sync::{Arc, CoreId, thread};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::call::{Call, Step, Workload};
use super::content::{BlockDigests, Digests};
use super::gate::{Gate, GateDevice};
use super::history::History;
use super::legal::{self, CrashMoment, Legal};
use super::memo::{Memo, News};
use super::perform::{Performer, Stage};
use super::recover::{caught, recover_and_check};
use super::state::Effect;
use super::tree::Tree;

/// How much is tried, and on what device.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which subsets of unflushed writes, and how they are torn.
    pub selection: Selection,
    /// Which steps of the record the power fails after.
    pub steps: CrashSteps,
    /// Flushes the device loses: a canary.
    pub lost_flushes: LostFlushes,
    /// How the volume is mounted, in the run and in recovery.
    pub mount: MountOptions,
    /// Violations after which a workload is given up.
    pub violations_max: usize,
    /// Whether the power fails during the mount, too.
    pub from: CrashFrom,
    /// What the clock says; `None`: one or the other, as the workload's text decides.
    pub times: Option<Times>,
}

/// What the clock says while a workload runs. Never the real time: a workload writes the same each
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The whole run falls into one tick of the clock.
    Still,
    /// Each step is a second later than the one before.
    PerStep,
}

impl Times {
    /// One or the other, as the workload's text decides.
    pub(super) fn of(workload: &Workload) -> Times {
        if xxh3_64(workload.to_string().as_bytes()).is_multiple_of(2) {
            Times::Still
        } else {
            Times::PerStep
        }
    }

    /// The time of step `number`.
    fn at(self, number: usize) -> Timestamp {
        let number = match self {
            Times::Still => 0,
            Times::PerStep => u32::try_from(number).expect("few steps"),
        };
        Timestamp {
            secs: START.secs + 3600 + i64::from(number),
            nanos: 1_000_000 * number,
        }
    }
}

/// From when on the power may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashFrom {
    /// The beginning of the mount: of a crashed volume, that is its recovery.
    Mount,
    /// The first step of the workload.
    FirstStep,
    /// This step of the workload; shorter workloads test those before it.
    Step(usize),
}

/// Steps of the record log the power fails after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSteps {
    /// Every one.
    Every,
    /// Those with the most unflushed writes, and the end.
    Frontiers,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            selection: Selection::default(),
            steps: CrashSteps::Every,
            lost_flushes: LostFlushes::None,
            mount: mount_options(),
            violations_max: 1,
            from: CrashFrom::FirstStep,
            times: None,
        }
    }
}

/// A small cache, no threads.
#[must_use]
pub fn mount_options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 1 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

pub(super) fn on_stage(mount: &MountOptions, stage: &Stage) -> MountOptions {
    let mut mount = mount.clone();
    mount.core = Some(Arc::clone(&stage.core));
    mount
}

/// When volumes are made.
pub(super) const START: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 0,
};

/// Blocks of the volume.
pub const VOLUME_BLOCKS: u64 = 1536;

/// A volume with a tree, unmounted.
#[derive(Debug)]
pub struct Base {
    image: Arc<Image>,
    /// Of the image.
    digests: Digests,
    history: History,
}

impl Base {
    /// Makes a volume and, on it, what `calls` make.
    ///
    /// # Errors
    /// Of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn new(calls: &[Call]) -> dure_fs::Result<Base> {
        Base::with_journals(calls, 2)
    }

    /// As [`Base::new`], with so many journals.
    ///
    /// # Errors
    /// Of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn with_journals(calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        let calls = calls.to_vec();
        // Runs on one core with a fixed time, so that the volume is the same each time.
        let make = move || {
            pretend_wall(Some(START));
            Base::make(&calls, journals)
        };
        let thread = thread::spawn_on("base", CoreId::new(0), make);
        thread.join().expect("making a volume does not panic")
    }

    fn make(calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        let ram = Arc::new(RamDevice::new("base", VOLUME_BLOCKS));
        let format = FormatOptions {
            journals: Some(journals),
            segment_blocks: Some(32),
            uuid: Some([7; 16]),
            ..FormatOptions::default()
        };
        let device = share(Arc::clone(&ram));
        FileSystem::format(device.clone(), &format)?;
        let stage = Stage::default();
        let fs = FileSystem::open(device, on_stage(&mount_options(), &stage))?;
        let mut history = History::default();
        let mut performer = Performer::new(fs.clone(), stage);
        for call in calls {
            performer.step(&Step::Call(*call))?;
            history.call(0, call);
        }
        drop(performer);
        fs.close()?;
        history.settle();
        Ok(Base::of(ram.snapshot(), history))
    }

    fn of(image: Image, history: History) -> Base {
        Base {
            digests: Digests::of(&image),
            image: Arc::new(image),
            history,
        }
    }

    pub(super) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.image)
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The volume that a crash left; `tree` is what recovery makes of it.
    #[must_use]
    pub fn crashed(image: &OverlayRam, tree: &Tree) -> Base {
        Base::of(image.snapshot(), History::of_tree(tree))
    }
}

/// How many of what.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Workloads that ran.
    pub workloads: u64,
    /// (instant, subset) pairs.
    pub states: u64,
    /// Different contents of the medium.
    pub images: u64,
    /// Of these, those that were checked, recovered, read, unmounted and checked: each other one
    /// differs from one of them only in blocks that are not looked at.
    pub recovered: u64,
    /// Files of which ranges were taken.
    pub files_with_ranges: u64,
}

impl Counts {
    /// The sum.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            workloads: self.workloads + other.workloads,
            states: self.states + other.states,
            images: self.images + other.images,
            recovered: self.recovered + other.recovered,
            files_with_ranges: self.files_with_ranges + other.files_with_ranges,
        }
    }
}

/// A state of the medium that recovery did not make a legal tree of.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What ran.
    pub workload: Workload,
    /// The record step after which the power failed, and the last.
    pub at: (u64, u64),
    /// Which unflushed writes, or parts of them, survived.
    pub choice: String,
    /// The unflushed writes.
    pub open: Vec<String>,
    /// The step of the workload during which it failed.
    pub during: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workload: {}", self.workload)?;
        let (at, last) = self.at;
        let during = match self.workload.steps.get(self.during) {
            Some(step) => format!("during or before step {} ({step})", self.during),
            None => "after the last step".into(),
        };
        writeln!(f, "power cut after record step {at} of {last}, {during}")?;
        writeln!(
            f,
            "unflushed writes {}: {}",
            self.choice,
            self.open.join(" ")
        )?;
        write!(f, "violation: {}", self.what)
    }
}

/// When a step ran, and what it promised.
#[derive(Debug)]
struct Span {
    begin: u64,
    end: u64,
    promise: BTreeSet<usize>,
}

/// A workload that ran.
#[derive(Debug)]
pub struct Recording {
    workload: Workload,
    images: CrashImages,
    /// Of the medium before the run.
    digests: Digests,
    history: History,
    spans: Vec<Span>,
    /// The record step from which on the power may fail.
    first: u64,
    files_with_ranges: u64,
}

impl Recording {
    /// Runs `workload` on a copy of `base`.
    ///
    /// # Errors
    /// A call that failed, or a tree that is not what the calls make.
    pub fn new(base: &Base, workload: &Workload, options: &Options) -> Result<Recording, String> {
        let recording = caught(|| Recording::run(base, workload, options));
        pretend_wall(None);
        recording
    }

    fn run(base: &Base, workload: &Workload, options: &Options) -> Result<Recording, String> {
        let times = options.times.unwrap_or_else(|| Times::of(workload));
        pretend_wall(Some(times.at(0)));
        let overlay = OverlayRam::new("crash", Arc::clone(&base.image));
        let gate = Arc::new(Gate::default());
        let gated = GateDevice::new(share(overlay), Arc::clone(&gate));
        let record = RecordDevice::with_lost_flushes(share(gated), options.lost_flushes);
        let (log, core) = (record.log(), Arc::default());
        let stage = Stage { gate, core };
        let fs = FileSystem::open(share(record), on_stage(&options.mount, &stage));
        let fs = fs.map_err(|error| format!("mount: {error}"))?;
        let mut first = match options.from {
            CrashFrom::Mount => 0,
            CrashFrom::FirstStep | CrashFrom::Step(_) => log.step(),
        };
        let mut history = base.history.clone();
        let mut performer = Performer::new(fs.clone(), stage);
        let mut spans = Vec::new();
        let mut begun = BTreeSet::new();
        for (number, step) in workload.steps.iter().enumerate() {
            let mut promise = promise(&history, number, step);
            match step {
                Step::FsyncBegin(_) => begun.extend(std::mem::take(&mut promise)),
                Step::FsyncEnd => promise = std::mem::take(&mut begun),
                _ => {}
            }
            let begin = log.step();
            if options.from == CrashFrom::Step(number) {
                first = begin;
            }
            pretend_wall(Some(times.at(number)));
            let done = performer.step(step);
            done.map_err(|error| format!("step {number} ({step}): {error}"))?;
            let end = log.step();
            history.step(number, step);
            spans.push(Span {
                begin,
                end,
                promise,
            });
        }
        let all: BTreeSet<usize> = (0..history.atoms.len()).collect();
        let live = Tree::read(&fs)?;
        let instant = CrashMoment {
            required: &all,
            begun: usize::MAX,
        };
        legal::check(&history, instant, &live)
            .map_err(|what| format!("without a crash: {what}"))?;
        let images = CrashImages::new(Arc::clone(&base.image), &log);
        let files_with_ranges = to_u64(fs.files_with_ranges());
        drop((performer, fs));
        Ok(Recording {
            workload: workload.clone(),
            images,
            digests: base.digests.clone(),
            history,
            spans,
            first,
            files_with_ranges,
        })
    }

    /// Cuts the power everywhere.
    #[must_use]
    pub fn crash(&self, options: &Options) -> (Counts, Vec<Violation>) {
        self.crash_with(options, &Memo::default())
    }

    /// As [`Recording::crash`]; states that `memo` answers for are not recovered again.
    #[must_use]
    pub fn crash_with(&self, options: &Options, memo: &Memo) -> (Counts, Vec<Violation>) {
        let mut judge = Judge::new(self, options, memo);
        let last = self.images.last_step();
        let steps: Vec<u64> = match options.steps {
            CrashSteps::Every => (self.first..=last).collect(),
            CrashSteps::Frontiers => {
                let mut steps = self.images.frontiers();
                steps.extend(self.spans.iter().map(|span| span.end));
                steps.retain(|step| *step >= self.first);
                steps.sort_unstable();
                steps.dedup();
                steps
            }
        };
        for step in steps {
            judge.step(step);
            if judge.violations.len() >= options.violations_max {
                break;
            }
        }
        judge.counts.workloads = 1;
        judge.counts.files_with_ranges = self.files_with_ranges;
        (judge.counts, judge.violations)
    }

    /// A number that is equal, all but certainly, where the same was written in the same order and
    /// the same was promised by then: the crashes of both leave the same.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        for entry in self.images.entries() {
            let place = format!("{} {:?} ", entry.submitted, entry.outcome);
            hash.update(place.as_bytes());
            match &entry.effect {
                dure_block::record::Effect::Write { lba, data, fua } => {
                    hash.update(format!("{lba:?} {fua} ").as_bytes());
                    data.iter().for_each(|block| hash.update(block.bytes()));
                }
                other => hash.update(format!("{other:?} ").as_bytes()),
            }
        }
        for span in &self.spans {
            hash.update(format!("{span:?} ").as_bytes());
        }
        for step in &self.workload.steps {
            if matches!(step, Step::Call(_) | Step::Open(..) | Step::Close(_)) {
                hash.update(format!("{step}; ").as_bytes());
            }
        }
        hash.digest()
    }

    /// What `crash` does, at one instant with one choice: to replay a report.
    ///
    /// # Errors
    /// What is wrong.
    pub fn replay(&self, step: u64, choice: &str, options: &Options) -> Result<Tree, String> {
        let point = self.images.at(step);
        let mut choices = point.choices(options.selection);
        let choice = choices
            .find(|made| made.to_string() == choice)
            .ok_or("no such choice at this step")?;
        recover_and_check(share(point.image(&choice)), &options.mount)
    }

    /// Different states that crashes leave, at most `max`, evenly taken, with what recovery makes
    /// of them.
    ///
    /// # Errors
    /// The first violation.
    pub fn crashed(&self, options: &Options, max: usize) -> Result<Vec<Base>, Box<Violation>> {
        let memo = Memo::default();
        let mut judge = Judge::new(self, options, &memo);
        judge.keep = true;
        for step in self.first..=self.images.last_step() {
            judge.step(step);
            if let Some(violation) = judge.violations.pop() {
                return Err(Box::new(violation));
            }
        }
        let stride = judge.kept.len().div_ceil(max.max(1)).max(1);
        Ok(judge.kept.into_iter().step_by(stride).collect())
    }

    fn begun(&self, step: u64) -> usize {
        self.spans.partition_point(|span| span.begin < step)
    }

    fn required(&self, step: u64) -> BTreeSet<usize> {
        let kept = self.spans.iter().filter(|span| span.end <= step);
        kept.flat_map(|span| span.promise.iter().copied()).collect()
    }
}

/// What must be there once `step` has returned.
pub(super) fn promise(history: &History, number: usize, step: &Step) -> BTreeSet<usize> {
    match step {
        Step::Fsync(at) | Step::FsyncBegin(at) => {
            let id = history.id(*at);
            history.closure(number, |atom| atom.touches.contains(&id))
        }
        Step::Fdatasync(at) => {
            let id = history.id(*at);
            history.closure(number, |atom| {
                atom.touches.contains(&id) && !matches!(atom.effect, Effect::Time(..))
            })
        }
        Step::Sync | Step::Unmount => history.closure(number, |_| true),
        _ => BTreeSet::new(),
    }
}

/// Goes through the states of one recording.
struct Judge<'r> {
    recording: &'r Recording,
    options: &'r Options,
    counts: Counts,
    violations: Vec<Violation>,
    memo: &'r Memo,
    known: BlockDigests,
    trees: Legal<'r>,
    /// The instant before: open writes, steps begun, promises.
    before: Option<(Vec<u64>, usize, usize)>,
    /// Trees found legal: (digest, steps begun, promises).
    legal: BTreeSet<(u64, usize, usize)>,
    /// Whether different states are kept.
    keep: bool,
    kept: Vec<Base>,
}

impl<'r> Judge<'r> {
    fn new(recording: &'r Recording, options: &'r Options, memo: &'r Memo) -> Judge<'r> {
        Judge {
            recording,
            options,
            counts: Counts::default(),
            violations: Vec::new(),
            memo,
            known: BlockDigests::default(),
            trees: Legal::new(&recording.history),
            before: None,
            legal: BTreeSet::new(),
            keep: false,
            kept: Vec::new(),
        }
    }

    fn step(&mut self, step: u64) {
        let recording = self.recording;
        let point = recording.images.at(step);
        let (required, begun) = (recording.required(step), recording.begun(step));
        // With the same writes open and the same promised, the states are those of the instant
        // before.
        let open = point.open().map(|entry| entry.submitted).collect();
        let instant = Some((open, begun, required.len()));
        if self.before == instant {
            return;
        }
        self.before = instant;
        let mut digests = recording.digests.clone();
        digests.apply(point.durable(), &mut self.known);
        for choice in point.choices(self.options.selection) {
            self.counts.states += 1;
            let undo = digests.apply(&point.changes(&choice), &mut self.known);
            let device = || share(point.image(&choice));
            let mount = &self.options.mount;
            let (news, outcome) = self.memo.outcome(&digests, mount, device);
            self.counts.images += u64::from(news != News::Equal);
            self.counts.recovered += u64::from(news == News::Recovered);
            if self.keep
                && news != News::Equal
                && let Ok((_, tree)) = &outcome
            {
                self.kept.push(Base::crashed(&point.image(&choice), tree));
            }
            digests.undo(undo);
            let verdict = match outcome {
                Err(what) => Err(what.clone()),
                Ok((digest, _)) if self.legal.contains(&(digest, begun, required.len())) => Ok(()),
                Ok((digest, tree)) => {
                    let instant = CrashMoment {
                        required: &required,
                        begun,
                    };
                    let verdict = self.trees.check(instant, &tree);
                    if verdict.is_ok() {
                        self.legal.insert((digest, begun, required.len()));
                    }
                    verdict
                }
            };
            if let Err(what) = verdict {
                self.report(&point, &choice, begun, what);
                return;
            }
        }
    }

    fn report(&mut self, point: &CrashPoint<'_>, choice: &Choice, begun: usize, what: String) {
        let open = point.open().map(|entry| match &entry.effect {
            dure_block::record::Effect::Write { lba, data, .. } => {
                format!("{}+{}", lba.number(), data.len())
            }
            other => format!("{other:?}"),
        });
        self.violations.push(Violation {
            workload: self.recording.workload.clone(),
            at: (point.step(), self.recording.images.last_step()),
            choice: choice.to_string(),
            open: open.collect(),
            during: begun.saturating_sub(1),
            what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::SETUPS;
    use super::*;

    /// Recovers every state that a memo answers for, and compares.
    #[test]
    fn what_is_not_recovered_again_would_give_the_same() {
        let base = Base::new(SETUPS[1]).unwrap();
        let memo = Memo::default();
        let (mut recovered, mut equal) = (0, 0);
        for text in [
            "setup 1; create /new; write /new 0+9000 of 200; checkpoint; fsync /new; checkpoint",
            "setup 1; write /foo 0+5000 of 9; fsync /foo; unlink /foo; checkpoint; sync",
        ] {
            let workload: Workload = text.parse().unwrap();
            let options = Options::default();
            let recording = Recording::new(&base, &workload, &options).unwrap();
            let mut known = BlockDigests::default();
            for step in recording.first..=recording.images.last_step() {
                let point = recording.images.at(step);
                let mut digests = recording.digests.clone();
                digests.apply(point.durable(), &mut known);
                for choice in point.choices(options.selection) {
                    let undo = digests.apply(&point.changes(&choice), &mut known);
                    let medium = Digests::of(&point.image(&choice).snapshot());
                    assert_eq!(digests.blocks(), medium.blocks());
                    assert_eq!(digests.whole(), medium.whole());
                    let device = || share(point.image(&choice));
                    let (news, outcome) = memo.outcome(&digests, &options.mount, device);
                    digests.undo(undo);
                    match news {
                        News::Equal => continue,
                        News::Recovered => recovered += 1,
                        News::LooksEqual => equal += 1,
                    }
                    let again = recover_and_check(device(), &options.mount);
                    let again = again.map(|tree| tree.digest());
                    assert_eq!(outcome.map(|(digest, _)| digest), again, "{choice}");
                }
            }
        }
        assert!(recovered > 20 && equal > 5, "{recovered} {equal}");
    }
}
