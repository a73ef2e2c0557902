//! Answers to FUSE requests, in our own types.
//!
//! The kernel checks permissions (`default_permissions`) and keeps locks. The server pins unlinked
//! inodes, applies the umask where there is no default ACL, clears set-id bits of what is changed,
//! and gives answers that stay right although the kernel's write-back cache, if there is one, hides
//! data.

mod asking;
mod attributes;
mod data;
mod namespace;
mod open;
mod refused;
mod seek;
mod set_id;
mod snapshots;

pub use attributes::{Attr, SetAttr};
pub use data::Statistics;
pub use namespace::{Entry, Listed};
pub(crate) use open::ENTRY_SECONDS;
pub use set_id::Caller;
pub use snapshots::{SNAPSHOTS, SnapshotPlaces};

use std::collections::BTreeSet;
use std::time::Duration;

use dure_block::Device;
use dure_fs::units::Ino;
use dure_fs::{FileSystem, InodeRef, Layout, VolumeInfo};
use dure_fuse_wire::{Asks, Errno, Knows, Question};
use dure_sync::atomic::AtomicBool;
use dure_sync::{Arc, ProcessOnce, clock, thread};

use self::asking::TurnToAsk;
use self::refused::Refused;
use crate::GrowError;
use crate::MountSettings;
use crate::WriteCache;
use crate::coherence::Coherence;
use crate::kernel_cache::KernelCache;
use crate::nodes::{self, Unlinked};
use dure_fuse_wire::protocol::operation::Changes;
use rustix::mount::MountFlags;

/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// How long a request waits for deletions in progress; those of large files take longer, and free
/// blocks as they go.
const DELETIONS_WAIT: Duration = Duration::from_secs(5);

/// How long a waiter sleeps between two polls.
const LOOKS: Duration = Duration::from_millis(1);

/// The file system behind a mount.
#[derive(Debug)]
pub struct Server {
    volume: FileSystem,
    unlinked: Arc<Unlinked>,
    /// The process uses the volume, too.
    coherence: Option<Arc<Coherence>>,
    asks: TurnToAsk,
    uid: Option<u32>,
    gid: Option<u32>,
    /// Writes wait in the kernel's cache.
    kernel_collects: bool,
    /// What the kernel's cache may hold, if that can be said.
    kernel_cache: Option<KernelCache>,
    refused: Arc<Refused>,
    /// LSEEK was answered ENOSYS. Once is enough for the kernel: Relaxed.
    seeks_ended: AtomicBool,
    /// What is durable when a request is answered.
    durable: Durable,
    /// Shows snapshots, if anything does.
    snapshots: Option<Arc<dyn SnapshotPlaces>>,
}

/// What is durable when a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// What fsync and the like ask for.
    Asked,
    /// Changes of directories too (`dirsync`).
    Names,
    /// Every change (`sync`).
    All,
}

impl Durable {
    fn of(flags: MountFlags) -> Durable {
        if flags.contains(MountFlags::SYNCHRONOUS) {
            Durable::All
        } else if flags.contains(MountFlags::DIRSYNC) {
            Durable::Names
        } else {
            Durable::Asked
        }
    }
}

impl Server {
    /// Serves `volume`.
    #[must_use]
    pub fn new(volume: FileSystem, settings: &MountSettings) -> Server {
        Server {
            volume,
            unlinked: Arc::default(),
            coherence: None,
            asks: TurnToAsk::default(),
            uid: settings.uid,
            gid: settings.gid,
            kernel_collects: settings.write_cache == WriteCache::Back,
            kernel_cache: None,
            refused: Arc::default(),
            seeks_ended: AtomicBool::new(false),
            durable: Durable::of(settings.flags),
            snapshots: settings.snapshots.clone(),
        }
    }

    /// This server, with room for what the kernel collects.
    pub(crate) fn with(mut self, kernel_cache: Option<KernelCache>) -> Server {
        self.kernel_cache = kernel_cache;
        self
    }

    /// This server, of a volume that its process uses, too.
    pub(crate) fn coherent(mut self, coherence: Option<Arc<Coherence>>) -> Server {
        if let Some(coherence) = coherence {
            self.unlinked = coherence.unlinked();
            self.coherence = Some(coherence);
        }
        self
    }

    /// The volume as it is mounted now.
    #[must_use]
    pub fn volume(&self) -> &FileSystem {
        &self.volume
    }

