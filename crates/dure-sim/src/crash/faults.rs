//! Fails the n-th write or flush of a workload, for every n, and looks at what is left.
//!
//! **Problem.** Contract 5 of docs/design/durability.md: a failed write of data goes to another
//! block; every other failed write, and a failed flush, stops the volume. **Structure.** The
//! workload runs on a device with one fault. Either no call fails ([`Verdict::Replaced`]):
//! everything is there, and durable. Or the volume has stopped ([`Verdict::Stopped`]): it says why,
//! every fsync fails and goes on failing, nothing changes any more, and all content can be read
//! until it is unmounted. **Invariants.** Nothing in between: an error without a stop is a
//! violation. **Crash.** After either the volume is mounted again without the fault: what was
//! promised is there, and the check is clean.

use std::collections::BTreeSet;

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::overlay::OverlayRam;
use dure_block::{Device, Op, OsError, share};
use dure_fs::{Error, FileKind, FileSystem, NewInode, SyncScope};
use dure_sync::Arc;

use super::base::Base;
use super::call::{Step, Workload};
use super::history::History;
use super::legal::{self, CrashMoment};
use super::options::{Options, on_stage};
use super::perform::{Performer, Stage};
use super::recover::{caught, recover_and_check};
use super::run::promise;
use super::tree::Tree;

/// What a fault led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No call failed.
    Replaced,
    /// The volume is read-only, for this reason.
    Stopped(String),
}

/// What a sweep over one workload saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Faults tried.
    pub faults: u64,
    /// Faults that no call reported.
    pub replaced: u64,
    /// Reasons of the others.
    pub reasons: Vec<String>,
}

/// Fails every write, in two ways, and every flush of `workload`.
///
/// # Errors
/// The first violation, with the fault that shows it.
pub fn sweep(base: &Base, workload: &Workload, options: &Options) -> Result<Sweep, String> {
    let healthy = Run::new(base, options)?;
    let mounted = healthy.device.seen();
    let end = healthy.perform(workload, base);
    end.failed.map_or(Ok(()), |(_, error)| {
        Err(format!("without a fault: {error}"))
    })?;
    let seen = healthy.device.seen();
    drop(healthy);
    let mut found = Sweep::default();
    let writes = seen.writes - mounted.writes;
    let flushes = seen.flushes - mounted.flushes;
    for (op, count) in [(Op::Write, writes), (Op::Flush, flushes)] {
        for nth in 1..=count {
            let faults = [Fault::Error(OsError::EIO), Fault::Torn { seed: nth }];
            for fault in faults.into_iter().take(if op == Op::Write { 2 } else { 1 }) {
                let rule = Rule::new(When::Nth(nth), fault).on(op);
                let told = |what| {
                    format!("workload: {workload}\n{op:?} {nth} of {count}, {fault:?}: {what}")
                };
                let verdict = caught(|| one(base, workload, options, rule)).map_err(told)?;
                found.faults += 1;
                match verdict {
                    Verdict::Replaced => found.replaced += 1,
                    Verdict::Stopped(reason) => found.reasons.push(reason),
                }
            }
        }
    }
    Ok(found)
}

/// A mounted volume on a device that can fail.
struct Run {
    device: Arc<FaultDevice>,
    below: Arc<dyn Device>,
    fs: FileSystem,
    stage: Stage,
}

/// Where a workload ended.
struct End {
    history: History,
    /// What was promised by steps that returned.
    promised: BTreeSet<usize>,
    /// The step that failed.
    failed: Option<(usize, Error)>,
}

impl Run {
    fn new(base: &Base, options: &Options) -> Result<Run, String> {
        let below: Arc<dyn Device> = share(OverlayRam::new("faulty", base.image()));
        let device = Arc::new(FaultDevice::new(Arc::clone(&below)));
        let stage = Stage::default();
        let mount = on_stage(&options.mount, &stage);
        let fs = FileSystem::open(share(Arc::clone(&device)), mount);
        let fs = fs.map_err(|error| format!("mount: {error}"))?;
        Ok(Run {
            device,
            below,
            fs,
            stage,
        })
    }

    fn perform(&self, workload: &Workload, base: &Base) -> End {
        let mut performer = Performer::new(self.fs.clone(), self.stage.clone());
        let mut end = End {
            history: base.history().clone(),
            promised: BTreeSet::new(),
            failed: None,
        };
        for (number, step) in workload.steps.iter().enumerate() {
            let promised = promise(&end.history, number, step);
            let done = performer.step(step);
            end.history.step(number, step);
            match done {
                Ok(()) => end.promised.extend(promised),
                Err(error) => {
                    end.failed = Some((number, error));
                    break;
                }
            }
        }
        end
    }
}

