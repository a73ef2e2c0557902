//! The node address table: for every nid, where its image lies.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::node::NodeKind;
use super::volume::PAIR_PAYLOAD;
use crate::units::{BlockNo, Nid};

/// NAT entries in one pair.
pub const ENTRIES: u64 = 252;

/// One entry: `block` (48 bits), node kind (8 bits), free inodes (8 bits); version.
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
pub struct NatEntryV1 {
    /// block | kind << 48 | free inodes << 56.
    pub place: U64,
    /// Greatest version of any granule of the image; for a free nid the tombstone.
    pub version: U64,
}
/// The current version.
pub type NatEntry = NatEntryV1;

const BLOCK_MASK: u64 = (1 << 48) - 1;

impl NatEntry {
    /// The entry of a node whose image lies at `block`.
    #[must_use]
    pub fn live(block: BlockNo, kind: NodeKind, free_inodes: u8, version: u64) -> NatEntry {
        assert!(
            block.0 != 0 && block.0 <= BLOCK_MASK,
            "an image needs an address, not {block:?}"
        );
        let place = block.0 | u64::from(kind.code()) << 48 | u64::from(free_inodes) << 56;
        NatEntry {
            place: U64::new(place),
            version: U64::new(version),
        }
    }

    /// The entry of a nid that was freed at `version`.
    #[must_use]
    pub fn tombstone(version: u64) -> NatEntry {
        NatEntry {
            place: U64::new(0),
            version: U64::new(version),
        }
    }

    /// Where the image lies; `BlockNo::NONE` when there is none.
    #[must_use]
    pub fn block(&self) -> BlockNo {
        BlockNo(self.place.get() & BLOCK_MASK)
    }

    /// Code of the node's kind (0 when free).
    #[must_use]
    pub fn kind_code(&self) -> u8 {
        self.place.get().to_le_bytes()[6]
    }

    /// Free inode granules, for inode nodes.
    #[must_use]
    pub fn free_inodes(&self) -> u8 {
        self.place.get().to_le_bytes()[7]
    }
}

/// Payload of a NAT pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct NatBlockV1 {
    /// The checkpoint that wrote it.
    pub checkpoint: U64,
    /// Which NAT pair this is.
    pub index: U64,
    /// Entries of nids `index * ENTRIES ..`.
    pub entries: [NatEntry; 252],
    /// Written zero.
    pub reserved: [u8; 16],
}
const _: () = assert!(size_of::<NatBlockV1>() == PAIR_PAYLOAD);
/// The current version.
pub type NatBlock = NatBlockV1;

/// The pair that holds `nid`, and the entry within it.
#[must_use]
pub fn place_of(nid: Nid) -> (u64, usize) {
    (nid.0 / ENTRIES, crate::units::to_usize(nid.0 % ENTRIES))
}
