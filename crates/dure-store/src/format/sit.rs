//! The segment information table: which blocks of each segment are live, as of valid handles only.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::PAIR_PAYLOAD;

/// SIT entries in one pair.
pub const ENTRIES: u32 = 50;

/// What a segment is used for. Log ownership itself is in the journal headers; here it is a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentUse {
    /// Nothing live.
    Free,
    /// File data.
    Data,
    /// Node images.
    Node,
    /// A journal's ring.
    Log,
}

impl SegmentUse {
    /// Persistent number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            SegmentUse::Free => 0,
            SegmentUse::Data => 1,
            SegmentUse::Node => 2,
            SegmentUse::Log => 3,
        }
    }

    /// From the persistent number; `None` for an unknown one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<SegmentUse> {
        Some(match code {
            0 => SegmentUse::Free,
            1 => SegmentUse::Data,
            2 => SegmentUse::Node,
            3 => SegmentUse::Log,
            _ => return None,
        })
    }
}

/// One segment.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct SitEntryV2 {
    /// Bit i: block i of the segment is live.
    pub live: [u8; 64],
    /// [`SegmentUse::code`].
    pub usage: u8,
    /// The slots that count of the segment's summary pairs, two bits for each, the first lowest:
    /// a `SlotCode`.
    pub summaries: u8,
    /// Number of set bits in `live`.
    pub valid: U16,
    /// Written zero.
    pub reserved: U32,
    /// Seconds since 1970 of the youngest change, for the cleaner.
    pub changed: U64,
}
const _: () = assert!(size_of::<SitEntryV2>() == 80);
/// The current version.
pub type SitEntry = SitEntryV2;

/// Payload of a SIT pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SitBlockV1 {
    /// The checkpoint that wrote it.
    pub checkpoint: U64,
    /// Which SIT pair this is.
    pub index: U64,
    /// Entries of segments `index * ENTRIES ..`.
    pub entries: [SitEntry; 50],
    /// Written zero.
    pub reserved: [u8; 48],
}
const _: () = assert!(size_of::<SitBlockV1>() == PAIR_PAYLOAD);
/// The current version.
pub type SitBlock = SitBlockV1;
