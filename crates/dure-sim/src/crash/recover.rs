//! What recovery makes of a medium.
//!
//! **Structure.** [`recover`] checks, mounts, reads and unmounts; [`check_recovered`] checks what
//! is left. **Invariants.** One thread, a clock that stands still: what it gives depends
//! only on the medium, which [`super::memo`] relies on. **Crash.** It has been.

use std::ops::ControlFlow;

use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags};
use dure_check::{CheckOptions, Data, IssueKind, Repair, check};
use dure_fs::{
    Error, FileSystem, MountOptions, NvramOptions, RecordPolicy, Rules, ScrubOptions, StoreRules,
    VolumeInfo, VolumeRules, VolumeState,
};
use dure_sync::clock::{Timestamp, pretend_wall};
use dure_sync::{Arc, random};

use super::options::{START, on_stage};
use super::perform::Stage;
use super::tree::Tree;
use crate::media::Raw;

/// When crashed volumes are mounted.
const AFTER_CRASH: Timestamp = Timestamp {
    secs: START.secs + 86_400,
    nanos: 0,
};

/// Checks, mounts (so recovers), reads and unmounts. A panic is a violation like others.
pub(super) fn recover(
    all: &Arc<dyn Device>,
    media: Raw,
    mount: &MountOptions,
) -> Result<Tree, String> {
    let judged = || {
        pretend_wall(Some(AFTER_CRASH));
        random::pretend(Some(3));
        let device = volume(all, media)?;
        if mount.records == RecordPolicy::None {
            return repair_unlogged(&device, mount);
        }
        let before = left_by_a_crash(&device, Data::Verify, "before recovery")?;
        if media.loses_a_copy {
            lose_a_copy(&device).map_err(|error| format!("the copies: {error}"))?;
        }
        let fs = FileSystem::open(device.clone(), in_recovery(mount));
        let fs = fs.map_err(|error| format!("recovery: {error}"))?;
        let tree = Tree::read(&fs).map_err(|what| format!("the recovered tree: {what}"))?;
        if media.loses_a_copy {
            mend_copies(&fs)?;
        }
        fs.close()
            .map_err(|error| format!("unmount after recovery: {error}"))?;
        if before.iter().any(is_lost_copy) {
            must_be_clean(&device, Data::Skip, "after recovery")?;
        }
        Ok(tree)
    };
    let tree = caught(judged);
    pretend_wall(None);
    random::pretend(None);
    tree
}

/// Overwrites one of the two copies of all of NAT and SIT: the first or the second, as the number of
/// the last checkpoint is even or odd.
fn lose_a_copy(device: &Arc<dyn Device>) -> dure_fs::Result<()> {
    let info = VolumeInfo::read(device.clone())?;
    let layout = info.layout;
    let first = match info.checkpoint % 2 {
        0 => layout.nat,
        _ => layout.copies,
    };
    let blocks = 2 * (u64::from(layout.nat_pairs) + u64::from(layout.sit_pairs));
    let block = [0xa5; BLOCK_BYTES];
    for at in first..first + blocks {
        device.execute(Io::Write {
            lba: Lba::new(at),
            parts: &[&block],
            flags: WriteFlags::NONE,
        })?;
    }
    Ok(())
}

/// A scrub writes the destroyed copy anew. A power cut may leave the two copies of a journal's header
/// unequal, until that is written again.
fn mend_copies(fs: &FileSystem) -> Result<(), String> {
    let options = ScrubOptions {
        rate: Some(1 << 40),
        ..ScrubOptions::default()
    };
    let mut left = None;
    let counts = fs.scrub(&options, &mut |now| {
        let mut found = now.found.iter().filter(|bad| !bad.mended);
        let worse = found.find(|bad| !bad.why.contains("copy of the header of journal"));
        left = left.take().or_else(|| worse.cloned());
        ControlFlow::Continue(())
    });
    counts.map_err(|error| format!("scrub: {error}"))?;
    match left {
        None => Ok(()),
        Some(left) => Err(format!("scrub: it has not mended: {}", left.why)),
    }
}

fn volume(all: &Arc<dyn Device>, media: Raw) -> Result<Arc<dyn Device>, String> {
    let volume = media.volume(all);
    volume.map_err(|error| format!("the media of the volume: {error}"))
}

