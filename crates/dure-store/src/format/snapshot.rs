//! Snapshots: their table, and the pairs of NAT and SIT that are kept for them.
//!
//! All are blocks of the main area with the head of a slot, whose `address` is their own block and
//! whose generation is twice the checkpoint that wrote them. The volume header names the first block
//! of the table; none is ever rewritten.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::PAIR_PAYLOAD;

/// Bytes of a snapshot's name.
pub const NAME_BYTES: usize = 64;
/// Snapshots in a block of the table.
pub const TABLE_ENTRIES: usize = 31;
/// Kept pairs in a block of a list.
pub const LIST_ENTRIES: usize = 252;
/// Most snapshots of a volume: eight blocks of the table.
pub const SNAPSHOTS_MAX: usize = 8 * TABLE_ENTRIES;

/// One snapshot.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SnapshotEntryV1 {
    /// Its number: greater than that of every older one.
    pub id: U64,
    /// The checkpoint whose tables are the snapshot.
    pub checkpoint: U64,
    /// Seconds since 1970 when it was taken, signed.
    pub created: U64,
    /// Live nodes in its NAT.
    pub nodes: U64,
    /// Inodes in use in it.
    pub inodes: U64,
    /// Blocks that were live.
    pub blocks: U64,
    /// Last block of the list of pairs kept for it; 0: none.
    pub list: U64,
    /// How many pairs are listed.
    pub kept: U64,
    /// Its name: UTF-8, zero padded, not empty.
    pub name: [u8; NAME_BYTES],
}
const _: () = assert!(size_of::<SnapshotEntryV1>() == 128);
/// The current version.
pub type SnapshotEntry = SnapshotEntryV1;

/// A block of the table. The oldest snapshot comes first.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SnapshotTableV1 {
    /// The next block; 0: this is the last.
    pub next: U64,
    /// Entries in use, at least one.
    pub count: U32,
    /// Written zero.
    pub reserved: [u8; 84],
    /// The snapshots, zero behind the last.
    pub entries: [SnapshotEntry; TABLE_ENTRIES],
}
const _: () = assert!(size_of::<SnapshotTableV1>() == PAIR_PAYLOAD);
/// The current version.
pub type SnapshotTable = SnapshotTableV1;

/// Bit of [`KeptV1::pair`]: a pair of the SIT, else of the NAT.
pub const SIT_PAIR: u64 = 1 << 63;

/// A pair that has changed since the snapshot, and where it lies as it was then.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct KeptV1 {
    /// The pair's number in its table, and [`SIT_PAIR`].
    pub pair: U64,
    /// The block; 0: the pair had never been written.
    pub block: U64,
}
/// The current version.
pub type Kept = KeptV1;

/// A block of the list of pairs kept for a snapshot. All but the last are full.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct KeptListV1 {
    /// The block before this one; 0: this is the first.
    pub before: U64,
    /// The snapshot's number.
    pub snapshot: U64,
    /// Entries in use, at least one.
    pub count: U32,
    /// Written zero.
    pub reserved: [u8; 12],
    /// The pairs, zero behind the last.
    pub entries: [Kept; LIST_ENTRIES],
}
const _: () = assert!(size_of::<KeptListV1>() == PAIR_PAYLOAD);
/// The current version.
pub type KeptList = KeptListV1;
