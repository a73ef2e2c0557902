//! Cuts the power, and checks what recovery makes of the medium.

use dure_block::crash::{CrashImages, CrashPoint, Selection, Tear};
use dure_block::ram::Image;
use dure_block::record::{Effect, RecordLog};
use dure_block::{Device, share};
use dure_check::{CheckOptions, Data, IssueKind, Repair, check};
use dure_fs::{FileSystem, MountOptions, NewInode, RecordPolicy};
use dure_sync::Arc;
use dure_sync::sim::Rng;

use super::Base;
use super::history::{CrashMoment, History};
use super::tree::{self, Found};
use crate::media::{Raw, Recorder};

/// Crashes of one run.
pub(super) struct Cutter<'h> {
    images: CrashImages,
    media: Raw,
    history: &'h History,
    options: MountOptions,
    random: Rng,
    crashes: u64,
}

impl<'h> Cutter<'h> {
    pub(super) fn new(
        base: &Base,
        log: &RecordLog,
        history: &'h History,
        options: MountOptions,
        seed: u64,
    ) -> Self {
        Cutter {
            images: CrashImages::new(Arc::clone(&base.image), log),
            media: base.media,
            history,
            options,
            random: Rng::new(seed ^ 0xC0A5),
            crashes: 0,
        }
    }

    pub(super) fn crashes(&self) -> u64 {
        self.crashes
    }

    /// One crash: recovery, the check, the promises; now and then a crash of the recovery too.
    ///
    /// # Errors
    /// What is wrong, with step and subset.
    pub(super) fn cut(&mut self) -> Result<(), String> {
        let step = self.step();
        let before = self.random.clone();
        self.cut_at(step).inspect_err(|_| {
            let (device, _) = choose(&self.images.at(step), &mut before.clone());
            keep(&self.images, step, &device);
        })
    }

    fn cut_at(&mut self, step: u64) -> Result<(), String> {
        let point = self.images.at(step);
        let (device, subset) = choose(&point, &mut self.random);
        self.crashes += 1;
        let why = |what: String| format!("crash at step {step}, writes {subset}: {what}");
        if self.options.records == RecordPolicy::None {
            let (volume, _) = recorded(&device, self.media).map_err(why)?;
            repair(&volume).map_err(why)?;
            return self.live_on(&volume).map_err(why);
        }
        let again = self.random.one_in(6);
        let (first, recovered, cut_again) = recover(&device, self, again).map_err(why)?;
        self.history
            .check(&first, CrashMoment::Crash(step))
            .map_err(|what| {
                why(format!(
                    "{what}; promises so far:{}",
                    self.history.promises_by(step)
                ))
            })?;
        issues(&recovered).map_err(why)?;
        if let Some(half) = cut_again {
            self.crashes += 1;
            let (second, recovered, _) = recover(&half, self, false)
                .map_err(|what| why(format!("after a crash of its recovery: {what}")))?;
            if first != second {
                return Err(why(format!(
                    "a recovery cut off gives another tree: {first:?} {second:?}"
                )));
            }
            issues(&recovered).map_err(why)?;
            self.live_on(&recovered).map_err(why)?;
        }
        Ok(())
    }

    /// The step at which the power fails: half of the time one at which a promise was made, while
    /// it is the newest, else any step.
    fn step(&mut self) -> u64 {
        let promises = &self.history.promises;
        if !promises.is_empty() && self.random.one_in(2) {
            return promises[self.random.index(promises.len())];
        }
        self.random.below(self.images.last_step() + 1)
    }

    /// A recovered volume can be used, unmounted, and then checked with no other issue than slots
    /// that the crash has torn, besides those that count: each stays until it is its turn.
    fn live_on(&mut self, device: &Arc<dyn Device>) -> Result<(), String> {
        let text = |error: dure_fs::Error| format!("using what was recovered: {error}");
        let fs = FileSystem::open(Arc::clone(device), self.options.clone()).map_err(text)?;
        let root = fs.root().map_err(text)?;
        for name in ["new", "newer"] {
            let new = NewInode {
                mode: 0o100_644,
                ..NewInode::default()
            };
            let file = fs.create(&root, name.as_bytes(), &new).map_err(text)?;
            fs.append(&file, &[1; 5000]).map_err(text)?;
        }
        drop(root);
        fs.close().map_err(text)?;
        drop(fs);
        let report = check(Arc::clone(device), &CheckOptions::default()).map_err(text)?;
        let torn = |kind: &IssueKind| matches!(kind, IssueKind::PairSlotBad { .. });
        match report.issues().iter().find(|issue| !torn(&issue.kind)) {
            Some(issue) => Err(format!("after unmount: {issue}")),
            None => Ok(()),
        }
    }
}

