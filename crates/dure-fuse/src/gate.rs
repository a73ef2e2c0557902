//! The volume behind a mount can be mounted anew while requests wait: so it grows.
//!
//! **Problem.** The tables of a volume have their place and size from its superblock, which all of a
//! mounted store relies on; but its user wants more room without closing any file. **Structure.**
//! Requests hold [`Gate`] shared while they are answered; a growth holds it exclusively, while it
//! closes the volume, grows it as one that is not mounted, and mounts it again. The kernel notices
//! nothing: a node id is an inode number and its generation ([`crate::nodes`]), a position in a
//! directory is a hash. What the server knows besides are the inodes without a name, and the new
//! mount keeps them.
//!
//! **Invariants.** No request fails unless the device does ([`GrowError`]), and none is lost. A
//! request does not wait while the growth only waits, if another request that is being answered may
//! wait for it (a WRITE of the kernel's cache): the growth takes the gate only when no request
//! holds it, and gives up after `PATIENCE`.
//!
//! **On a crash** the volume is closed, grown or mounted again, and each of these can be cut anywhere
//! (`dure_store::store::resize`). Inodes without a name have their orphan slots all the time; after
//! the crash they are not in use, and the next mount deletes them.

use std::time::Duration;

use dure_block::Device;
use dure_fs::{Error, FileSystem, Layout};
use dure_fuse_wire::protocol::{Operation, Request};
use dure_fuse_wire::{Asks, Knows, Outcome, Reply, Service};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Mutex, PerCoreReadGuard, PerCoreRwLock, RwLockWriteGuard, clock, thread};

use crate::MountSettings;
use crate::coherence::Coherence;
use crate::kernel_cache::KernelCache;
use crate::server::Server;

/// Rank of the gate: requests hold it while they take all other locks.
const GATE: u8 = 10;
/// Rank of the mounted volume; no lock is taken while it is held.
const CURRENT: u8 = 18;
/// How long a growth waits for requests to end, and lets no others begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a waiting task sleeps between two looks.
const LOOKS: Duration = Duration::from_millis(1);

/// A [`Server`], between requests and growths.
#[derive(Debug)]
pub struct Gate {
    server: PerCoreRwLock<GATE, Server>,
    /// A growth waits for the gate: requests wait in front of it.
    wanted: AtomicBool,
    /// The volume as it was mounted last: to be had also while a growth waits for its device.
    current: Mutex<CURRENT, FileSystem>,
}

/// Why a mounted volume has not grown, or cannot be used as before.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The mount is as it was.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The volume is closed. Reads go on, nothing is changed any more, and all that was done is
    /// durable. It has the old size or the new one.
    #[error(
        "{0}; the volume could not be mounted again and is read-only now, with nothing lost: look at the \
         device, then `dure umount`, `dure check` (`dure info` tells its size) and mount it"
    )]
    NotMounted(#[source] Error),
}

/// The volume of a mount, for callers other than the kernel.
#[derive(Debug, Clone)]
pub struct MountedVolume(pub(crate) Arc<Gate>);

impl MountedVolume {
    /// A volume whose requests come through a [`Gate`] that is to be served.
    #[must_use]
    pub fn new(volume: FileSystem, settings: &MountSettings) -> MountedVolume {
        MountedVolume::served(volume, settings, None, None)
    }

    /// Like [`MountedVolume::new`], with room for what the kernel collects, and for a process that uses
    /// it, too.
    pub(crate) fn served(
        volume: FileSystem,
        settings: &MountSettings,
        kernel_cache: Option<KernelCache>,
        coherence: Option<Arc<Coherence>>,
    ) -> MountedVolume {
        let server = Server::new(volume.clone(), settings);
        let server = server.with(kernel_cache).coherent(coherence);
        MountedVolume(Arc::new(Gate {
            current: Mutex::new(volume),
            server: PerCoreRwLock::new(server),
            wanted: AtomicBool::new(false),
        }))
    }

