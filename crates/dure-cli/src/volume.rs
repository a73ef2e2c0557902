//! Opening the device or image file a command names.

use std::path::Path;

use anyhow::{Context, Result};
use dure::Volume;
use dure_block::file::{self, OpenOptions, open_file};
use dure_block::{Device, share};
use dure_fs::MountOptions;
use dure_sync::Arc;

/// How a command wants the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing is written.
    Read,
    /// It may be changed.
    Write,
}

/// The device behind `path`, for this process alone.
pub(crate) fn device(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    let read_only = access == Access::Read;
    let options = OpenOptions {
        read_only,
        exclusive: true,
        ..OpenOptions::default()
    };
    let device = open_file(path, options)?;
    Ok(share(device))
}

/// A block device that is about to be mounted as `fuseblk`: the device, and this process's
/// exclusive claim on it, to be dropped just before mount(2), which makes the kernel's own.
pub(crate) fn claimed_block_device(
    path: &Path,
    access: Access,
) -> Result<(Arc<dyn Device>, file::FileDevice)> {
    let read_only = access == Access::Read;
    let claim = OpenOptions {
        read_only: true,
        exclusive: true,
        ..OpenOptions::default()
    };
    let claim = open_file(path, claim)?;
    let options = OpenOptions {
        read_only,
        exclusive: false,
        ..OpenOptions::default()
    };
    Ok((share(open_file(path, options)?), claim))
}

/// The volume behind `path`, mounted in this process.
pub(crate) fn open(path: &Path, access: Access) -> Result<Volume> {
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

pub(crate) use file::{Allocation, create_image};
