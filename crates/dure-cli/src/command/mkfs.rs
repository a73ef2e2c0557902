//! `dure mkfs`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_fs::{Error, FileSystem, FormatOptions, Layout, VolumeInfo};

use crate::args::Mkfs;
use crate::exit;
use crate::size::Size;
use crate::volume::{self, Access, Allocation};

const BLOCK: u64 = 4096;

pub(crate) fn run(args: &Mkfs) -> Result<u8> {
    let path = args.volume.as_path();
    let made = prepare(args, path)?;
    let result = format(args, path);
    if result.is_err() && made == Made::New {
        // Nothing half made is left behind.
        let _ = fs::remove_file(path);
    }
    let layout = result?;
    let segments = u64::from(layout.segments) * u64::from(layout.segment_blocks) * BLOCK;
    println!(
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

/// Makes the image file if there is none, and looks whether something would be overwritten.
fn prepare(args: &Mkfs, path: &Path) -> Result<Made> {
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
        volume::create_image(path, bytes / BLOCK, how)?;
        return Ok(Made::New);
    };
    if found.is_dir() {
        bail!(
            "{}: is a directory; give a block device or the path of an image file",
            path.display()
        );
    }
    if let (Some(Size(bytes)), true) = (args.size, found.is_file()) {
        if found.len() != bytes && !args.force {
            bail!(
                "{}: exists with {}; leave out --size, or give --force to make it {}",
                path.display(),
                Size(found.len()),
                Size(bytes)
            );
        }
        let file = fs::OpenOptions::new().write(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        file.set_len(bytes)
            .with_context(|| path.display().to_string())?;
    }
    Ok(Made::Existing)
}

fn format(args: &Mkfs, path: &Path) -> Result<Layout> {
    let device = volume::device(path, Access::Write)?;
    if !args.force {
        refuse_to_overwrite(path, &device)?;
    }
    let options = FormatOptions {
        journals: args.journals,
        label: args.label.clone(),
        ..FormatOptions::default()
    };
    FileSystem::format(device, &options).with_context(|| path.display().to_string())
}

/// A device that holds anything but zeroes in its first 64 KiB holds something.
fn refuse_to_overwrite(path: &Path, device: &dure_sync::Arc<dyn dure_block::Device>) -> Result<()> {
    if let Ok(old) = VolumeInfo::read(device.clone()) {
        let label = old.label();
        bail!(
            "{}: holds a dure volume ('{label}'); give --force to destroy it",
            path.display()
        );
    }
    let queue = dure_block::Queue::new(device.clone(), dure_block::QueueConfig::default());
    let blocks = queue.info().blocks.min(16);
    let mut head = vec![0; usize::try_from(blocks * BLOCK).expect("64 KiB")];
    match queue.read(dure_block::Lba::new(0), &mut head) {
        Ok(()) if head.iter().all(|&byte| byte == 0) => Ok(()),
        Ok(()) => bail!(
            "{}: is not empty; give --force to overwrite it",
            path.display()
        ),
        Err(error) => Err(Error::from(error)).with_context(|| path.display().to_string()),
    }
}
