//! `dure resize`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::Device;
use dure_block::nvm::{self, Nvm};
use dure_fs::{Error, FileSystem, VolumeInfo};

use crate::args::Resize;
use crate::exit;
use crate::size::Size;
use crate::volume::{self, Access};

const BLOCK: u64 = 4096;

pub(crate) fn run(args: &Resize) -> Result<u8> {
    let path = args.volume.as_path();
    let at = || path.display().to_string();
    // What is no volume is not made larger.
    let info = VolumeInfo::read(volume::device(path, Access::Read)?).with_context(at)?;
    if info.layout.superblock.media().len() > 1 {
        bail!(
            "{}: lies on several media, and cannot grow: make a new volume and copy",
            at()
        );
    }
    let device = volume::file_device(path, Access::Write)?;
    let have = device.info().blocks;
    let want = args.size.map_or(have, |Size(bytes)| bytes / BLOCK);
    if want != have && volume::is_block_device(path) {
        bail!(
            "{}: a block device has its own size; leave out the size",
            at()
        );
    }
    if want < info.layout.total_blocks {
        bail!(
            "{}: the volume has {} and cannot become smaller: files may lie anywhere on it; make a new \
             one and copy",
            at(),
            Size(info.layout.bytes())
        );
    }
    let device = match want.cmp(&have) {
        std::cmp::Ordering::Greater => volume::resize_image(path, device, want)?,
        _ => device,
    };
    let (before, after) = match FileSystem::grow(nvm::open(device, Nvm::Auto)?) {
        Ok(grown) => grown,
        Err(error) => {
            if want > have && is_refusal(&error) {
                give_back(path, have)?;
            }
            return Err(error).with_context(at);
        }
    };
    say!(
        "{}: {} before, {} now, {} for files and nodes",
        path.display(),
        Size(before.bytes()),
        Size(after.bytes()),
        Size(u64::from(after.segments) * u64::from(after.segment_blocks) * BLOCK)
    );
    Ok(exit::OK)
}

/// Errors that are said before anything is written.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::TooSmall { .. } | Error::BadOption { .. })
}

/// The image file has its former size again.
fn give_back(path: &Path, blocks: u64) -> Result<()> {
    let device = volume::file_device(path, Access::Write)?;
    drop(volume::resize_image(path, device, blocks)?);
    Ok(())
}