fn one(base: &Base, workload: &Workload, options: &Options, rule: Rule) -> Result<Verdict, String> {
    let run = Run::new(base, options)?;
    run.device.add(rule);
    let end = run.perform(workload, base);
    run.device.clear();
    let verdict = match (&end.failed, run.fs.stopped()) {
        (None, None) => replaced(&run, &end, workload)?,
        (Some((_, error)), None) => return Err(format!("an error, but no stop: {error}")),
        (_, Some(reason)) => stopped(&run, &end, reason)?,
    };
    let Run { below, fs, .. } = run;
    drop(fs);
    let tree = recover_and_check(&below, base.media(), &options.mount)?;
    let all = (0..end.history.atoms.len()).collect();
    let required = match verdict {
        Verdict::Replaced => &all,
        Verdict::Stopped(_) => &end.promised,
    };
    judge(&end.history, required, &tree).map_err(|what| format!("after the mount: {what}"))?;
    Ok(verdict)
}

fn judge(history: &History, required: &BTreeSet<usize>, tree: &Tree) -> Result<(), String> {
    let begun = usize::MAX;
    legal::check(history, CrashMoment { required, begun }, tree)
}

/// No call reported the fault: everything is there, and a sync makes it durable.
fn replaced(run: &Run, end: &End, workload: &Workload) -> Result<Verdict, String> {
    // After an unmount there is nothing to read.
    if workload.steps.last() != Some(&Step::Unmount) {
        let all = (0..end.history.atoms.len()).collect();
        judge(&end.history, &all, &Tree::read(&run.fs)?)?;
        run.fs
            .sync()
            .map_err(|error| format!("sync after a fault: {error}"))?;
    }
    Ok(Verdict::Replaced)
}

/// The volume is read-only, and every call that changes or syncs fails with the reason.
fn stopped(run: &Run, end: &End, reason: String) -> Result<Verdict, String> {
    let seen = run.device.seen();
    let refused = |what: &str, done: Result<(), Error>| match done {
        Err(Error::Stopped { reason: told }) if told == reason => Ok(()),
        Err(error @ Error::Block(_)) if what == "fsync" => {
            Err(format!("fsync says {error}, not why the volume stopped"))
        }
        other => Err(format!("{what} after the stop: {other:?}")),
    };
    let text = |error: Option<&Error>| error.map_or_else(String::new, ToString::to_string);
    if !reason.contains("read-only") || !reason.contains("failed") {
        return Err(format!(
            "nobody understands why the volume stopped: {reason}"
        ));
    }
    // The effects of all calls that had returned, and perhaps of the one that failed, can be read.
    let before = end.failed.as_ref().map_or(usize::MAX, |(step, _)| *step);
    let atoms = end.history.atoms.iter().enumerate();
    let returned = atoms
        .filter(|(_, atom)| atom.step < before)
        .map(|(number, _)| number);
    let returned: BTreeSet<usize> = returned.collect();
    let shown = Tree::read(&run.fs).map_err(|what| format!("reading after the stop: {what}"))?;
    judge(&end.history, &returned, &shown).map_err(|what| {
        let error = text(end.failed.as_ref().map(|(_, error)| error));
        format!("after the stop ({error}): {what}")
    })?;
    for _ in 0..2 {
        refused("sync", run.fs.sync())?;
        for path in shown.items.keys() {
            let mut at = run.fs.root().map_err(|error| error.to_string())?;
            for name in path.split('/').filter(|name| !name.is_empty()) {
                let below = run.fs.lookup(&at, name.as_bytes());
                at = below.ok().flatten().ok_or("a name that was read is gone")?;
            }
            refused("fsync", run.fs.fsync(&at, SyncScope::All))?;
        }
        let root = run.fs.root().map_err(|error| error.to_string())?;
        let new = NewInode {
            mode: FileKind::File.mode() | 0o644,
            ..NewInode::default()
        };
        refused("create", run.fs.create(&root, b"late", &new).map(drop))?;
    }
    let again = Tree::read(&run.fs).map_err(|what| format!("reading again: {what}"))?;
    if again != shown {
        return Err("what can be read after the stop has changed".into());
    }
    let since = run.device.seen();
    if (since.writes, since.flushes) != (seen.writes, seen.flushes) {
        return Err("something was written after the stop".into());
    }
    Ok(Verdict::Stopped(reason))
}
