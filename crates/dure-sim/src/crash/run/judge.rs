//! The states that a power cut can leave of one recording, and the verdict on each.
//!
//! **Structure.** [`Judge`] goes from instant to instant: the states of the medium there, what
//! recovery makes of each that is new, whether that tree is legal. A [`Violation`] says how to
//! replay it. **Invariants.** Every state is counted, whether or not it had to be recovered.

use std::collections::BTreeSet;
use std::fmt;

use dure_block::crash::{Choice, CrashPoint};
use dure_block::share;
use dure_fs::RecordPolicy;

use super::Recording;
use crate::crash::base::Base;
use crate::crash::call::Workload;
use crate::crash::content::BlockDigests;
use crate::crash::legal::{CrashMoment, Legal};
use crate::crash::memo::{Memo, News};
use crate::crash::options::Options;
use crate::crash::tree::Tree;

/// How many of what.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Workloads that ran.
    pub workloads: u64,
    /// (instant, subset) pairs.
    pub states: u64,
    /// Different contents of the medium.
    pub images: u64,
    /// How many of `images` were checked, recovered, read, unmounted and checked: each other one
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

/// Goes through the states of one recording.
pub(super) struct Judge<'r> {
    recording: &'r Recording,
    options: &'r Options,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
    memo: &'r Memo,
    known: BlockDigests,
    trees: Legal<'r>,
    /// The instant before: open writes, steps begun, promises.
    before: Option<(Vec<u64>, usize, usize)>,
    /// Trees found legal: (digest, steps begun, promises).
    legal: BTreeSet<(u64, usize, usize)>,
    /// Whether different states are kept.
    pub(super) keep: bool,
    pub(super) kept: Vec<Base>,
}

impl<'r> Judge<'r> {
    pub(super) fn new(recording: &'r Recording, options: &'r Options, memo: &'r Memo) -> Judge<'r> {
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

    pub(super) fn step(&mut self, step: u64) {
        let recording = self.recording;
        let point = recording.images.at(step);
        let (required, begun) = (recording.required(step), recording.begun(step));
        // With the same writes open and the same promised, the states are those of the instant
        // before.
        let open = point.open().map(|entry| entry.submitted).collect();
        // What of the snapshots was promised counts as one more.
        let promised = required.len() + recording.snapshots.promises(step);
        let instant = Some((open, begun, promised));
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
            let (news, outcome) = self
                .memo
                .outcome(&digests, (recording.media, mount), device);
            self.counts.images += u64::from(news != News::Equal);
            self.counts.recovered += u64::from(news == News::Recovered);
            if self.keep
                && news != News::Equal
                && let Ok((_, tree)) = &outcome
            {
                let image = point.image(&choice);
                self.kept.push(Base::crashed(&image, tree, recording.media));
            }
            digests.undo(undo);
            let verdict = match outcome {
                Err(what) => Err(what.clone()),
                // No tree was promised: see `recover`.
                Ok(_) if mount.records == RecordPolicy::None => Ok(()),
                Ok((digest, _)) if self.legal.contains(&(digest, begun, promised)) => Ok(()),
                Ok((digest, tree)) => {
                    let verdict = recording.snapshots.check(step, &tree.snapshots);
                    let verdict = verdict.and_then(|()| self.verdict(step, &required, &tree));
                    if verdict.is_ok() {
                        self.legal.insert((digest, begun, promised));
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

    /// Whether a crash at `step`, when `required` was promised, may leave `tree`.
    fn verdict(
        &mut self,
        step: u64,
        required: &BTreeSet<usize>,
        tree: &Tree,
    ) -> Result<(), String> {
        let begun = self.recording.begun(step);
        let Some(call) = self.recording.whole_call(step, self.options) else {
            return self.trees.check(CrashMoment { required, begun }, tree);
        };
        let before = CrashMoment {
            required,
            begun: call,
        };
        self.trees.check(before, tree).or_else(|nothing| {
            let atoms = self.recording.history.atoms.iter().enumerate();
            let all = atoms.filter(|(_, atom)| atom.step < begun);
            let all: BTreeSet<usize> = all.map(|(number, _)| number).collect();
            let after = CrashMoment {
                required: &all,
                begun,
            };
            let whole = self.trees.check(after, tree);
            whole.map_err(|all| format!("of a call, neither nothing ({nothing}) nor all ({all})"))
        })
    }

    fn report(&mut self, point: &CrashPoint<'_>, choice: &Choice, begun: usize, what: String) {
        let open = point.open().map(|entry| match &entry.effect {
            dure_block::record::Effect::Write { lba, data, .. } => {
                format!("{}+{}", lba.number(), data.len())
            }
            dure_block::record::Effect::Store { lba, bytes, .. } => {
                format!("nvm {}:{}..{}", lba.number(), bytes.start, bytes.end)
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
