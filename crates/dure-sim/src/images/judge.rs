//! What must hold of every image.
//!
//! 1. Check, mounts, reads, copies out, writes and repair end without a panic.
//! 2. A read-only mount has written nothing; after a refused mount, everything can be read that
//!    could be read before.
//! 3. An image that check calls sound can be mounted, and every file of it can be read; so what
//!    mount refuses, check reports.
//! 4. If check calls an image sound although the medium rotted, every file is as it was.
//! 5. Files that read as before the damage still do after others were written, and after a repair.
//! 6. An image that was sound, or was repaired until it is, is sound after use.
//! 7. Nothing is copied out to a place outside of the destination.

use std::collections::BTreeSet;
use std::path::Path;

use dure_block::ram::{Image, RamDevice};
use dure_block::share;
use dure_check::{CheckOptions, Data, Repair, Report, check};
use dure_fs::units::Ino;
use dure_fs::{FileSystem, InodeRef, NewInode, Stamp, SyncScope, VolumeInfo, VolumeState};
use dure_sync::Arc;

use super::Outcome;
use super::base::{Base, options};
use super::damage::Damaged;
use super::found::Found;

pub(super) fn judge(base: &Base, damaged: &Damaged, scratch: &Path) -> Result<Outcome, String> {
    let report = checked(&device(&damaged.image), Repair::No);
    let clean = report.as_ref().is_ok_and(Report::is_sound);
    let seen = readable(&damaged.image)?;
    if clean {
        let found = seen
            .as_ref()
            .map_err(|error| format!("check calls it sound, mount -o ro: {error}"))?;
        if let Some(error) = found.errors().next() {
            return Err(format!("check calls it sound, but {error}"));
        }
        // Two may be a transaction and the one that proves it.
        if !damaged.crafted
            && damaged.how.len() < 2
            && let Some(difference) = found.difference(&base.found)
        {
            return Err(format!(
                "rot changed the volume, and check calls it sound: {difference}"
            ));
        }
    }
    if seen.is_ok() {
        copy_out(&damaged.image, scratch)?;
    }
    let intact = match &seen {
        Ok(found) if !damaged.orphans => found.same_as(&base.found),
        _ => Vec::new(),
    };
    let mounted = written(base, &damaged.image, clean, &intact)?;
    let repaired = repaired(base, &damaged.image, &intact)?;
    Ok(Outcome {
        clean,
        mounted,
        repaired,
    })
}

fn device(image: &Image) -> Arc<RamDevice> {
    Arc::new(RamDevice::from_image("damaged", image))
}

fn checked(device: &Arc<RamDevice>, repair: Repair) -> Result<Report, String> {
    let check_options = CheckOptions {
        repair,
        data: Data::Verify,
        threads: Some(1),
        ..CheckOptions::default()
    };
    check(share(Arc::clone(device)), &check_options).map_err(|error| error.to_string())
}

fn mount(device: &Arc<RamDevice>, read_only: bool) -> Result<FileSystem, String> {
    FileSystem::open(share(Arc::clone(device)), options(read_only)).map_err(|e| e.to_string())
}

/// An error if the medium is not as it was.
fn unwritten(device: &RamDevice, before: &Image, who: &str) -> Result<(), String> {
    match device.snapshot().first_difference(before) {
        Some(block) => Err(format!("{who} has written block {block}")),
        None => Ok(()),
    }
}

/// What a read-only mount shows; the inner error is that of the mount.
fn readable(image: &Image) -> Result<Result<Found, String>, String> {
    let device = device(image);
    let found = mount(&device, true).and_then(|fs| {
        let found = Found::read(&fs).map_err(|error| error.to_string());
        let closed = fs.close().map_err(|error| error.to_string());
        closed.and(found)
    });
    unwritten(&device, image, "a read-only mount")?;
    Ok(found)
}

/// `dure get` of everything, below a folder of which nothing else may change.
fn copy_out(image: &Image, scratch: &Path) -> Result<(), String> {
    let outer = scratch.join("outer");
    let _ = std::fs::remove_dir_all(&outer);
    let host = |error: std::io::Error| format!("{}: {error}", outer.display());
    std::fs::create_dir_all(outer.join("inner/out")).map_err(host)?;
    let Ok(volume) = dure::Volume::open_on(share(device(image)), options(true)) else {
        return Ok(());
    };
    let out = outer.join("inner/out");
    // A name that leads elsewhere is an error, or is left out.
    let _ = dure::tree::get(&volume.root(), "/", &out, &mut |_| {
        std::ops::ControlFlow::Continue(())
    });
    let _ = volume.close();
    let escaped = names(&outer, &["inner"])
        .into_iter()
        .chain(names(&outer.join("inner"), &["out"]))
        .chain(names(scratch, &["outer"]));
    match escaped.into_iter().next() {
        Some(name) => Err(format!(
            "copying out made {name} outside of its destination"
        )),
        None => Ok(()),
    }
}

/// Entries of a directory but those expected.
pub(super) fn names(directory: &Path, expected: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| !expected.contains(&name.as_str()))
        .collect()
}

