//! The volume that workloads run on: a tree, made once and never written.
//!
//! **Structure.** An image, the digests of its blocks, and the history of what made it.
//! **Invariants.** Made on one core with a fixed time, so it is the same each time.

use dure_block::linear::LinearDevice;
use dure_block::overlay::OverlayRam;
use dure_block::ram::{Image, RamDevice};
use dure_block::{Device, Lba, share};
use dure_fs::members::{Member, join};
use dure_fs::{FileSystem, FormatOptions, NodeLog, NvmRegion};
use dure_sync::clock::pretend_wall;
use dure_sync::{Arc, CoreId, random, thread};

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
    media: Raw,
}

/// How the media of a volume lie on one device: as they are, heads included, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    /// The first blocks, which are in persistent memory; the others, if any, are on a disk.
    pub(super) nvm_blocks: u64,
}

impl Raw {
    /// The disk on such a device.
    pub(super) fn disk(self, all: &Arc<dyn Device>) -> Arc<dyn Device> {
        let blocks = all.info().blocks - self.nvm_blocks;
        run_of(all, self.nvm_blocks, blocks)
    }

    /// The volume on such a device.
    ///
    /// # Errors
    /// Its media are not those of one volume.
    pub(super) fn volume(self, all: &Arc<dyn Device>) -> dure_fs::Result<Arc<dyn Device>> {
        if self.nvm_blocks == 0 || self.nvm_blocks == all.info().blocks {
            return Ok(all.clone());
        }
        self.joined(run_of(all, 0, self.nvm_blocks), self.disk(all))
    }

    /// The volume on these media.
    pub(super) fn joined(
        self,
        nvm: Arc<dyn Device>,
        disk: Arc<dyn Device>,
    ) -> dure_fs::Result<Arc<dyn Device>> {
        let media = [(nvm, "nvm"), (disk, "disk")];
        join(&media.map(|(device, path)| Member {
            device,
            path: path.to_owned(),
        }))
    }
}

fn run_of(all: &Arc<dyn Device>, first: u64, blocks: u64) -> Arc<dyn Device> {
    let parts = vec![(all.clone(), Lba::new(first), blocks)];
    share(LinearDevice::new(parts))
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
            random::pretend(Some(1));
            Base::make(media, &calls, journals)
        };
        let thread = thread::spawn_on("base", CoreId::new(0), make);
        thread.join().expect("making a volume does not panic")
    }

    fn make(media: On, calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        let (ram, media) = format(media, journals)?;
        let device = media.volume(&share(Arc::clone(&ram)))?;
        let stage = Stage::default();
        let fs = FileSystem::open(device, on_stage(&mount_options(), &stage))?;
        let mut history = History::default();
        let mut performer = Performer::new(fs.clone(), stage);
        for call in calls {
            performer.step(&Step::Call(*call))?;
            history.call(0, call);
        }
        drop(performer);
        fs.close()?;
        history.settle();
        Ok(Base::of(ram.snapshot(), history, media))
    }

    fn of(image: Image, history: History, media: Raw) -> Base {
        Base {
            digests: Digests::of(&image),
            image: Arc::new(image),
            history,
            media,
        }
    }

    /// Where its media lie on the device.
    pub(super) fn media(&self) -> Raw {
        self.media
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
    pub(super) fn crashed(image: &OverlayRam, tree: &Tree, media: Raw) -> Base {
        Base::of(image.snapshot(), History::of_tree(tree), media)
    }
}

/// A new volume in memory.
fn format(media: On, journals: u32) -> dure_fs::Result<(Arc<RamDevice>, Raw)> {
    let mut format = FormatOptions {
        journals: Some(journals),
        segment_blocks: Some(32),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let (nvm_blocks, disk_blocks) = match media {
        On::Disk => (0, VOLUME_BLOCKS),
        On::Nvm => (VOLUME_BLOCKS, 0),
        On::Hybrid(_) => (NVM_BLOCKS, VOLUME_BLOCKS),
    };
    let raw = Raw { nvm_blocks };
    let ram = Arc::new(RamDevice::new("base", nvm_blocks + disk_blocks));
    let all = share(Arc::clone(&ram));
    if disk_blocks == 0 {
        FileSystem::format(all, &format)?;
        return Ok((ram, raw));
    }
    if let On::Hybrid(node_log) = media {
        format.node_log = node_log;
        format.nvm = vec![NvmRegion {
            device: run_of(&all, 0, nvm_blocks),
            path: "nvm".to_owned(),
            node: 0,
        }];
    }
    FileSystem::format(raw.disk(&all), &format)?;
    Ok((ram, raw))
}
