//! Names: creating, finding, linking, moving and removing them; and setting attributes.
//!
//! **Problem.** A call changes a directory and inodes. It must be atomic, whatever fails and
//! whatever runs concurrently, and after a crash it must never be there without what it depends on.
//! **Structure.** Every call: look without locks, begin an `Op` of the right size, lock the inodes
//! concerned in ascending order, look again, edit privately, finish; only then memory changes. When
//! the second look finds something else, or the op was too small, it starts over
//! ([`attempts`](crate::inode::attempts)). Once such calls have contended for a directory, they
//! hold it shared, and each locks the buckets of its names. A call holds a directory exclusively to
//! free bucket nodes or make the first one, and if it removes, moves or replaces that directory
//! itself.
//!
//! **Invariants** (marks, see the journal's model, cases C1 to C9): a change of entries depends on
//! the directory's inode; it writes the bucket and the inode that the name leads to; a directory
//! that changes its parent depends on all its new ancestors' inodes; rmdir writes every bucket of
//! the victim. **On a crash** each call is there wholly or not at all.

mod attributes;
mod create;
mod link;
mod lookup;
mod paths;
mod peek;
mod projects;
mod remove;
mod rename;
mod set_attributes;
mod symlink_cache;
mod waits;

pub use create::New;
pub use lookup::{DirectoryEntry, EntryBatch};
pub use peek::Peek;
pub(crate) use projects::Moves;
pub(crate) use remove::{Nameless, Removal};
pub use rename::RenameMode;
pub use set_attributes::{SetAttributes, SetTime};
pub(crate) use symlink_cache::SymlinkCache;

use dure_store::Store;
use dure_sync::{Arc, CachePadded, Mutex};

use crate::directory::Directories;
use crate::file::Files;
use crate::inode::Inodes;
use crate::ranks::RENAME;
use crate::volume::{AccessTime, AttributeRule};

/// The names of a volume: every call that changes a directory and inodes.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Arc<Files>,
    pub(crate) directories: Arc<Directories>,
    /// Targets of symbolic links that are found without a lock.
    pub(crate) symlinks: SymlinkCache,
    /// [RENAME] Held by a rename of a directory into another one. On a line of its own, apart from
    /// what every call reads.
    pub(crate) rename: CachePadded<Mutex<RENAME, ()>>,
    /// When reads of a symbolic link change its access time.
    pub(crate) access_time: AccessTime,
    /// What a change of attributes holds.
    pub(crate) rule: AttributeRule,
    /// What is moved while a directory becomes a project.
    pub(crate) moves: Moves,
}

/// Maximum length of a symlink's target in bytes.
pub(crate) const TARGET_MAX: usize = 4095;

#[cfg(test)]
pub(crate) mod tests;
