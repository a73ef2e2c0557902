//! Runs a workload on recording devices, cuts the power everywhere, and judges what recovery makes
//! of it.
//!
//! **Structure.** [`Recording`] is a workload that ran on an overlay of a [`Base`]: what was
//! written, and when each step began and ended. [`Recording::crash`] makes the states of the medium,
//! recovers each that is new, and compares it with `legal` ([`judge`]).
//! **Invariants.** States depend only on the workload and [`Options`]; two states with the same
//! content are recovered once, and compared with what was promised each time. **Crash.** That is
//! what it is about.

mod judge;
mod kept;

use std::collections::BTreeSet;

use dure_block::crash::CrashImages;
use dure_block::overlay::OverlayRam;
use dure_block::record::RecordLog;
use dure_block::{Device, share};
use dure_fs::FileSystem;
use dure_fs::units::to_u64;
use dure_sync::clock::pretend_wall;
use dure_sync::{Arc, random};
use xxhash_rust::xxh3::Xxh3;

use super::base::Base;
use super::call::{At, Call, Step, Workload};
use super::content::Digests;
use super::gate::{Gate, GateDevice};
use super::history::History;
use super::legal::{self, CrashMoment};
use super::memo::Memo;
use super::options::{CrashFrom, CrashSteps, Options, Times, on_stage};
use super::perform::{Performer, Stage};
use super::recover::{caught, recover_and_check};
use super::state::Effect;
use super::tree::Tree;
use crate::media::Raw;
use judge::Judge;
pub use judge::{Counts, Violation};
use kept::Snapshots;

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
    /// The digests of the medium before the run.
    digests: Digests,
    history: History,
    spans: Vec<Span>,
    snapshots: Snapshots,
    /// The record step from which on the power may fail.
    first: u64,
    files_with_ranges: u64,
    /// See [`Base::media`].
    media: Raw,
}

impl Recording {
    /// Runs `workload` on a copy of `base`.
    ///
    /// # Errors
    /// A call that failed, or a tree that is not what the calls make.
    pub fn new(base: &Base, workload: &Workload, options: &Options) -> Result<Recording, String> {
        let recording = caught(|| Recording::run(base, workload, options));
        pretend_wall(None);
        random::pretend(None);
        recording
    }

    fn run(base: &Base, workload: &Workload, options: &Options) -> Result<Recording, String> {
        let times = options.times.unwrap_or_else(|| Times::of(workload));
        pretend_wall(Some(times.at(0)));
        // Another mount, other numbers.
        random::pretend(Some(base.digests().whole()));
        let overlay = OverlayRam::new("crash", base.image());
        let gate = Arc::new(Gate::default());
        let gated = GateDevice::new(share(overlay), Arc::clone(&gate));
        let (log, core) = (Arc::new(RecordLog::default()), Arc::default());
        let all: Arc<dyn Device> = share(gated);
        let device = options.recorder().volume(base.media(), &all, &log)?;
        let stage = Stage { gate, core };
        let fs = FileSystem::open(device, on_stage(&options.mount, &stage));
        let fs = fs.map_err(|error| format!("mount: {error}"))?;
        let mut first = match options.from {
            CrashFrom::Mount => 0,
            CrashFrom::FirstStep | CrashFrom::Step(_) => log.step(),
        };
        let mut history = base.history().clone();
        let mut performer = Performer::new(fs.clone(), stage);
        let mut spans = Vec::new();
        let mut snapshots = Snapshots::of(&fs)?;
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
            snapshots.step(step, (begin, end), &fs)?;
            history.step(number, step);
            if options.is_strict() {
                promise = (0..history.atoms.len()).collect();
            }
            if let (true, Some(at)) = (options.absorbs_all(), data_of(step)) {
                promise = self::promise(&history, number + 1, &Step::Fdatasync(at));
            }
            spans.push(Span {
                begin,
                end,
                promise,
            });
        }
        let is_right = check_live(&history, &fs);
        is_right.map_err(|what| format!("without a crash: {what}"))?;
        let images = CrashImages::new(base.image(), &log);
        let files_with_ranges = to_u64(fs.files_with_ranges());
        drop((performer, fs));
        Ok(Recording {
            workload: workload.clone(),
            images,
            digests: base.digests().clone(),
            history,
            spans,
            snapshots,
            first,
            files_with_ranges,
            media: base.media(),
        })
    }

    /// Cuts the power everywhere.
    #[must_use]
    pub fn crash(&self, options: &Options) -> (Counts, Vec<Violation>) {
        self.crash_with(options, &Memo::default())
    }

    /// Like [`Recording::crash`]; states that `memo` answers for are not recovered again.
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
                dure_block::record::Effect::Store { lba, data, bytes } => {
                    hash.update(format!("{lba:?} {bytes:?} ").as_bytes());
                    data.iter().for_each(|block| hash.update(block.bytes()));
                }
                other => hash.update(format!("{other:?} ").as_bytes()),
            }
        }
        for span in &self.spans {
            hash.update(format!("{span:?} ").as_bytes());
        }
        for step in &self.workload.steps {
            if matches!(
                step,
                Step::Call(_)
                    | Step::Open(..)
                    | Step::Close(_)
                    | Step::Snapshot(_)
                    | Step::DropSnapshot(_)
            ) {
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
        recover_and_check(&share(point.image(&choice)), self.media, &options.mount)
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

    /// Whether the power failed during a call of which a crash leaves all or nothing, where calls are
    /// durable when they return: the number of the call. An allocation and a clone are several
    /// operations.
    fn whole_call(&self, step: u64, options: &Options) -> Option<usize> {
        let running = self.begun(step).checked_sub(1)?;
        let whole = match self.workload.steps[running] {
            Step::Call(Call::Allocate { .. } | Call::Clone { .. }) => false,
            Step::Call(_) => self.spans[running].end > step,
            _ => false,
        };
        (whole && options.is_strict()).then_some(running)
    }

    fn required(&self, step: u64) -> BTreeSet<usize> {
        let kept = self.spans.iter().filter(|span| span.end <= step);
        kept.flat_map(|span| span.promise.iter().copied()).collect()
    }
}

/// Whether a volume has what all calls made.
fn check_live(history: &History, fs: &FileSystem) -> Result<(), String> {
    let all: BTreeSet<usize> = (0..history.atoms.len()).collect();
    let instant = CrashMoment {
        required: &all,
        begun: usize::MAX,
    };
    legal::check(history, instant, &Tree::read(fs)?)
}

/// The file whose data a step has changed.
fn data_of(step: &Step) -> Option<At> {
    match step {
        Step::Call(
            Call::Write { at, .. }
            | Call::Truncate { at, .. }
            | Call::Allocate { at, .. }
            | Call::Clone { at, .. },
        ) => Some(*at),
        _ => None,
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
        Step::Sync | Step::Unmount | Step::Snapshot(_) => history.closure(number, |_| true),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::BlockDigests;
    use super::super::memo::News;
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
                    let (news, outcome) =
                        memo.outcome(&digests, (recording.media, &options.mount), device);
                    digests.undo(undo);
                    match news {
                        News::Equal => continue,
                        News::Recovered => recovered += 1,
                        News::LooksEqual => equal += 1,
                    }
                    let again = recover_and_check(&device(), recording.media, &options.mount);
                    let again = again.map(|tree| tree.digest());
                    assert_eq!(outcome.map(|(digest, _)| digest), again, "{choice}");
                }
            }
        }
        assert!(recovered > 20 && equal > 5, "{recovered} {equal}");
    }
}
