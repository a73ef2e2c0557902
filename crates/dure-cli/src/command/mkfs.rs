//! `dure mkfs`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::file::FileDevice;
use dure_block::{Device, share};
use dure_fs::{Error, FileSystem, FormatOptions, Layout, Owner, VolumeInfo};
use dure_sync::Arc;

use crate::args::Mkfs;
use crate::exit;
use crate::size::Size;
use crate::volume::{self, Access, Allocation};

const BLOCK: u64 = 4096;

pub(crate) fn run(args: &Mkfs) -> Result<u8> {
    let path = args.volume.as_path();
    let (device, made) = prepare(args, path)?;
    // The lock is held until a half-made image has been removed.
    let result = format(args, path, device.clone(), made);
    if result.is_err() && made == Made::New {
        let _ = fs::remove_file(path);
    }
    drop(device);
    let layout = result?;
    let segments = u64::from(layout.segments) * u64::from(layout.segment_blocks) * BLOCK;
    say!(
        "{}: {} volume, {} for files and nodes, {} journals, uuid {}",
        path.display(),
        Size(layout.bytes()),
        Size(segments),
        layout.journals,
        uuid::Uuid::from_bytes(layout.superblock.uuid)
    );
    Ok(exit::OK)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    New,
    Existing,
}

/// Opens and locks the image or device, before anything is changed; makes the image if there is
/// none.
fn prepare(args: &Mkfs, path: &Path) -> Result<(Arc<dyn Device>, Made)> {
    let Ok(found) = fs::metadata(path) else {
        let Some(Size(bytes)) = args.size else {
            bail!(
                "{}: no such file or device; give --size to make an image file",
                path.display()
            );
        };
        let how = if args.preallocate {
            Allocation::Preallocated
        } else {
            Allocation::Sparse
        };
        plan(args, path, bytes / BLOCK)?;
        let options = volume::exclusively(Access::Write);
        let device = volume::create_image(path, bytes / BLOCK, how, options)?;
        return Ok((share(device), Made::New));
    };
    if found.is_dir() {
        bail!(
            "{}: is a directory; give a block device or the path of an image file",
            path.display()
        );
    }
    if args.size.is_some() && !found.is_file() {
        bail!(
            "{}: a block device has its own size; leave out --size",
            path.display()
        );
    }
    if args.preallocate {
        bail!(
            "{}: exists; --preallocate is for a new image file",
            path.display()
        );
    }
    let device = volume::file_device(path, Access::Write)?;
    let device = resized(args, path, device)?;
    Ok((share(device), Made::Existing))
}

/// What a volume of so many blocks would be, to refuse what cannot be before anything is changed.
fn plan(args: &Mkfs, path: &Path, blocks: u64) -> Result<()> {
    let cores = u32::try_from(dure_sync::core_count()).unwrap_or(u32::MAX);
    let planned = Layout::plan(blocks, &options(args), cores);
    planned.with_context(|| path.display().to_string())?;
    Ok(())
}

/// Gives an existing image, which is locked, the size asked for.
fn resized(args: &Mkfs, path: &Path, device: FileDevice) -> Result<FileDevice> {
    let Some(Size(bytes)) = args.size else {
        return Ok(device);
    };
    let have = device.info().blocks;
    if have == bytes / BLOCK {
        return Ok(device);
    }
    if !args.force {
        bail!(
            "{}: exists with {}; leave out --size, or give --force to make it {}",
            path.display(),
            Size(have * BLOCK),
            Size(bytes)
        );
    }
    plan(args, path, bytes / BLOCK)?;
    Ok(volume::resize_image(path, device, bytes / BLOCK)?)
}

fn options(args: &Mkfs) -> FormatOptions {
    FormatOptions {
        journals: args.journals,
        label: args.label.clone(),
        owner: args.owner.unwrap_or_else(caller),
        ..FormatOptions::default()
    }
}

/// The user who runs mkfs: the default owner of the root directory.
fn caller() -> Owner {
    Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

fn format(args: &Mkfs, path: &Path, device: Arc<dyn Device>, made: Made) -> Result<Layout> {
    if !args.force && made == Made::Existing {
        refuse_to_overwrite(path, &device)?;
    }
    FileSystem::format(device, &options(args)).with_context(|| path.display().to_string())
}

/// A device that holds anything but zeroes in its first 64 KiB holds something.
fn refuse_to_overwrite(path: &Path, device: &Arc<dyn Device>) -> Result<()> {
    if let Ok(old) = VolumeInfo::read(device.clone()) {
        let label = old.label();
        bail!(
            "{}: holds a dure volume ('{label}'); give --force to destroy it",
            path.display()
        );
    }
    let queue = dure_block::Queue::new(device.clone(), dure_block::QueueConfig::default());
    let blocks = queue.info().blocks.min(16);
    let mut head = vec![0; usize::try_from(blocks * BLOCK).expect("64 KiB fit in memory")];
    match queue.read(dure_block::Lba::new(0), &mut head) {
        Ok(()) if head.iter().all(|&byte| byte == 0) => Ok(()),
        Ok(()) => bail!(
            "{}: is not empty; give --force to overwrite it",
            path.display()
        ),
        Err(error) => Err(Error::from(error)).with_context(|| path.display().to_string()),
    }
}