/// The device that a random subset of the open writes leaves.
fn choose(point: &CrashPoint<'_>, random: &mut Rng) -> (Arc<dyn Device>, String) {
    let selection = Selection {
        exhaustive_max: 3,
        random: 64,
        seed: random.next_u64(),
        tear: if random.one_in(4) {
            Tear::Sectors
        } else {
            Tear::None
        },
    };
    let choices = point.choices(selection);
    let number = random.index(choices.len());
    let choice = choices.get(number);
    (share(point.image(&choice)), choice.to_string())
}

/// Repairs a volume without a log. Its checkpoint may have half of an operation that another core
/// was in.
fn repair(device: &Arc<dyn Device>) -> Result<(), String> {
    let full = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    let text = |error: dure_fs::Error| format!("repair: {error}");
    let report = check(Arc::clone(device), &full).map_err(text)?;
    match report.issues().iter().find(|issue| !issue.repaired) {
        Some(left) => Err(format!("repair: {left}")),
        None => Ok(()),
    }
}

type Recovered = (Found, Arc<dyn Device>, Option<Arc<dyn Device>>);

/// The volume whose media are on `device`, and the log of what is written to them.
fn recorded(
    device: &Arc<dyn Device>,
    media: Raw,
) -> Result<(Arc<dyn Device>, Arc<RecordLog>), String> {
    let log = Arc::default();
    let volume = Recorder::FAITHFUL.volume(media, device, &log)?;
    Ok((volume, log))
}

/// Recovers what is on a device and reads the tree; gives the volume as well and, if asked, its media
/// as a crash of this recovery would have left them.
fn recover(
    device: &Arc<dyn Device>,
    cutter: &mut Cutter<'_>,
    again: bool,
) -> Result<Recovered, String> {
    let before = again.then(|| copy_of(device));
    let (volume, log) = recorded(device, cutter.media)?;
    let fs = FileSystem::open(Arc::clone(&volume), cutter.options.clone())
        .map_err(|error| format!("mount: {error}"))?;
    let found = tree::read(&fs)?;
    drop(fs);
    let half = before.map(|before| {
        let images = CrashImages::new(before, &log);
        let point = images.at(cutter.random.below(images.last_step() + 1));
        choose(&point, &mut cutter.random).0
    });
    Ok((found, volume, half))
}

/// Keeps the crashed volume that failed, and what was written to it, in the folder `DURE_SIM_KEEP`:
/// `dure dump` shows what is in it.
fn keep(images: &CrashImages, step: u64, device: &Arc<dyn Device>) {
    let Some(folder) = std::env::var_os("DURE_SIM_KEEP") else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let mut text = format!("crash at step {step}\n");
    for entry in images.entries() {
        let what = match &entry.effect {
            Effect::Write { lba, data, .. } => format!("write {lba} +{}", data.len()),
            Effect::Store { lba, bytes, .. } => format!("store {lba} {bytes:?}"),
            Effect::Discard { lba, blocks } => format!("discard {lba} +{blocks}"),
            Effect::Flush => "flush".to_owned(),
        };
        text += &format!("{} {what} {:?}\n", entry.submitted, entry.outcome);
    }
    std::fs::write(folder.join("crash.img"), bytes_of(device)).expect("the folder is there");
    std::fs::write(folder.join("writes.txt"), text).expect("the folder is there");
}

/// A copy of the content of a device.
fn copy_of(device: &Arc<dyn Device>) -> Image {
    Image::from_bytes(&bytes_of(device))
}

fn bytes_of(device: &Arc<dyn Device>) -> Vec<u8> {
    let blocks = device.info().blocks;
    let mut bytes = vec![0; usize::try_from(blocks).expect("small") * dure_block::BLOCK_BYTES];
    let io = dure_block::Io::Read {
        lba: dure_block::Lba::new(0),
        out: &mut bytes,
    };
    device.execute(io).expect("a RAM disk does not fail");
    bytes
}

/// Anything the check finds that a crash does not explain.
fn issues(device: &Arc<dyn Device>) -> Result<(), String> {
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(Arc::clone(device), &options).map_err(|error| format!("check: {error}"))?;
    let explained = |kind: &IssueKind| {
        matches!(
            kind,
            IssueKind::NotClean { .. } | IssueKind::PairSlotBad { .. }
        )
    };
    let unexplained: Vec<String> = report
        .issues()
        .iter()
        .filter(|issue| !explained(&issue.kind))
        .map(ToString::to_string)
        .collect();
    if unexplained.is_empty() {
        Ok(())
    } else {
        Err(format!("check: {}", unexplained.join("; ")))
    }
}
