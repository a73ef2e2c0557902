//! Every byte dure-fs puts on the medium. `docs/design/format.md` is the same in prose.
//!
//! One file per structure; each holds the `#[repr(C)]` little-endian struct with its version in the
//! name, const asserts for sizes, and the functions that turn bytes into a validated value and
//! back. Nothing outside this folder knows an offset. Small structures that are rewritten in place
//! are slotted pairs (`dure_journal::format::slotted`); a torn write of one slot leaves the other.

pub mod attribute;
pub mod blob;
pub mod bucket;
pub mod feature;
pub mod fields;
mod foreign;
pub mod inode;
pub mod media;
pub mod name;
pub mod nat;
pub mod node;
pub mod note;
pub mod orphan;
pub mod quota;
pub mod shared;
pub mod sit;
pub mod slot;
pub mod snapshot;
pub mod stamp;
pub mod summary;
pub mod superblock;
pub mod trie;
pub mod volume;

/// Kinds of slotted pairs (the `kind` field of the slot header); 1..=15 belong to dure-journal.
pub mod pair_kind {
    /// Volume header.
    pub const VOLUME: u32 = 16;
    /// Checkpoint pack.
    pub const PACK: u32 = 17;
    /// NAT pair.
    pub const NAT: u32 = 18;
    /// SIT pair.
    pub const SIT: u32 = 19;
    /// Segment summary pair.
    pub const SUMMARY: u32 = 20;
    /// Stamp of a medium.
    pub const STAMP: u32 = 21;
    /// Block of the table of snapshots; not a pair.
    pub const SNAPSHOTS: u32 = 22;
    /// Block of the list of pairs kept for a snapshot; not a pair.
    pub const KEPT_LIST: u32 = 23;
    /// Pair as it was when a snapshot was taken; not a pair itself.
    pub const KEPT: u32 = 24;
    /// Block of the index of shared blocks; not a pair.
    pub const SHARED_INDEX: u32 = 25;
    /// Block of runs of shared blocks; not a pair.
    pub const SHARED_RUNS: u32 = 26;
}
