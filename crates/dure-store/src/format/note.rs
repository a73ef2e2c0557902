//! Notes: the journal records whose meaning is the file system's.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Note kind: a node is made. Payload [`LifeV1`].
pub const NEW_NODE: u8 = 1;
/// Note kind: a node is freed. Payload [`LifeV1`].
pub const FREE_NODE: u8 = 2;
/// Note kind: blocks were allocated for, or freed from, slots. Payload [`BlocksV1`].
pub const BLOCKS: u8 = 3;

/// Note kind: the content of a block that a slot of the same handle names. Payload [`DataV1`], then
/// the block's 4096 bytes.
pub const DATA: u8 = 4;

/// A node is made or freed.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct LifeV1 {
    /// The node.
    pub nid: U64,
    /// Version of all its granules from here on; greater than any before.
    pub version: U64,
    /// [`super::node::NodeKind::code`].
    pub kind: u8,
    /// Written zero.
    pub reserved: [u8; 7],
    /// The inode the node belongs to; 0: none. Counts for a beginning only.
    pub owner: U64,
}
const _: () = assert!(size_of::<LifeV1>() == 32);
/// The current version.
pub type Life = LifeV1;

/// `count` blocks from `first` belong, or belonged, to the slots from `slot` on of one granule.
/// Liveness is decided by what the slots say in the recovered state.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct BlocksV1 {
    /// The first block.
    pub first: U64,
    /// Owner of the slots: an inode node or a leaf node.
    pub nid: U64,
    /// How many blocks.
    pub count: U16,
    /// The granule.
    pub granule: u8,
    /// First slot in the granule.
    pub slot: u8,
}
/// The current version.
pub type Blocks = BlocksV1;
const _: () = assert!(size_of::<BlocksV1>() == 20);

/// Whose block the bytes behind this are the content of. They count when the slot, in the recovered
/// state, names the block and has their CRC.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DataV1 {
    /// The block.
    pub block: U64,
    /// Owner of the slot: an inode node or a leaf node.
    pub nid: U64,
    /// Written zero.
    pub reserved: U16,
    /// The granule.
    pub granule: u8,
    /// The slot in the granule.
    pub slot: u8,
}
/// The current version.
pub type Data = DataV1;
const _: () = assert!(size_of::<DataV1>() == 20);
