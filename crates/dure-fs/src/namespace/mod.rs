//! Names: creating, finding, linking, moving and removing them.
//!
//! **Problem.** A call changes a directory and inodes and must be atomic, whatever fails, whoever
//! else is at it, and after a crash never without what it depends on. **Structure.** Every call:
//! look without locks, begin an `Op` of the right size, lock the inodes concerned in ascending
//! order, look again, edit privately, finish; only then memory changes. When the second look shows
//! something else, or the op was too small, it starts over ([`Attempt`]). A directory in which such
//! calls have met is shared by them, and each locks the buckets of its names; what frees bucket
//! nodes, or makes the first one, has it alone, and so is a directory that is itself removed, moved
//! or replaced.
//!
//! **Invariants** (marks, see the journal's model, cases C1 to C9): a change of entries depends on
//! the directory's inode; it writes the bucket and the inode that the name leads to; a directory
//! that changes parent depends on all its new ancestors' inodes; rmdir writes every bucket of the
//! victim. **On a crash** each call is there wholly or not at all.

mod attempt;
mod create;
mod link;
mod lookup;
mod peek;
mod remove;
mod rename;
mod target;

pub(crate) use attempt::{Attempt, Scope, attempts};
pub use lookup::{DirectoryEntry, EntryBatch};
pub use peek::{InodeId, Peek};
pub use rename::RenameMode;
pub(crate) use target::KnownTargets;

/// Most bytes of a symlink's target.
pub(crate) const TARGET_MAX: usize = 4095;
/// Most names of one inode.
pub(crate) const LINKS_MAX: u32 = 1 << 31;

#[cfg(test)]
pub(crate) mod tests;
