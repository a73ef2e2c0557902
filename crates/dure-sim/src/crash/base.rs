//! The volume that workloads run on: a tree, made once and never written.
//!
//! **Structure.** An image, the digests of its blocks, and the history of what made it.
//! **Invariants.** Made on one core with a fixed time, so it is the same each time.

use dure_block::overlay::OverlayRam;
use dure_block::ram::{Image, RamDevice};
use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags, share};
use dure_fs::members::{Member, join};
use dure_fs::units::is_zero;
use dure_fs::{FileSystem, FormatOptions, NodeLog, NvmRegion};
use dure_sync::clock::pretend_wall;
use dure_sync::{Arc, CoreId, thread};

use super::call::{Call, Step};
use super::content::Digests;
use super::history::History;
use super::options::{START, mount_options, on_stage};
use super::perform::{Performer, Stage};
use super::tree::Tree;

/// Blocks of the volume.
pub const VOLUME_BLOCKS: u64 = 1536;

/// A volume with a tree, unmounted.
#[derive(Debug)]
pub struct Base {
    image: Arc<Image>,
    /// Of the image.
    digests: Digests,
    history: History,
    /// The first blocks, which are in persistent memory; the others, if any, are on a disk.
    nvm_blocks: u64,
}

/// The media of a volume, and what goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// One device.
    Disk,
    /// Persistent memory only.
    Nvm,
    /// Persistent memory for tables and, as it says, logs and nodes; a disk for the rest.
    Hybrid(NodeLog),
}

/// Blocks of persistent memory of a volume that has a disk, too.
const NVM_BLOCKS: u64 = 896;

impl Base {
    /// Makes a volume and, on it, what `calls` make.
    ///
    /// # Errors
    /// Of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn new(calls: &[Call]) -> dure_fs::Result<Base> {
        Base::with_journals(calls, 2)
    }

    /// As [`Base::new`], with so many journals.
    ///
    /// # Errors
    /// Of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn with_journals(calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        Base::on(On::Disk, calls, journals)
    }

    /// As [`Base::with_journals`], on such media.
    ///
    /// # Errors
    /// Of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn on(media: On, calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        let calls = calls.to_vec();
        // Runs on one core with a fixed time, so that the volume is the same each time.
        let make = move || {
            pretend_wall(Some(START));
            Base::make(media, &calls, journals)
        };
        let thread = thread::spawn_on("base", CoreId::new(0), make);
        thread.join().expect("making a volume does not panic")
    }

    fn make(media: On, calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        let (device, nvm_blocks) = format(media, journals)?;
        let stage = Stage::default();
        let fs = FileSystem::open(device.clone(), on_stage(&mount_options(), &stage))?;
        let mut history = History::default();
        let mut performer = Performer::new(fs.clone(), stage);
        for call in calls {
            performer.step(&Step::Call(*call))?;
            history.call(0, call);
        }
        drop(performer);
        fs.close()?;
        history.settle();
        Ok(Base::of(image_of(&device), history, nvm_blocks))
    }

    fn of(image: Image, history: History, nvm_blocks: u64) -> Base {
        Base {
            digests: Digests::of(&image),
            image: Arc::new(image),
            history,
            nvm_blocks,
        }
    }

    /// The first blocks, which are in persistent memory.
    pub(super) fn nvm_blocks(&self) -> u64 {
        self.nvm_blocks
    }

    pub(super) fn digests(&self) -> &Digests {
        &self.digests
    }

    pub(super) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.image)
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The volume that a crash left; `tree` is what recovery makes of it.
    #[must_use]
    pub fn crashed(image: &OverlayRam, tree: &Tree, nvm_blocks: u64) -> Base {
        Base::of(image.snapshot(), History::of_tree(tree), nvm_blocks)
    }
}

/// A new volume in memory, and how much of it is persistent.
fn format(media: On, journals: u32) -> dure_fs::Result<(Arc<dyn Device>, u64)> {
    let mut format = FormatOptions {
        journals: Some(journals),
        segment_blocks: Some(32),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let disk = share(RamDevice::new("base", VOLUME_BLOCKS));
    let node_log = match media {
        On::Disk | On::Nvm => {
            FileSystem::format(disk.clone(), &format)?;
            let nvm_blocks = if media == On::Nvm { VOLUME_BLOCKS } else { 0 };
            return Ok((disk, nvm_blocks));
        }
        On::Hybrid(node_log) => node_log,
    };
    format.node_log = node_log;
    let (device, path) = (share(RamDevice::new("nvm", NVM_BLOCKS)), "nvm".to_owned());
    let nvm = NvmRegion { device, path };
    format.nvm = vec![nvm.clone()];
    FileSystem::format(disk.clone(), &format)?;
    let (nvm, path) = (nvm.device, String::new());
    let members = [nvm, disk].map(|device| Member {
        device,
        path: path.clone(),
    });
    Ok((join(&members)?, NVM_BLOCKS))
}

/// The content of all media.
fn image_of(device: &Arc<dyn Device>) -> Image {
    let ram = RamDevice::new("base", device.info().blocks);
    let mut block = [0; BLOCK_BYTES];
    for at in 0..device.info().blocks {
        let (lba, out) = (Lba::new(at), &mut block[..]);
        let read = device.execute(Io::Read { lba, out });
        read.expect("memory can be read");
        if !is_zero(&block) {
            let (parts, flags) = (&[&block[..]][..], WriteFlags::NONE);
            let written = ram.execute(Io::Write { lba, parts, flags });
            written.expect("memory can be written");
        }
    }
    ram.snapshot()
}