    /// Closes the volume, lets it use all of `larger`, and mounts it again; the layouts before and
    /// after.
    ///
    /// # Errors
    /// Those of [`MountedVolume::grow`](crate::MountedVolume::grow).
    pub fn grow(&mut self, larger: Arc<dyn Device>) -> Result<(Layout, Layout), GrowError> {
        self.volume.grown(larger.info().blocks)?;
        self.anew(larger, FileSystem::grow)
    }

    /// Closes the volume, and mounts it again on its device.
    ///
    /// # Errors
    /// Those of [`MountedVolume::mount_again`](crate::MountedVolume::mount_again).
    pub fn remount(&mut self, device: Arc<dyn Device>) -> Result<(), GrowError> {
        self.anew(device, |_| Ok(()))
    }

    /// Closes the volume, lets `change` change it, and mounts it on `device`.
    fn anew<R>(
        &mut self,
        device: Arc<dyn Device>,
        change: impl FnOnce(Arc<dyn Device>) -> dure_fs::Result<R>,
    ) -> Result<R, GrowError> {
        // What fails here leaves the background work running; a close ends it first.
        self.volume.sync()?;
        self.volume.close()?;
        let changed = change(Arc::clone(&device));
        // If it has not grown, it is as it was, and is mounted all the same.
        let keep = self.unlinked.nodes().into_iter().map(nodes::ino_of);
        let (volume, kept) = match self.mount_again(device, changed.is_ok(), &keep.collect()) {
            Ok(mounted) => mounted,
            Err(error) => return Err(GrowError::NotMounted(changed.err().unwrap_or(error))),
        };
        // The pins of the closed volume delete nothing.
        self.unlinked.clear();
        kept.into_iter().for_each(|inode| self.unlinked.keep(inode));
        self.volume = volume;
        if let Some(cache) = &self.kernel_cache {
            cache.mounted_again(&self.volume);
        }
        Ok(changed?)
    }

    /// Mounts the closed volume, with the inodes of `keep` in use.
    fn mount_again(
        &self,
        device: Arc<dyn Device>,
        has_grown: bool,
        keep: &BTreeSet<Ino>,
    ) -> dure_fs::Result<(FileSystem, Vec<InodeRef>)> {
        if !has_grown {
            // Crash scenario without this: the flush of the new superblock failed; the mount writes
            // where that says, the device loses it, and the old one knows nothing of these writes.
            let found = VolumeInfo::read(Arc::clone(&device))?.layout.total_blocks;
            if found != self.volume.layout().total_blocks {
                let reason = "its new superblock may not be durable".to_owned();
                return Err(dure_fs::Error::Stopped { reason });
            }
        }
        FileSystem::open_keeping(device, self.volume.options().clone(), keep)
    }

    /// The inode of a node id: ESTALE when the number has another generation now, EROFS when it is
    /// none of the volume.
    fn inode(&self, node: u64) -> Answer<InodeRef> {
        if nodes::is_hidden(node) {
            return Err(libc::EROFS);
        }
        match self.volume.inode(nodes::ino_of(node)) {
            Ok(inode) if nodes::node_of(inode.ino(), inode.generation()) == node => Ok(inode),
            Ok(_) | Err(dure_fs::Error::NotFound) => Err(libc::ESTALE),
            Err(error) => Err(errno(error)),
        }
    }

    /// Whether writes wait in the kernel's cache.
    #[must_use]
    pub fn kernel_collects(&self) -> bool {
        self.kernel_collects
    }

