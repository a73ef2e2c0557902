//! An in-memory model of a POSIX file system, to compare dure with.
//!
//! **Problem.** A test of a file system needs to know the right answer to every call, also to the
//! strange ones. **Structure.** `data` is the content of a file, `node` and `store` are inodes and
//! the changes to them, `path` and `permission` resolve paths and check permissions, and
//! [`ModelFs`] makes calls of these. `operation` is a call as data, `real` does it on a dure
//! volume, `run` does a sequence on both and compares every answer and, at the end, the whole trees
//! (`tree`).
//!
//! **Invariants.** The code is as simple as it can be: maps and vectors, no caches, no locks. It
//! follows Linux where POSIX leaves a choice, and shares no code with dure. **Crash.** The model
//! has none; a crash test keeps a clone of it from the last sync.

mod calls;
mod data;
mod names;
mod node;
mod normal;
mod open;
mod operation;
mod path;
mod permission;
mod real;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod tree;

pub use calls::ModelFs;
pub use data::{Data, PAGE, SIZE_MAX};
pub use node::{AllocateKind, Body, Kind, New, Node, RenameKind, XattrKind};
pub use normal::Normal;
pub use operation::{Answer, Flags, Operation, Outcome, SLOTS, Stat, Step, Whence, agree, pattern};
pub use permission::Who;
pub use real::{Mounted, Real, kind_of, stat_of};
pub use run::{compare, compare_mounted, same_tree, shrink};
pub use store::{NAME_MAX, ROOT, Result, Store};
pub use tree::{Item, Tree};