    /// The volume as it is mounted now. A growth closes it, and mounts it anew.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.0.current.lock().clone()
    }

    /// How many bytes the kernel may collect of it, for which room is kept; `None`: it collects none,
    /// or it is unknown how many.
    #[must_use]
    pub fn kernel_cache_bytes(&self) -> Option<u64> {
        self.0.server.read().kernel_cache_bytes()
    }

    /// Whether writes wait in the kernel's cache; nothing changes that while it is mounted.
    #[must_use]
    pub fn kernel_collects(&self) -> bool {
        self.0.server.read().kernel_collects()
    }

    /// Closes the volume and mounts it again on `device`, which is its own: for what counts from a mount
    /// on. Requests wait meanwhile, as for [`MountedVolume::grow`].
    ///
    /// # Errors
    /// Those of [`MountedVolume::grow`].
    pub fn mount_again(&self, device: Arc<dyn Device>) -> Result<(), GrowError> {
        let mut server = self.0.exclude()?;
        let mounted = server.remount(device);
        let before = std::mem::replace(&mut *self.0.current.lock(), server.volume().clone());
        drop(server);
        drop(before);
        mounted
    }

    /// Lets the volume use all of `larger`, which is its device with more blocks; the layouts before
    /// and after. Requests wait meanwhile: as long as it takes to write back, and to mount.
    ///
    /// # Errors
    /// `Refused` as [`FileSystem::grow`], and with `BadOption` when requests do not end; `NotMounted`
    /// if the volume could be closed and then not be mounted again.
    pub fn grow(&self, larger: Arc<dyn Device>) -> Result<(Layout, Layout), GrowError> {
        let mut server = self.0.exclude()?;
        let grown = server.grow(larger);
        let before = std::mem::replace(&mut *self.0.current.lock(), server.volume().clone());
        drop(server);
        drop(before);
        grown
    }
}

impl Gate {
    /// Whether the request has to wait in front of the gate.
    fn keeps_out(&self, request: &Request<'_>) -> bool {
        let is_awaited = matches!(request.operation, Operation::Write { cached: true, .. });
        // Relaxed: a request that sees it too late is waited for.
        self.wanted.load(Ordering::Relaxed) && !is_awaited
    }

    /// Access of a request.
    fn enter(&self, request: &Request<'_>) -> PerCoreReadGuard<'_, GATE, Server> {
        while self.keeps_out(request) {
            thread::sleep(LOOKS);
        }
        self.server.read()
    }

    /// Access of a request, if it need not wait.
    fn try_enter(&self, request: &Request<'_>) -> Option<PerCoreReadGuard<'_, GATE, Server>> {
        match self.keeps_out(request) {
            true => None,
            false => self.server.try_read(),
        }
    }

    /// Exclusive access, when all requests have ended.
    fn exclude(&self) -> Result<RwLockWriteGuard<'_, GATE, Server>, Error> {
        let begin = clock::monotonic_ns();
        self.wanted.store(true, Ordering::Relaxed);
        let closed = loop {
            // Not `write`, which would keep out the request that another one waits for.
            if let Some(server) = self.server.try_write() {
                break Ok(server);
            }
            if Duration::from_nanos(clock::monotonic_ns() - begin) > PATIENCE {
                break Err(Error::BadOption {
                    option: "mount",
                    why: "requests of the mount do not end; see `dure top`, and try again".into(),
                });
            }
            thread::sleep(LOOKS);
        };
        self.wanted.store(false, Ordering::Relaxed);
        closed
    }

    /// The connection to the kernel has ended.
    pub(crate) fn forget_all(&self) {
        self.server.read().forget_all();
    }
}

impl Service for Gate {
    fn begin(&self, asks: Asks) {
        self.server.read().begin(asks);
    }

    fn answer(&self, request: &Request<'_>, knows: Knows<'_>, reply: &mut Reply) -> Outcome {
        self.enter(request).answer(request, knows, reply)
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        let server = self.try_enter(request);
        server.is_none_or(|server| server.may_wait(request))
    }

    fn answer_promptly(&self, request: &Request<'_>, reply: &mut Reply) -> Option<Outcome> {
        self.try_enter(request)?.answer_promptly(request, reply)
    }
}

#[cfg(test)]
mod tests;
