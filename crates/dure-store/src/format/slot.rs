//! Slots: where one page of a file lies, and the checksum of its content.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::BlockNo;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 12;
/// Slots in a granule of a leaf.
pub const LEAF_GRANULE_SLOTS: u64 = 64;
/// Slots in a leaf node.
pub const LEAF_SLOTS: u64 = 5 * LEAF_GRANULE_SLOTS;
/// Children of an index granule.
pub const INDEX_GRANULE_CHILDREN: u64 = 64;
/// Children of an index node.
pub const INDEX_CHILDREN: u64 = 7 * INDEX_GRANULE_CHILDREN;
/// Slots in the inode itself: pages 0..24.
pub const DIRECT_SLOTS: u64 = 24;

const BLOCK_MASK: u64 = (1 << 48) - 1;
const UNWRITTEN: u64 = 1 << 48;
const UNORDERED: u64 = 1 << 50;

/// One page's place. All zero: a hole.
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
pub struct SlotV1 {
    /// block (48 bits) | flags << 48.
    pub place: U64,
    /// CRC32C of the page, zero for unwritten pages.
    pub crc: U32,
}
const _: () = assert!(size_of::<SlotV1>() == SLOT_BYTES);
/// The current version.
pub type Slot = SlotV1;

impl Slot {
    /// No block: reads as zeroes.
    pub const HOLE: Slot = Slot {
        place: U64::ZERO,
        crc: U32::ZERO,
    };

    /// A written page.
    #[must_use]
    pub fn written(block: BlockNo, crc: u32) -> Slot {
        assert!(
            block.0 != 0 && block.0 <= BLOCK_MASK,
            "a page needs an address, not {block:?}"
        );
        Slot {
            place: U64::new(block.0),
            crc: U32::new(crc),
        }
    }

    /// A written page that the log may name although its data was lost with the power: recovery
    /// then makes it an unwritten one (`data=writeback`).
    #[must_use]
    pub fn written_unordered(block: BlockNo, crc: u32) -> Slot {
        let slot = Slot::written(block, crc);
        Slot {
            place: U64::new(slot.place.get() | UNORDERED),
            ..slot
        }
    }

    /// A preallocated page that reads as zeroes until it is written.
    #[must_use]
    pub fn unwritten(block: BlockNo) -> Slot {
        assert!(
            block.0 != 0 && block.0 <= BLOCK_MASK,
            "a page needs an address, not {block:?}"
        );
        Slot {
            place: U64::new(block.0 | UNWRITTEN),
            crc: U32::ZERO,
        }
    }

    /// This page in another block.
    #[must_use]
    pub fn moved_to(&self, block: BlockNo) -> Slot {
        assert!(!self.is_hole(), "a hole has no block to move");
        assert!(
            block.0 != 0 && block.0 <= BLOCK_MASK,
            "a page needs an address, not {block:?}"
        );
        let flags = self.place.get() & !BLOCK_MASK;
        Slot {
            place: U64::new(block.0 | flags),
            crc: self.crc,
        }
    }

    /// Its block, or `BlockNo::NONE`.
    #[must_use]
    pub fn block(&self) -> BlockNo {
        BlockNo(self.place.get() & BLOCK_MASK)
    }

    /// No block at all.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.block().is_none()
    }

    /// Has a block whose content does not count.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.place.get() & UNWRITTEN != 0
    }

    /// Reads come from the block.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !self.is_hole() && !self.is_unwritten()
    }

    /// Whether the log may name it without its data.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        self.is_written() && self.place.get() & UNORDERED != 0
    }

    /// Whether only known flags are set and the parts agree.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        self.place.get() & !(BLOCK_MASK | UNWRITTEN | UNORDERED) == 0
            && (!self.is_hole() || *self == Slot::HOLE)
    }
}

#[cfg(test)]
mod tests {
    use super::{Slot, U64};
    use crate::units::BlockNo;

    /// Bit 49 once meant "no checksum": a forged slot could expose any file's block.
    #[test]
    fn a_slot_cannot_say_that_its_page_has_no_checksum() {
        let slot = Slot::written(BlockNo(7), 1);
        assert!(slot.is_sane());
        for bit in [49, 51, 63] {
            let forged = Slot {
                place: U64::new(slot.place.get() | 1 << bit),
                ..slot
            };
            assert!(!forged.is_sane(), "bit {bit}");
        }
    }
}
