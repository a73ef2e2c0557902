//! Answers to FUSE requests, in our own types: what the kernel asks, what the file system says.
//!
//! Permissions are the kernel's business (`default_permissions`); locks too. What is ours: lookup
//! counts, the umask where no default ACL rules, and the write-back cache's rules for times.

mod attributes;
mod data;
mod namespace;

pub use attributes::{Attr, SetAttr};
pub use data::Statistics;
pub use namespace::{Entry, Listed};

use dure_fs::units::Ino;
use dure_fs::{FileSystem, InodeRef};

use crate::mount::MountSettings;
use crate::nodes::NodeTable;

/// An errno.
pub type Errno = i32;
/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// The file system behind a mount.
#[derive(Debug)]
pub struct Server {
    volume: FileSystem,
    nodes: NodeTable,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Server {
    /// Serves `volume`.
    #[must_use]
    pub fn new(volume: FileSystem, settings: &MountSettings) -> Server {
        let nodes = NodeTable::new(dure_sync::core_count());
        Server {
            volume,
            nodes,
            uid: settings.uid,
            gid: settings.gid,
        }
    }

    /// The inode of a node id. The kernel names only nodes it knows, which are pinned.
    fn inode(&self, node: u64) -> Answer<InodeRef> {
        self.volume.inode(Ino(node)).map_err(|error| error.errno())
    }

    /// The kernel forgets `count` lookups of `node`.
    pub fn forget(&self, node: u64, count: u64) {
        self.nodes.forget(node, count);
    }

    /// Lookups of `node` the kernel has not yet given back.
    #[must_use]
    pub fn lookups(&self, node: u64) -> u64 {
        self.nodes.lookups(node)
    }

    /// The kernel is gone: nothing is known any more.
    pub fn forget_all(&self) {
        self.nodes.clear();
    }
}

fn errno(error: dure_fs::Error) -> Errno {
    error.errno()
}
