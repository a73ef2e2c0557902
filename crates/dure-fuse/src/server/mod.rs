//! Answers to FUSE requests, in our own types: what the kernel asks, what the file system says.
//!
//! Permissions are the kernel's business (`default_permissions`); locks too. What is ours: lookup
//! counts, the umask where no default ACL rules, set-id bits of what is changed, and answers that
//! are right although the kernel's write-back cache hides data, if there is one.

mod attributes;
mod data;
mod namespace;
mod set_id;

pub use attributes::{Attr, SetAttr};
pub use data::Statistics;
pub use namespace::{Entry, Listed};
pub use set_id::Caller;

use std::time::Duration;

use dure_fs::{FileSystem, InodeRef};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{clock, thread};

use crate::mount::MountSettings;
use crate::nodes::{self, Unlinked};
use crate::protocol::operation::Changes;
use crate::transport::negotiate::WriteCache;
use rustix::mount::MountFlags;

/// An errno.
pub type Errno = i32;
/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// How long a request waits for deletions under way: those of large files go on for longer, and
/// free blocks as they do.
const DELETIONS_WAIT: Duration = Duration::from_secs(5);

/// How long to wait while another request asks the kernel, which may wait for this worker.
const ANOTHER_ASKS: Duration = Duration::from_millis(100);

/// How often who waits looks.
const LOOKS: Duration = Duration::from_millis(1);

/// The file system behind a mount.
#[derive(Debug)]
pub struct Server {
    volume: FileSystem,
    unlinked: Unlinked,
    /// Somebody asks the kernel what it knows of [`Unlinked`].
    asks: AtomicBool,
    uid: Option<u32>,
    gid: Option<u32>,
    write_cache: WriteCache,
    /// What is durable when a request is answered.
    durable: Durable,
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
            unlinked: Unlinked::default(),
            asks: AtomicBool::new(false),
            uid: settings.uid,
            gid: settings.gid,
            write_cache: settings.write_cache,
            durable: Durable::of(settings.flags),
        }
    }

    /// The inode of a node id: ESTALE when that life of the number is over.
    fn inode(&self, node: u64) -> Answer<InodeRef> {
        match self.volume.inode(nodes::ino_of(node)) {
            Ok(inode) if nodes::node_of(inode.ino(), inode.generation()) == node => Ok(inode),
            Ok(_) | Err(dure_fs::Error::NotFound) => Err(libc::ESTALE),
            Err(error) => Err(errno(error)),
        }
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

    /// The kernel gives back some lookups of `node`; `knows` asks it whether it has others. An
    /// inode without a name goes when it has none.
    pub fn forget(&self, node: u64, knows: impl FnOnce(u64) -> bool) {
        if self.unlinked.keeps(node) && !knows(node) {
            self.unlinked.let_go(node);
        }
    }

    /// Deletes what nobody has open any more although no FORGET of it was read yet, and waits for
    /// what is being deleted. Whether there was anything, or may have been.
    ///
    /// The kernel answers `knows` for an inode that it is dropping when it has dropped it, and that
    /// waits for WRITEs of its pages. So only one caller asks at a time, which leaves the other
    /// workers to answer those, and none for such a WRITE.
    pub fn finish_deletions(&self, knows: &dyn Fn(u64) -> bool) -> bool {
        if self.asks.swap(true, Ordering::Acquire) {
            // Acquire: what the other has let go of counts as without a name, but not as kept.
            wait_while(ANOTHER_ASKS, || self.asks.load(Ordering::Acquire));
            self.await_deletions();
            return true;
        }
        let mut any = false;
        for node in self.unlinked.nodes() {
            if !knows(node) {
                self.unlinked.let_go(node);
                any = true;
            }
        }
        // Release: pairs with the Acquire of who waits for this.
        self.asks.store(false, Ordering::Release);
        self.await_deletions() || any
    }

    /// Waits until all inodes without a name are such that the kernel knows, but not much longer
    /// than `DELETIONS_WAIT`. Whether there were others.
    fn await_deletions(&self) -> bool {
        let others = || self.volume.nameless_inodes() > self.unlinked.nameless();
        wait_while(DELETIONS_WAIT, others)
    }

    /// Keeps an inode whose last name has just gone until the kernel has forgotten it.
    fn keep_unlinked(&self, inode: Option<InodeRef>) {
        if let Some(inode) = inode {
            self.unlinked.keep(inode);
        }
    }

    /// The kernel is gone: nothing is known any more.
    pub fn forget_all(&self) {
        self.unlinked.clear();
    }
}

/// Looks again and again while `so`, but not much longer than `limit`. Whether it was so at all.
fn wait_while(limit: Duration, so: impl Fn() -> bool) -> bool {
    let begin = clock::monotonic_ns();
    let mut any = false;
    while so() {
        any = true;
        if Duration::from_nanos(clock::monotonic_ns() - begin) > limit {
            break;
        }
        thread::sleep(LOOKS);
    }
    any
}

fn errno(error: dure_fs::Error) -> Errno {
    error.errno()
}
