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

use dure_fs::{FileSystem, InodeRef};

use crate::mount::MountSettings;
use crate::nodes::{self, Unlinked};
use crate::protocol::operation::Changes;
use crate::transport::negotiate::WriteCache;
use rustix::mount::MountFlags;

/// An errno.
pub type Errno = i32;
/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// The file system behind a mount.
#[derive(Debug)]
pub struct Server {
    volume: FileSystem,
    unlinked: Unlinked,
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

    /// Keeps an inode whose last name may just have gone until the kernel has forgotten it.
    fn keep_unlinked(&self, inode: Option<InodeRef>) {
        if let Some(inode) = inode.filter(InodeRef::is_unlinked) {
            self.unlinked.keep(inode);
        }
    }

    /// The kernel is gone: nothing is known any more.
    pub fn forget_all(&self) {
        self.unlinked.clear();
    }
}

fn errno(error: dure_fs::Error) -> Errno {
    error.errno()
}
