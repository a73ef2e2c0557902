//! Segment summaries: the owner of every block, for the cleaner and the check. A summary is
//! believed only after the owner has been asked: a slot (or the NAT) that does not point back is
//! right.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::PAIR_PAYLOAD;

/// Summary entries in one pair.
pub const ENTRIES: u32 = 336;

/// Owner of one block.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
)]
#[repr(C)]
pub struct SummaryEntryV1 {
    /// The node whose slot points to the block, or whose image the block is.
    pub nid: U64,
    /// 0 = none, 1 = data block of a slot, 2 = node image.
    pub kind: u8,
    /// Granule that holds the slot.
    pub granule: u8,
    /// Slot within the granule.
    pub slot: u8,
    /// Written zero.
    pub reserved: u8,
}
const _: () = assert!(size_of::<SummaryEntryV1>() == 12);
/// The current version.
pub type SummaryEntry = SummaryEntryV1;

/// `SummaryEntry::kind`: the block has no owner.
pub const OWNER_NONE: u8 = 0;
/// `SummaryEntry::kind`: a slot of a leaf or an inode.
pub const OWNER_SLOT: u8 = 1;
/// `SummaryEntry::kind`: a node image.
pub const OWNER_NODE: u8 = 2;

/// Payload of a summary pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SummaryBlockV1 {
    /// The checkpoint that wrote it.
    pub checkpoint: U64,
    /// The segment.
    pub segment: U64,
    /// Entries of blocks `n * ENTRIES ..` of the segment, for the n-th pair.
    pub entries: [SummaryEntry; 336],
    /// Written zero.
    pub reserved: [u8; 16],
}
const _: () = assert!(size_of::<SummaryBlockV1>() == PAIR_PAYLOAD);
/// The current version.
pub type SummaryBlock = SummaryBlockV1;
