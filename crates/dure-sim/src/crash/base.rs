//! The volume that workloads run on: a tree, made once and never written.
//!
//! **Structure.** An image, the digests of its blocks, and the history of what made it.
//! **Invariants.** Made on one core with a fixed time, so it is the same each time.

use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::share;
use dure_fs::FileSystem;
use dure_sync::clock::pretend_wall;
use dure_sync::{Arc, CoreId, random, thread};

use super::call::{Call, Step};
use super::content::Digests;
use super::history::History;
use super::options::{START, mount_options, on_stage};
use super::perform::{Performer, Stage};
use super::tree::Tree;
use crate::media::{On, Raw, Sizes, format};

/// Blocks of the volume.
pub const VOLUME_BLOCKS: u64 = 1536;

/// A volume with a tree, unmounted.
#[derive(Debug)]
pub struct Base {
    image: Arc<Image>,
    /// The digests of the image.
    digests: Digests,
    history: History,
    media: Raw,
}

/// Blocks of persistent memory of a volume that has a disk, too.
const NVM_BLOCKS: u64 = 896;

impl Base {
    /// Makes a volume and, on it, what `calls` make.
    ///
    /// # Errors
    /// Those of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn new(calls: &[Call]) -> dure_fs::Result<Base> {
        Base::with_journals(calls, 2)
    }

    /// Like [`Base::new`], with so many journals.
    ///
    /// # Errors
    /// Those of the file system.
    ///
    /// # Panics
    /// If making it does.
    pub fn with_journals(calls: &[Call], journals: u32) -> dure_fs::Result<Base> {
        Base::on(On::Disk, calls, journals)
    }

    /// Like [`Base::with_journals`], on such media.
    ///
    /// # Errors
    /// Those of the file system.
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
        let sizes = Sizes {
            blocks: VOLUME_BLOCKS,
            nvm_blocks: NVM_BLOCKS,
            journals,
        };
        let (ram, media) = format(media, sizes)?;
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
