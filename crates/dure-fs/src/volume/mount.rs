//! Mounting and unmounting.

use std::collections::BTreeSet;

use dure_block::Device;
use dure_journal::JournalId;
use dure_store::error::{Error, Result};
use dure_store::format::feature::Feature;
use dure_store::layout::{FormatOptions, Layout};
use dure_store::units::{BlockNo, Ino, to_usize};
use dure_store::{Above, Mount};
use dure_sync::atomic::AtomicU64;
use dure_sync::{Arc, CachePadded, CoreId, Weak};

use super::memory::Shares;
use super::quotas;
use super::{Background, FileSystem, MountOptions, PageCaching, Volume};
use crate::background::BackgroundWork;
use crate::background::commits::CommitThreads;
use crate::background::workers::Workers;
use crate::cleaner::{Cleaner, CleanerCounters};
use crate::directory::Directories;
use crate::directory::dentry_cache::DentryCache;
use crate::file::body::Body;
use crate::file::{Files, FilesOfInodes, Misses, PageCache, ReadAhead};
use crate::inode::{self, InodeRef, Inodes};
use crate::namespace::{Moves, Names, SymlinkCache};
use crate::xattr::Xattrs;

impl FileSystem {
    /// Makes a volume on `device`, destroying its content.
    ///
    /// # Errors
    /// `TooSmall`, `BadOption`, or a failed write.
    pub fn format(device: Arc<dyn Device>, options: &FormatOptions) -> Result<Layout> {
        dure_store::make_volume(device, options)
    }

    /// Lets the volume on `device`, which is not mounted, use all of it; the layouts before and
    /// after. A crash leaves the one or the other.
    ///
    /// # Errors
    /// `BadOption` when it was not unmounted, `TooSmall` when the device is not larger by what the
    /// new tables need, `Corrupt`, or a failed read or write: then the volume is as it was, or
    /// it has grown if what failed is the last write or its flush.
    pub fn grow(device: Arc<dyn Device>) -> Result<(Layout, Layout)> {
        dure_store::grow_volume(device)
    }

    /// The layout that [`FileSystem::grow`] would give a volume on a device of `blocks` blocks.
    ///
    /// # Errors
    /// `BadOption` for a volume that cannot grow, `TooSmall`.
    pub fn layout_grown(before: &Layout, blocks: u64) -> Result<Layout> {
        dure_store::grown(before, blocks)
    }

    /// Gives the volume on `device`, which is not mounted, those of `wanted` that it lacks; which. An
    /// older dure may not be able to use it any more.
    ///
    /// # Errors
    /// `BadOption` when it was not unmounted, or for a feature that cannot come so; `Unsupported`,
    /// `Corrupt`, or a failed read or write.
    pub fn turn_on(device: Arc<dyn Device>, wanted: &[Feature]) -> Result<Vec<Feature>> {
        dure_store::turn_on(device, wanted)
    }

    /// The layout that this volume would have on a device of `blocks` blocks; it has to be closed
    /// first.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`; as [`FileSystem::layout_grown`].
    pub fn grown(&self, blocks: u64) -> Result<Layout> {
        self.0.store.check_writable()?;
        dure_store::grown(&self.0.store.layout, blocks)
    }

    /// Mounts the volume on `device`; after a crash it recovers it first.
    ///
    /// # Errors
    /// `BadOption`, `NotDure`, `Unsupported`, `Corrupt`, `LogHole`, `Unlogged`, `TooSmall` when the
    /// device is shorter than the volume, or a failed read or write.
    pub fn open(device: Arc<dyn Device>, options: MountOptions) -> Result<FileSystem> {
        FileSystem::open_keeping(device, options, &BTreeSet::new()).map(|(fs, _)| fs)
    }

    /// Like [`FileSystem::open`], for a caller that knows users of inodes from an earlier mount:
    /// those of `keep` that have no name are not deleted before the returned pins are dropped.
    ///
    /// # Errors
    /// Those of [`FileSystem::open`].
    pub fn open_keeping(
        device: Arc<dyn Device>,
        mut options: MountOptions,
        keep: &BTreeSet<Ino>,
    ) -> Result<(FileSystem, Vec<InodeRef>)> {
        let said = options.said.clone();
        let explained = |error| said.explained(error);
        options.check().map_err(explained)?;
        options.read_only = options.is_read_only();
        let mount = Mount::begin(device, options.of_store())?;
        FileSystem::complete(mount, options, keep)
    }

    /// Mounts a snapshot of this volume, read-only, while the volume goes on. `options` say how much
    /// memory it may take; the snapshot cannot be deleted before all that uses it is dropped.
    ///
    /// # Errors
    /// `NoSnapshot`, `BadOption`, `Corrupt`, or a failed read.
    pub fn open_snapshot(&self, name: &str, options: MountOptions) -> Result<FileSystem> {
        let options = MountOptions {
            read_only: true,
            ..options
        };
        options
            .check()
            .map_err(|error| options.said.explained(error))?;
        let mount = self.0.store.snapshot(name, options.of_store())?;
        FileSystem::complete(mount, options, &BTreeSet::new()).map(|(fs, _)| fs)
    }