    /// Whether anything that is not in memory has to be waited for.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        self.volume.reads_wait()
    }

    /// Whether the inode of a node has to be waited for.
    #[must_use]
    pub fn inode_waits(&self, node: u64) -> bool {
        self.volume.inode_waits(nodes::ino_of(node))
    }

    /// Whether a request about `name` in the directory has to wait for an entry or an inode.
    #[must_use]
    pub fn name_waits(&self, directory: u64, name: &[u8]) -> bool {
        self.inode_waits(directory)
            || self
                .inode(directory)
                .is_ok_and(|inode| self.volume.name_waits(&inode, name))
    }

    /// Whether a READ has to wait.
    #[must_use]
    pub fn read_waits(&self, node: u64, offset: u64, size: usize) -> bool {
        self.inode_waits(node)
            || self
                .inode(node)
                .is_ok_and(|inode| self.volume.read_waits(&inode, offset, size))
    }

    /// Whether a WRITE has to wait, or would be slowed down.
    #[must_use]
    pub fn write_waits(&self, node: u64, offset: u64, size: usize) -> bool {
        self.inode_waits(node)
            || self
                .inode(node)
                .is_ok_and(|inode| self.volume.write_waits(&inode, offset, size))
    }

    /// Whether an FSYNC or FSYNCDIR has to wait.
    #[must_use]
    pub fn fsync_waits(&self, node: u64) -> bool {
        self.inode_waits(node)
            || self
                .inode(node)
                .is_ok_and(|inode| self.volume.fsync_waits(&inode))
    }

    /// A request that is not the kernel's cache's found no room: what is kept for that cache becomes
    /// less.
    pub fn was_refused(&self) {
        if let Some(cache) = &self.kernel_cache {
            cache.was_refused(&self.volume);
        }
    }

    /// The kernel can be told by `asks` that pages were refused.
    pub(crate) fn tell_by(&self, asks: Asks) {
        match &self.coherence {
            Some(coherence) => coherence.begin(asks),
            None => self.refused.begin(asks),
        }
    }

    /// Whether write(2) to the file is to fail: pages of it were refused, and there is no room yet.
    #[must_use]
    pub fn refuses_writes(&self, node: u64) -> bool {
        if !self.refused.has(node) {
            return false;
        }
        let has_room = self.volume.statistics().blocks_available > 0;
        if has_room {
            self.refused.clear();
        }
        !has_room
    }

    /// How many bytes the kernel may collect, for which room is kept.
    pub(crate) fn kernel_cache_bytes(&self) -> Option<u64> {
        self.kernel_cache.as_ref().map(KernelCache::bytes)
    }

    /// Whether the change that a request asks for is to be durable when it is answered.
    #[must_use]
    pub fn settles(&self, changes: Option<Changes>) -> bool {
        match (self.durable, changes) {
            (Durable::Asked, _) | (_, None) => false,
            (Durable::Names, Some(changes)) => changes == Changes::Names,
            (Durable::All, Some(_)) => true,
        }
    }

    /// The kernel gives back some lookups of `node`; `knows` asks the kernel whether it still has
    /// the inode. If not, an inode without a name is released.
    pub fn forget(&self, node: u64, knows: Knows<'_>) {
        if self.unlinked.keeps(node) && !knows(Question::Inode(node)) {
            self.unlinked.let_go(node);
        }
    }

    /// Releases unlinked inodes that the kernel no longer has, although no FORGET of them was read
    /// yet, and waits for deletions in progress. Returns whether there were any, or may have been.
    ///
    /// For an inode that the kernel is evicting, `knows` returns after the eviction, which waits
    /// for WRITEs of its pages. If another request asks meanwhile, this one only waits.
    pub fn finish_deletions(&self, knows: Knows<'_>) -> bool {
        let Some(asking) = self.asks.begin() else {
            self.await_deletions();
            return true;
        };
        let mut any = false;
        for node in self.unlinked.nodes() {
            if !knows(Question::Inode(node)) {
                self.unlinked.let_go(node);
                any = true;
            }
        }
        drop(asking);
        self.await_deletions() || any
    }

    /// Waits until the only unnamed inodes are those that the kernel still has, but not much longer
    /// than `DELETIONS_WAIT`. Returns whether there were others.
    fn await_deletions(&self) -> bool {
        let others = || self.volume.nameless_inodes() > self.unlinked.nameless();
        let any = others();
        wait_while(DELETIONS_WAIT, others);
        any
    }

    /// Keeps an inode whose last name has just gone until the kernel has forgotten it.
    fn keep_unlinked(&self, inode: Option<InodeRef>) {
        if let Some(inode) = inode {
            self.unlinked.keep(inode);
        }
    }

    /// Drops all pins: the connection to the kernel has ended.
    pub fn forget_all(&self) {
        self.unlinked.clear();
        self.refused.end();
        if let Some(coherence) = &self.coherence {
            coherence.end();
        }
    }
}

/// Polls while `so` holds, but not much longer than `limit`. Returns whether it still held then.
fn wait_while(limit: Duration, so: impl Fn() -> bool) -> bool {
    let begin = clock::monotonic_ns();
    while so() {
        if Duration::from_nanos(clock::monotonic_ns() - begin) > limit {
            return true;
        }
        thread::sleep(LOOKS);
    }
    false
}

/// Told of errors that are answered with EIO.
static REPORT: ProcessOnce<fn(&dure_fs::Error)> = ProcessOnce::new();

/// From now on, `report` is told of every error of the process's mounts that is damage or a failure
/// of the device: the kernel gets no more than EIO. Only the first call counts.
pub fn report_errors(report: fn(&dure_fs::Error)) {
    let _ = REPORT.set(report);
}

fn errno(error: dure_fs::Error) -> Errno {
    let errno = error.errno();
    if errno == libc::EIO
        && let Some(report) = REPORT.get()
    {
        report(&error);
    }
    errno
}
