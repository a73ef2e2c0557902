//! Mounting and unmounting.

use std::collections::BTreeSet;

use dure_block::Device;
use dure_journal::JournalId;
use dure_store::error::{Error, Result};
use dure_store::layout::{FormatOptions, Layout};
use dure_store::units::{BlockNo, Ino, to_usize};
use dure_store::{Above, Mount};
use dure_sync::range_lock::WordBudget;
use dure_sync::{Arc, CachePadded, CoreId, Mutex, Weak};

use super::memory::Shares;
use super::{FileSystem, MountOptions, PageCaching, Volume, VolumeCounters, background};
use crate::directory::dentry_cache::DentryCache;
use crate::directory::last_listed::LastListed;
use crate::file::body::Body;
use crate::file::{PageCache, ReadAhead};
use crate::inode::{AccessTimes, AttributeCache, InodeCache, InodePools, InodeRef, Orphans};
use crate::namespace::SymlinkCache;

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

    /// The same of this volume, which has to be closed first.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`; as [`FileSystem::layout_grown`].
    pub fn grown(&self, blocks: u64) -> Result<Layout> {
        self.0.check_writable()?;
        dure_store::grown(&self.0.layout, blocks)
    }

    /// Mounts the volume on `device`; after a crash it recovers it first.
    ///
    /// # Errors
    /// `BadOption`, `NotDure`, `Unsupported`, `Corrupt`, `LogHole`, `Unlogged`, `TooSmall` when the
    /// device is shorter than the volume, or a failed read or write.
    pub fn open(device: Arc<dyn Device>, options: MountOptions) -> Result<FileSystem> {
        FileSystem::open_keeping(device, options, &BTreeSet::new()).map(|(fs, _)| fs)
    }

    /// As [`FileSystem::open`], for a caller that knows users of inodes from an earlier mount: those
    /// of `keep` that have no name are not deleted before the returned pins are dropped.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn open_keeping(
        device: Arc<dyn Device>,
        mut options: MountOptions,
        keep: &BTreeSet<Ino>,
    ) -> Result<(FileSystem, Vec<InodeRef>)> {
        options.check()?;
        options.read_only = options.is_read_only();
        let mut mount = Mount::begin(device, options.of_store())?;
        let pages = options.page_caching(mount.media())?;
        mount.set_durability(options.durability(pages)?);
        if let Some(absorb) = options.absorb(mount.layout())? {
            mount.set_absorb(absorb);
        }
        let volume = Arc::new(Volume::on(mount, options, Body::of(pages))?);
        volume.inodes.attach(&volume);
        volume.attach(Box::new(Files(Arc::downgrade(&volume))));
        let mut kept = Vec::new();
        if !volume.options.read_only {
            volume.grow_to_least()?;
            kept = volume.finish_orphans(keep)?;
            background::start(&volume);
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
        if volume.is_closed() {
            return Ok(());
        }
        self.sync()?;
        volume.store.close()
    }
}

impl Volume {
    /// Completes the mount, with empty caches.
    fn on(mount: Mount, options: MountOptions, body: Body) -> Result<Volume> {
        let journals = mount.layout().journals;
        let cores = to_usize(u64::from(journals));
        let shares = Shares::of(&options, journals);
        let (pages_max, logged) = (shares.pages, shares.logged_pages);
        let absorbs = options.page_cache == Some(PageCaching::Nvram);
        let pages = PageCache::new(cores, pages_max, logged, shares.dirty_pages).absorbing(absorbs);
        let store = mount.run(shares.of_store(), pages.frames())?;
        let counters = VolumeCounters::default();
        counters.inodes.add(store.inodes_found);
        Ok(Volume {
            store,
            body,
            pages,
            last_listed: LastListed::new(cores),
            read_ahead: ReadAhead::new(cores, pages_max),
            inodes: InodeCache::new(shares.inodes, cores),
            dentries: DentryCache::new(shares.table_bytes),
            attribute_cache: Arc::new(AttributeCache::new(shares.table_bytes)),
            symlinks: SymlinkCache::new(shares.target_bytes),
            inode_pools: InodePools::new(cores, options.alloc),
            orphans: Orphans::new(cores),
            access_times: AccessTimes::new(cores),
            range_words: Arc::new(WordBudget::of_bytes(shares.range_bytes)),
            options,
            rename: CachePadded::new(Mutex::new(())),
            counters,
            background: background::Workers::default(),
        })
    }
}

/// The files of a volume, as its store calls them.
#[derive(Debug)]
struct Files(Weak<Volume>);

impl Above for Files {
    fn find_home(&self, core: CoreId, block: BlockNo) -> Result<bool> {
        let gone = Error::NoSpace {
            what: "blocks of a volume that is no longer there",
        };
        self.0.upgrade().ok_or(gone)?.replace_block(core, block)
    }

    fn want_log_room(&self, journal: JournalId) {
        if let Some(volume) = self.0.upgrade() {
            volume.want_log_room(journal);
        }
    }

    fn want_memory_room(&self, core: CoreId) {
        if let Some(volume) = self.0.upgrade() {
            volume.want_memory_room(core);
        }
    }

    fn want_checkpoint_help(&self) {
        if let Some(volume) = self.0.upgrade() {
            volume.want_checkpoint_help();
        }
    }

    fn free_reserved(&self) {
        if let Some(volume) = self.0.upgrade() {
            // An error belongs to some other file: that file's fsync reports it.
            let _ = volume.body.write_back_reserved(&volume);
        }
    }
}