/// A volume without a log promises no tree: a crashed one is refused by its name, and the repair
/// brings back one that checks clean and mounts.
fn repair_unlogged(device: &Arc<dyn Device>, mount: &MountOptions) -> Result<Tree, String> {
    let info = VolumeInfo::read(device.clone()).map_err(|error| format!("info: {error}"))?;
    let opened = FileSystem::open(device.clone(), in_recovery(mount));
    let unmounted = match (info.state, opened) {
        // Before the mount, or after the unmount.
        (VolumeState::Clean, Ok(fs)) => fs,
        (VolumeState::Unlogged, Err(Error::Unlogged)) => {
            let options = CheckOptions {
                repair: Repair::Full,
                threads: Some(1),
                ..CheckOptions::default()
            };
            let report = check(device.clone(), &options);
            let report = report.map_err(|error| format!("repair: {error}"))?;
            if let Some(left) = report.issues().iter().find(|issue| !issue.repaired) {
                return Err(format!("repair: {left}"));
            }
            // Without their content: blocks of pages may have been used again.
            must_be_clean(device, Data::Skip, "after the repair")?;
            let fs = FileSystem::open(device.clone(), in_recovery(mount));
            fs.map_err(|error| format!("mount after the repair: {error}"))?
        }
        (state, Ok(_)) => return Err(format!("state {}: mounted all the same", state.name())),
        (state, Err(error)) => return Err(format!("state {}: {error}", state.name())),
    };
    let closed = unmounted.close();
    closed.map_err(|error| format!("unmount after the repair: {error}"))?;
    Ok(Tree::default())
}

/// Checks a volume that [`recover`] has unmounted.
pub(super) fn check_recovered(
    all: &Arc<dyn Device>,
    media: Raw,
    mount: &MountOptions,
) -> Result<(), String> {
    let data = match mount.records {
        RecordPolicy::None => Data::Skip,
        RecordPolicy::Delta | RecordPolicy::Image => Data::Verify,
    };
    caught(|| must_be_clean(&volume(all, media)?, data, "after recovery and unmount"))
}

/// Both.
pub(super) fn recover_and_check(
    all: &Arc<dyn Device>,
    media: Raw,
    mount: &MountOptions,
) -> Result<Tree, String> {
    let tree = recover(all, media, mount)?;
    check_recovered(all, media, mount)?;
    Ok(tree)
}

/// The mount options for recovery: with a page cache; rules are left out only where they concern recovery; those for
/// later use of the volume all hold.
fn in_recovery(mount: &MountOptions) -> MountOptions {
    let mut options = on_stage(mount, &Stage::default());
    // What a crash leaves is read from a device, in which looks are noted.
    (options.page_cache, options.durability) = (None, None);
    options.nvram = NvramOptions::default();
    options.rules = Rules {
        checksum: mount.rules.checksum,
        epoch: mount.rules.epoch,
        skip_invalid: mount.rules.skip_invalid,
        recover_marks: mount.rules.recover_marks,
        transitive: mount.rules.transitive,
        by_version: mount.rules.by_version,
        tombstones: mount.rules.tombstones,
        ..Rules::default()
    };
    let store = StoreRules {
        data_check: mount.volume_rules.store.data_check,
        ..StoreRules::default()
    };
    options.volume_rules = VolumeRules {
        store,
        ..VolumeRules::default()
    };
    options
}

/// A panic as an error.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a text")))
    })
}

fn must_be_clean(device: &Arc<dyn Device>, data: Data, when: &str) -> Result<(), String> {
    let left = left_by_a_crash(device, data, when)?;
    match left.into_iter().find(is_lost_copy) {
        Some(lost) => Err(format!("check {when}: {lost}")),
        None => Ok(()),
    }
}

/// What the check says about a volume, if nothing of it is worse than what a crash leaves: a volume
/// that was not unmounted, and a slot, or a copy of the superblock, that was torn while it was written.
fn left_by_a_crash(
    device: &Arc<dyn Device>,
    data: Data,
    when: &str,
) -> Result<Vec<IssueKind>, String> {
    let options = CheckOptions {
        data,
        threads: Some(1),
        ..CheckOptions::default()
    };
    let report =
        check(device.clone(), &options).map_err(|error| format!("check {when}: {error}"))?;
    let kinds = report.issues().iter().map(|issue| issue.kind.clone());
    let (left, worse): (Vec<_>, Vec<_>) = kinds.partition(|kind| {
        is_lost_copy(kind)
            || matches!(
                kind,
                IssueKind::NotClean { .. } | IssueKind::PairSlotBad { .. }
            )
    });
    let shown: Vec<_> = worse.iter().take(4).map(ToString::to_string).collect();
    if shown.is_empty() {
        return Ok(left);
    }
    Err(format!("check {when}: {}", shown.join("; ")))
}

fn is_lost_copy(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SuperblockCopy { .. } | IssueKind::MediumHead { .. }
    )
}
