//! Opening the device or image file a command names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure::stream::{self, Half};
use dure::{Volume, members};
use dure_bench::note;
use dure_block::file::{self, DeviceClaim, FileDevice, OpenOptions, Sharing, open_file};
use dure_block::nvm::Nvm;
use dure_block::{Device, Error};
use dure_fs::{FileSystem, MountOptions};
use dure_sync::{Arc, clock, thread};

use crate::args::Regions;
use crate::mounts;

/// How long a command waits for a volume that is in use but mounted nowhere: after umount(8) has
/// returned, its server still writes back and closes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits before it says so.
const TELL_AFTER: Duration = Duration::from_millis(300);

/// How a command wants the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing is written.
    Read,
    /// It may be changed.
    Write,
}

/// Options that lock the device against other processes.
pub(crate) fn exclusively(access: Access) -> OpenOptions {
    OpenOptions {
        read_only: access == Access::Read,
        ..OpenOptions::default()
    }
}

/// The volume behind `path`, on all its media, opened and locked for this process only; mapped if
/// it is on persistent memory.
pub(crate) fn device(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    device_as(path, access, &Regions::default(), Nvm::Auto)
}

/// Like [`device`], with its persistent memory at `regions`, and used as `nvm` says.
pub(crate) fn device_as(
    path: &Path,
    access: Access,
    regions: &Regions,
    nvm: Nvm,
) -> Result<Arc<dyn Device>> {
    join(path, file_device(path, access)?, access, regions, nvm)
}

/// The volume whose device is `volume`, on all its media.
pub(crate) fn join(
    path: &Path,
    volume: FileDevice,
    access: Access,
    regions: &Regions,
    nvm: Nvm,
) -> Result<Arc<dyn Device>> {
    named_once(regions.files.iter().map(PathBuf::as_path).chain([path]))?;
    let open = |region: &Path| file_device(region, access);
    members::join(path, volume, &regions.files, nvm, open)
}

/// Refuses a medium that is named twice, which would wait for the lock of this very process.
pub(crate) fn named_once<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<()> {
    let mut seen = Vec::new();
    for path in paths {
        let whole = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        if seen.contains(&whole) {
            bail!(
                "{}: is named twice; each medium is one file",
                path.display()
            );
        }
        seen.push(whole);
    }
    Ok(())
}

/// The image file or block device at `path`, opened like [`device`] but not shared yet.
pub(crate) fn file_device(path: &Path, access: Access) -> Result<FileDevice> {
    if let Some(mount) = mounts::on(path) {
        let (volume, at) = (mount.source.display(), path.display());
        bail!("{volume} is mounted on {at}; `dure umount {at}` first");
    }
    patiently(path, || open_file(path, exclusively(access)))
}

/// A block device that is about to be mounted as `fuseblk`: the device, and this process's
/// exclusive claim on it, to be dropped just before mount(2), which makes the kernel's own.
pub(crate) fn claimed_block_device(
    path: &Path,
    access: Access,
) -> Result<(FileDevice, DeviceClaim)> {
    patiently(path, || {
        let claim = DeviceClaim::take(path)?;
        let options = OpenOptions {
            sharing: Sharing::Kernel,
            ..exclusively(access)
        };
        Ok((open_file(path, options)?, claim))
    })
}

/// Retries while the volume is in use: for a while if it is mounted nowhere, else not at all.
fn patiently<T>(path: &Path, open: impl Fn() -> dure_block::Result<T>) -> Result<T> {
    let start = clock::monotonic_ns();
    let mut told = false;
    loop {
        let error = match open() {
            Ok(opened) => return Ok(opened),
            Err(error) if is_in_use(&error) => error,
            Err(error) => return Err(error.into()),
        };
        let waited = Duration::from_nanos(clock::monotonic_ns() - start);
        if waited >= PATIENCE || mounts::of(path).is_some() {
            return Err(error.into());
        }
        if waited >= TELL_AFTER && !told {
            note!("dure: {error}; waiting for it");
            told = true;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether another process has it open.
pub(crate) fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Locked { .. })
}

/// The volume behind `path`, mounted in this process; to be changed, if no stream is half received.
pub(crate) fn open(path: &Path, access: Access) -> Result<Volume> {
    let volume = open_any(path, access)?;
    if access == Access::Write {
        whole(volume.file_system(), path)?;
    }
    Ok(volume)
}

/// Refuses a change of a volume on which a stream is half received or a snapshot half restored.
pub(crate) fn whole(fs: &FileSystem, path: &Path) -> Result<()> {
    let at = path.display();
    let look =
        "what changes now would be taken for a part of it (`dure mount -o ro` shows what is there)";
    match stream::half_done(fs)? {
        None => Ok(()),
        Some(Half::Restored(name)) => bail!(
            "{at}: snapshot {name} is half restored, and {look}; end that first with `dure snapshot restore {at} {name}`"
        ),
        Some(Half::Received(name)) => bail!(
            "{at}: a stream of snapshot {name} is half received, and {look}; receive it again first, or, if it is \
             lost, restore a snapshot that is here with `dure snapshot restore {at} NAME`"
        ),
    }
}

/// The volume behind `path`, mounted in this process, to receive a stream or only to be read.
pub(crate) fn open_any(path: &Path, access: Access) -> Result<Volume> {
    let mount = MountOptions {
        read_only: access == Access::Read,
        ..MountOptions::default()
    };
    let device = device(path, access)?;
    Volume::open_on(device, mount).with_context(|| path.display().to_string())
}

/// Closes a volume that was changed: only then is the change safe.
pub(crate) fn close(volume: &Volume, path: &Path) -> Result<()> {
    volume
        .close()
        .with_context(|| format!("{}: closing", path.display()))
}

/// What `file` calls a regular image file or a block device.
pub(crate) fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

pub(crate) use file::{Allocation, create_image, resize_image};
