//! `dure resize`: of a volume that is not mounted, or through the server of one that is.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::Device;
use dure_block::nvm::{self, Nvm};
use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{FileSystem, Layout, VolumeInfo};

use crate::args::Resize;
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{Grown, Reply, Request};
use crate::size::Size;
use crate::volume::{self, Access};

/// How long a server may take: it writes everything back.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn run(args: &Resize) -> Result<u8> {
    let (path, client) = Client::of(&args.volume)?;
    let path = path.as_path();
    let bytes = args.size.map(|Size(bytes)| bytes);
    let grown = match client {
        Some(client) => mounted(client, bytes)?,
        None => unmounted(path, bytes)?,
    };
    say!("{}: {grown}", path.display());
    Ok(exit::OK)
}

fn mounted(mut client: Client, bytes: Option<u64>) -> Result<Grown> {
    let at = client.volume().display().to_string();
    match client.ask_patiently(&Request::Grow { bytes }, PATIENCE)? {
        Some(Reply::Grown(grown)) => Ok(grown),
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => bail!(
            "{at}: its server ended meanwhile; mount it again, and `dure info` shows its size"
        ),
    }
}

fn unmounted(path: &Path, bytes: Option<u64>) -> Result<Grown> {
    let at = || path.display().to_string();
    // What is no volume is not made larger.
    let info = VolumeInfo::read(volume::device(path, Access::Read)?).with_context(at)?;
    if info.first_superblock_is_damaged {
        // The last one is found where the image ends now.
        bail!(
            "{}: the first superblock is damaged; `dure check --repair` mends it",
            at()
        );
    }
    let device = volume::file_device(path, Access::Write)?;
    let sizes = Sizes {
        layout: &info.layout,
        have: device.info().blocks,
        is_block_device: volume::is_block_device(path),
    };
    let want = sizes.wanted(bytes).with_context(at)?;
    // Nothing is refused after the image has become larger, but a volume that was not unmounted.
    FileSystem::layout_grown(&info.layout, want).with_context(at)?;
    let device = match want > sizes.have {
        true => volume::resize_image(path, device, want)?,
        false => device,
    };
    let (before, after) = FileSystem::grow(nvm::open(device, Nvm::Auto)?).with_context(at)?;
    Ok(Grown::of(&before, &after))
}

/// A volume, and what it lies on.
pub(crate) struct Sizes<'v> {
    pub(crate) layout: &'v Layout,
    /// Blocks of its device.
    pub(crate) have: u64,
    pub(crate) is_block_device: bool,
}

impl Sizes<'_> {
    /// How many blocks the device is to have for a volume of `bytes`, or as large as it can be.
    ///
    /// # Errors
    /// When that is no growth.
    pub(crate) fn wanted(&self, bytes: Option<u64>) -> Result<u64> {
        let want = bytes.map_or(self.have, |bytes| bytes / BLOCK_BYTES_U64);
        if want != self.have && self.is_block_device {
            bail!("a block device has its own size; leave out the size");
        }
        if want < self.layout.total_blocks {
            bail!(
                "the volume has {} and cannot become smaller: files may lie anywhere on it; make a new one \
                 and copy",
                Size(self.layout.bytes())
            );
        }
        if want == self.layout.total_blocks {
            let next = match self.is_block_device {
                true => "make the device larger first",
                false => "give a larger size, as in 2G",
            };
            bail!(
                "the volume has {} already; {next}",
                Size(self.layout.bytes())
            );
        }
        Ok(want)
    }
}
