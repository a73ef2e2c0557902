//! The block map: page of a file -> slot {block, CRC}.
//!
//! **Problem.** Small files must find their slots in the inode, huge sparse ones must not pay for
//! what is not there.
//!
//! **Structure.** Pages 0..24 have slots in the inode's body. Beyond, a radix tree of nodes: leaves
//! of 320 slots below index nodes of 448 children; the root's height grows with the file and goes
//! back to none when the tree is empty. [`path`] is the arithmetic, [`MapReader`] looks up,
//! [`MapEdit`] changes slots within an operation, [`MapEdit::free`] takes slots and emptied nodes
//! away.
//!
//! # Invariants
//! The map changes only under the inode's write-back lock, and at the end under the inode lock; a
//! holder of either may read it. No index points to an empty subtree. One change needs both only
//! shared, and the range of the page: a slot that has a block gets another one ([`MapOverwrite`]).
//!
//! **On a crash** slots, nodes and the inode's root change in one transaction each time.

mod edit;
mod free;
mod overwrite;
pub(crate) mod path;
#[cfg(test)]
mod path_tests;
mod read;
pub(crate) mod room;

pub use path::FILE_BYTES_MAX;

pub(crate) use edit::MapEdit;
pub(crate) use free::FREE_NODES_MAX;
pub(crate) use overwrite::MapOverwrite;
pub(crate) use read::MapReader;
pub(crate) use room::{NodePlaces, NodeRoom};