/// Mounts for writing, changes some files, and reads all others. Returns whether it mounted.
fn written(base: &Base, image: &Image, clean: bool, intact: &[Vec<u8>]) -> Result<bool, String> {
    let device = device(image);
    let fs = match mount(&device, false) {
        Ok(fs) => fs,
        Err(error) if clean => return Err(format!("check calls it sound, mount: {error}")),
        Err(_) => {
            unchanged(base, &device, intact, "after a mount that was refused")?;
            return Ok(false);
        }
    };
    let changed = use_volume(&fs);
    let written = written_inodes(&fs);
    let intact: Vec<_> = intact
        .iter()
        .filter(|path| !is_written(path) && !inode(&fs, path).is_some_and(|i| written.contains(&i)))
        .cloned()
        .collect();
    let closed = fs.close();
    if clean {
        changed.map_err(|error| format!("check calls it sound, using it: {error}"))?;
        closed.map_err(|error| format!("check calls it sound, unmount: {error}"))?;
    }
    unchanged(base, &device, &intact, "after others were written")?;
    if clean {
        must_be_sound(&device, "after use")?;
    }
    Ok(true)
}

/// Files that [`use_volume`] overwrites, by name.
const WRITTEN: [&[u8]; 3] = [b"file-4", b"file-6", b"sparse"];

fn is_written(path: &[u8]) -> bool {
    WRITTEN.iter().any(|name| path.ends_with(name))
}

/// Those of them that the damage has left.
fn written_files(fs: &FileSystem) -> Vec<InodeRef> {
    let names = |directory: &'static [u8]| WRITTEN.map(|name| [directory, b"/", name].concat());
    let paths = [&b"first"[..], b"second", b"third"]
        .into_iter()
        .flat_map(names);
    paths.filter_map(|path| find(fs, &path)).collect()
}

/// Inodes of those files: a crafted entry may give one of them another name, too.
fn written_inodes(fs: &FileSystem) -> BTreeSet<Ino> {
    written_files(fs).iter().map(InodeRef::ino).collect()
}

fn inode(fs: &FileSystem, path: &[u8]) -> Option<Ino> {
    find(fs, path).map(|inode| inode.ino())
}

fn find(fs: &FileSystem, path: &[u8]) -> Option<InodeRef> {
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    names.fold(fs.root().ok(), |at, name| fs.lookup(&at?, name).ok()?)
}

fn use_volume(fs: &FileSystem) -> Result<(), dure_fs::Error> {
    let root = fs.root()?;
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    for n in 0..12_u64 {
        let file = fs.create(&root, format!("made-{n}").as_bytes(), &new)?;
        fs.write(&file, n * 5000, &[0x5a; 30_000], Stamp::Set)?;
    }
    for file in written_files(fs) {
        let _ = fs.write(&file, 1000, &[0xa5; 40_000], Stamp::Set);
        let _ = fs.fsync(&file, SyncScope::All);
    }
    for n in 0..6_u64 {
        fs.unlink(&root, format!("made-{n}").as_bytes())?;
    }
    fs.sync()?;
    fs.checkpoint_now()?;
    for n in 0..6_u64 {
        let file = fs.create(&root, format!("again-{n}").as_bytes(), &new)?;
        fs.write(&file, 0, &[0x3c; 60_000], Stamp::Set)?;
    }
    fs.sync()
}

/// All of `intact` is still as in the base, if the volume can be mounted.
fn unchanged(
    base: &Base,
    device: &Arc<RamDevice>,
    intact: &[Vec<u8>],
    when: &str,
) -> Result<(), String> {
    let now = mount(device, true).and_then(|fs| Found::read(&fs).map_err(|e| e.to_string()));
    match now {
        Ok(now) => match now.changed(&base.found, intact) {
            Some(changed) => Err(format!("{when}: {changed}")),
            None => Ok(()),
        },
        // Nothing was intact to be lost, and the image may not have been mountable before.
        Err(_) if intact.is_empty() => Ok(()),
        Err(error) => Err(format!("{when} it does not mount: {error}")),
    }
}

/// Repairs as `dure check --repair` does. Returns whether that made the image sound.
fn repaired(base: &Base, image: &Image, intact: &[Vec<u8>]) -> Result<bool, String> {
    let device = device(image);
    if VolumeInfo::read(share(Arc::clone(&device)))
        .is_ok_and(|info| info.state == VolumeState::Dirty)
    {
        // A crashed volume is recovered first; what cannot be is not repaired.
        let Ok(fs) = mount(&device, false) else {
            unchanged(base, &device, intact, "after a recovery that was refused")?;
            return Ok(false);
        };
        let _ = fs.close();
    }
    if checked(&device, Repair::Safe).is_err() {
        return Ok(false);
    }
    let sound = checked(&device, Repair::No).is_ok_and(|report| report.is_sound());
    if sound {
        unchanged(base, &device, intact, "after a repair")?;
        let found = mount(&device, true).and_then(|fs| Found::read(&fs).map_err(|e| e.to_string()));
        let found = found.map_err(|error| format!("check calls the repaired sound: {error}"))?;
        if let Some(error) = found.errors().next() {
            return Err(format!(
                "check calls the repaired volume sound, but {error}"
            ));
        }
        let fs = mount(&device, false)
            .map_err(|error| format!("check calls the repaired sound, mount: {error}"))?;
        let used = use_volume(&fs).and_then(|()| fs.close());
        used.map_err(|error| format!("use of the repaired volume: {error}"))?;
        must_be_sound(&device, "after use of the repaired volume")?;
    }
    Ok(sound)
}

fn must_be_sound(device: &Arc<RamDevice>, when: &str) -> Result<(), String> {
    let report = checked(device, Repair::No).map_err(|error| format!("check {when}: {error}"))?;
    if report.is_sound() {
        return Ok(());
    }
    let shown: Vec<_> = report
        .issues()
        .iter()
        .take(3)
        .map(ToString::to_string)
        .collect();
    Err(format!("check {when}: {}", shown.join("; ")))
}
