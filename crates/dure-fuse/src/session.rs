//! A volume that is mounted: what is asked of the kernel for it.

use std::path::Path;

use dure_fs::{Durability, FileSystem};
use dure_fuse_wire::mount::flags;
use dure_fuse_wire::protocol::opcode::init;
use dure_fuse_wire::transport::buffer::{self, IO_BYTES};
use dure_fuse_wire::transport::{crew, uring};
use dure_fuse_wire::{Collects, Features, MountError, RingPolicy, Settings, Transport, WriteCache};
use dure_sync::Arc;
use rustix::mount::MountFlags;

use crate::coherence::Coherence;
use crate::gate::MountedVolume;
use crate::kernel_cache::{KernelCache, SMALLEST};
use crate::server::SnapshotPlaces;

/// Clearing set-id bits is the server's task: otherwise the kernel would ask for an attribute
/// before each write(2). Offered by every kernel that is served.
const NEEDED: u32 = init::HANDLE_KILLPRIV_V2;

/// What dure takes if it is offered. Locks are left to the kernel, as every caller comes through
/// this one mount; splicing buys nothing for data that the processor checksums anyway. Not
/// `READDIRPLUS_AUTO`: the kernel would ask for the attributes of a listing's first part only, and
/// then for those of each name beyond; it keeps listings, so it asks for each once. Not
/// `ASYNC_DIO`: a buffered read may put the old content of a page in the kernel's cache while an
/// asynchronous direct write of it is in flight, and the kernel does not invalidate it.
const WANTED: u32 = init::ASYNC_READ
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::EXPORT_SUPPORT
    | init::NO_OPEN_SUPPORT
    | init::NO_OPENDIR_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::CACHE_SYMLINKS;

/// What of this does not go with changes that do not come through the kernel: it is to ask at each
/// open(2).
const NEEDS_ALL_CHANGES: u32 = init::NO_OPEN_SUPPORT | init::NO_OPENDIR_SUPPORT;

/// What of the kernel's offer is taken for a volume that its process uses, too.
const COHERENT: Features = Features {
    needed: NEEDED,
    wanted: WANTED & !NEEDS_ALL_CHANGES,
    wanted_more: init::EXT_DIRECT_IO_ALLOW_MMAP,
    io_bytes: IO_BYTES,
};

/// What of the kernel's offer is taken, whichever cache a write(2) fills.
pub const FEATURES: Features = Features {
    needed: NEEDED,
    wanted: WANTED,
    wanted_more: 0,
    io_bytes: IO_BYTES,
};

/// Settings of a mount.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// Other users may use the mount (needs root, or `user_allow_other` in fuse.conf).
    pub allow_other: bool,
    /// What mount(8) calls generic options: [`flags`].
    pub flags: MountFlags,
    /// Mount as `fuseblk`: the source is a block device, which the kernel claims; only such mounts
    /// are sent FUSE_SYNCFS, so that syncfs(2) and sync(1) make everything durable.
    pub block_device: bool,
    /// Which cache takes the data of a write(2).
    pub write_cache: WriteCache,
    /// How requests come from the kernel, where it offers that.
    pub transport: Transport,
    /// How the threads of rings run.
    pub ring_policy: RingPolicy,
    /// Every file appears to belong to this user, and cannot be given to another.
    pub uid: Option<u32>,
    /// Every file appears to belong to this group, and cannot be given to another.
    pub gid: Option<u32>,
    /// Threads that answer requests, at least 1, not counting those that wait for the device;
    /// `None`: one per core and one to spare.
    pub workers: Option<usize>,
    /// Shows the snapshots of the volume, below `.snapshots` of the mount.
    pub snapshots: Option<Arc<dyn SnapshotPlaces>>,
}

impl Default for MountSettings {
    fn default() -> Self {
        MountSettings {
            source: "dure".into(),
            allow_other: false,
            flags: flags::DEFAULT,
            block_device: false,
            write_cache: WriteCache::Auto,
            // By figures: docs/design/mount.md.
            transport: Transport::Uring,
            ring_policy: RingPolicy::default(),
            uid: None,
            gid: None,
            workers: None,
            snapshots: None,
        }
    }
}