    fn complete(
        mut mount: Mount,
        options: MountOptions,
        keep: &BTreeSet<Ino>,
    ) -> Result<(FileSystem, Vec<InodeRef>)> {
        let said = options.said.clone();
        let explained = |error| said.explained(error);
        let pages = options.page_caching(mount.media()).map_err(explained)?;
        mount.set_durability(options.durability(pages).map_err(explained)?);
        if let Some(absorb) = options.absorb(mount.layout())? {
            mount.set_absorb(absorb);
        }
        let volume = Arc::new(Volume::on(mount, options, Body::of(pages))?);
        volume.store.attach(Box::new(AboveStore {
            files: Arc::downgrade(&volume.files),
            cleaner: Arc::downgrade(&volume.cleaner),
            workers: Arc::downgrade(&volume.background.workers),
        }));
        let mut kept = Vec::new();
        if !volume.options.read_only {
            volume.store.grow_to_least()?;
            quotas::begin(&volume)?;
            kept = volume.files.finish_orphans(keep)?;
            if volume.options.background == Background::Workers {
                BackgroundWork::start(&volume.background, volume.options.workers);
            }
        }
        Ok((FileSystem(volume), kept))
    }

    /// Unmounts: everything is written back and checkpointed, and the volume is marked clean. Later
    /// calls on any clone are refused as read-only.
    ///
    /// # Errors
    /// Whatever writing back, committing or the checkpoint reports; the volume is then as after a
    /// crash, with everything synced intact.
    pub fn close(&self) -> Result<()> {
        let volume = &self.0;
        volume.background.stop();
        if volume.store.is_closed() {
            return Ok(());
        }
        self.sync()?;
        let kept = quotas::keep(volume)?;
        volume
            .store
            .close_keeping(|| quotas::still_holds(volume, kept))
    }
}

impl Volume {
    /// Completes the mount, with empty caches.
    fn on(mount: Mount, options: MountOptions, body: Body) -> Result<Volume> {
        let journals = mount.layout().journals;
        let (cores, shares) = (to_usize(journals.into()), Shares::of(&options, journals));
        let pages = PageCache::new(cores, shares.pages, shares.logged_pages, shares.dirty_pages)
            .absorbing(options.page_cache == Some(PageCaching::Nvram));
        let store = Arc::new(mount.run(shares.of_store(), pages.frames())?);
        let inodes = Inodes::new(store.clone(), options.of_inodes(), shares.of_inodes(cores));
        let inodes = Arc::new(inodes);
        let workers = Arc::new(Workers::default());
        let files = Arc::new(Files {
            options: options.of_files(&store),
            misses: Misses::new(cores),
            read_ahead: ReadAhead::new(cores, shares.pages),
            store: store.clone(),
            inodes: inodes.clone(),
            workers: workers.clone(),
            body,
            pages,
        });
        let above: Box<dyn inode::Above> = Box::new(FilesOfInodes(Arc::downgrade(&files)));
        inodes.cache.attach(&inodes, &Arc::from(above));
        let directories = Arc::new(Directories {
            store: store.clone(),
            dentries: DentryCache::new(shares.table_bytes),
            rule: options.volume_rules.directories,
        });
        let xattrs = Arc::new(Xattrs {
            store: store.clone(),
            inodes: inodes.clone(),
            rule: options.volume_rules.attributes,
        });
        let names = Names {
            store: store.clone(),
            inodes: inodes.clone(),
            files: files.clone(),
            directories: directories.clone(),
            symlinks: SymlinkCache::new(shares.target_bytes),
            rename: CachePadded::default(),
            access_time: options.access_time,
            rule: options.volume_rules.attributes,
            moves: Moves::default(),
        };
        let cleaner = Arc::new(Cleaner {
            store: store.clone(),
            inodes: inodes.clone(),
            files: files.clone(),
            counters: CleanerCounters::default(),
        });
        let background = Arc::new(BackgroundWork {
            store: store.clone(),
            inodes: inodes.clone(),
            files: files.clone(),
            cleaner: cleaner.clone(),
            workers,
            order: options.order,
            commit_interval: options.commit_interval,
            handles: AtomicU64::new(0),
            records: options.records,
            commits: CommitThreads::default(),
        });
        Ok(Volume {
            options,
            store,
            inodes,
            directories,
            xattrs,
            files,
            names,
            cleaner,
            background,
        })
    }
}

/// What is above the store of a volume.
#[derive(Debug)]
struct AboveStore {
    files: Weak<Files>,
    cleaner: Weak<Cleaner>,
    workers: Weak<Workers>,
}

impl Above for AboveStore {
    fn find_home(&self, core: CoreId, block: BlockNo) -> Result<bool> {
        let gone = Error::NoSpace {
            what: "blocks of a volume that is no longer there",
        };
        self.cleaner
            .upgrade()
            .ok_or(gone)?
            .replace_block(core, block)
    }

    fn want_log_room(&self, journal: JournalId, checkpoints: i64) {
        if let Some(workers) = self.workers.upgrade() {
            workers.want_log_room(journal, checkpoints);
        }
    }

    fn want_memory_room(&self, core: CoreId, checkpoints: i64) {
        if let Some(workers) = self.workers.upgrade() {
            workers.want_memory_room(core, checkpoints);
        }
    }

    fn want_checkpoint_help(&self) {
        if let Some(workers) = self.workers.upgrade() {
            workers.want_checkpoint_help();
        }
    }

    fn free_reserved(&self) {
        if let Some(files) = self.files.upgrade() {
            // An error belongs to some other file: that file's fsync reports it.
            let _ = files.body.write_back_reserved(&files);
        }
    }
}