/// Why the kernel had better not collect the writes of a mount, unless the user asks for it.
fn unfit_to_collect(volume: &FileSystem) -> Option<&'static str> {
    if volume.durability() == Durability::Strict {
        return Some("each call is durable when it returns (durability=strict)");
    }
    if volume.has_quotas() {
        return Some("write(2) is to say that a quota is used up");
    }
    let is_small = volume.statistics().blocks < SMALLEST;
    is_small.then_some("the volume is too small to keep room for it")
}

/// A mount that answers requests while [`Session::run`] runs.
#[derive(Debug)]
pub struct Session {
    volume: MountedVolume,
    write_cache: WriteCache,
    writes_through: Option<String>,
    wire: dure_fuse_wire::Session,
}

impl Session {
    /// Mounts `volume` on the directory `at`.
    ///
    /// # Errors
    /// [`MountError`], naming the path and what to do.
    pub fn mount(
        volume: FileSystem,
        at: &Path,
        settings: &MountSettings,
    ) -> Result<Session, MountError> {
        Session::of((volume, None), at, settings)
    }

    /// Mounts a volume that the process goes on to use, and tells `coherence` of it.
    ///
    /// # Errors
    /// [`MountError`], naming the path and what to do.
    pub(crate) fn coherent(
        volume: FileSystem,
        coherence: &Arc<Coherence>,
        (at, settings): (&Path, &MountSettings),
    ) -> Result<Session, MountError> {
        let settings = MountSettings {
            write_cache: WriteCache::Through,
            ..settings.clone()
        };
        Session::of((volume, Some(Arc::clone(coherence))), at, &settings)
    }

    fn of(
        (volume, coherence): (FileSystem, Option<Arc<Coherence>>),
        at: &Path,
        settings: &MountSettings,
    ) -> Result<Session, MountError> {
        let defaults = Settings::default();
        let cache_bytes = volume.cache_bytes();
        let unfit = unfit_to_collect(&volume);
        let write_cache = match settings.write_cache {
            WriteCache::Auto if unfit.is_some() => WriteCache::Through,
            wanted => wanted,
        };
        let wire = Settings {
            source: settings.source.clone(),
            subtype: "dure".into(),
            allow_other: settings.allow_other,
            flags: settings.flags,
            block_device: settings.block_device,
            features: Features {
                io_bytes: buffer::io_bytes(cache_bytes),
                ..coherence.as_ref().map_or(FEATURES, |_| COHERENT)
            },
            write_cache,
            transport: settings.transport,
            workers: settings.workers.unwrap_or(defaults.workers),
            stand_ins: crew::stand_ins(cache_bytes),
            depth: uring::depth(cache_bytes, dure_sync::core_count()),
            ring_policy: settings.ring_policy,
        };
        let (wire, collects) = dure_fuse_wire::Session::mount(at, &wire)?;
        let mut settings = settings.clone();
        let (kernel_cache, why) = match collects {
            Collects::Kernel(limit) => {
                settings.write_cache = WriteCache::Back;
                (limit.map(|limit| KernelCache::new(limit, &volume)), None)
            }
            Collects::Server(why) => {
                let why = why.or(unfit.map(str::to_owned));
                let nobody_asked = settings.write_cache == WriteCache::Auto;
                settings.write_cache = WriteCache::Through;
                (None, why.filter(|_| nobody_asked))
            }
        };
        Ok(Session {
            wire,
            write_cache: settings.write_cache,
            writes_through: why,
            volume: MountedVolume::served(volume, &settings, kernel_cache, coherence),
        })
    }

    /// Which cache a write(2) fills: never `Auto`.
    #[must_use]
    pub fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    /// Why it is not the kernel's, if the user has not asked for this.
    #[must_use]
    pub fn writes_through(&self) -> Option<&str> {
        self.writes_through.as_deref()
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.wire.path()
    }

    /// How requests come from the kernel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.wire.transport()
    }

    /// Why they do not come as the settings ask: a sentence that says what to do.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.wire.fallback()
    }

    /// The volume that is mounted.
    #[must_use]
    pub fn volume(&self) -> MountedVolume {
        self.volume.clone()
    }

    /// Answers requests until the directory is unmounted.
    ///
    /// # Errors
    /// `Serve` when the connection to the kernel fails.
    pub fn run(self) -> Result<(), MountError> {
        let served = self.wire.run(Arc::clone(&self.volume.0));
        // The connection has ended: the kernel can no longer ask for the unlinked inodes it had
        // open.
        self.volume.0.forget_all();
        served
    }
}
