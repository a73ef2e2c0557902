//! Shared blocks: which slots name a block that several slots name.
//!
//! All are blocks of the main area with the head of a slot, whose `address` is their own block and
//! whose generation is twice the checkpoint that wrote them. The volume header names the first block
//! of the index; the index names, per segment, a chain of blocks with runs. None is ever rewritten.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::PAIR_PAYLOAD;
use crate::units::{BlockNo, Nid, SlotRef};

/// Entries in a block of the index.
pub const INDEX_ENTRIES: usize = 253;
/// Runs in a block of a chain.
pub const RUNS: usize = 168;

const BLOCK_MASK: u64 = (1 << 48) - 1;

/// Neighbouring slots of a granule that name neighbouring blocks.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SharedRunV1 {
    /// The first block (48 bits), granule << 48, the slot that names it << 56.
    pub place: U64,
    /// The node of the slots.
    pub nid: U64,
    /// Bit i: slot + i names first block + i, which another slot names, too. Bit 0 is set.
    pub blocks: U64,
}
const _: () = assert!(size_of::<SharedRunV1>() == 24);
/// The current version.
pub type SharedRun = SharedRunV1;

impl SharedRun {
    /// The run of slot `owner`, which names `first`, and those behind it.
    #[must_use]
    pub fn new(first: BlockNo, owner: SlotRef, blocks: u64) -> SharedRun {
        assert!(
            first.0 <= BLOCK_MASK && blocks & 1 == 1,
            "{first:?}, {blocks:#x}"
        );
        let place = first.0 | u64::from(owner.granule) << 48 | u64::from(owner.slot) << 56;
        SharedRun {
            place: U64::new(place),
            nid: U64::new(owner.nid.0),
            blocks: U64::new(blocks),
        }
    }

    /// The first block.
    #[must_use]
    pub fn first(&self) -> BlockNo {
        BlockNo(self.place.get() & BLOCK_MASK)
    }

    /// The slot that names it.
    #[must_use]
    pub fn owner(&self) -> SlotRef {
        let [.., granule, slot] = self.place.get().to_le_bytes();
        SlotRef {
            nid: Nid(self.nid.get()),
            granule,
            slot,
        }
    }
}

/// A block of a chain: runs of one segment.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SharedRunsV1 {
    /// The next block; 0: this is the last.
    pub next: U64,
    /// The segment of the blocks.
    pub segment: U32,
    /// Runs in use, at least one.
    pub count: U32,
    /// Written zero.
    pub reserved: [u8; 16],
    /// The runs, zero behind the last.
    pub runs: [SharedRun; RUNS],
}
const _: () = assert!(size_of::<SharedRunsV1>() == PAIR_PAYLOAD);
/// The current version.
pub type SharedRuns = SharedRunsV1;

/// Where the runs of a segment are.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SharedChainV1 {
    /// The first block of the chain.
    pub first: U64,
    /// The segment.
    pub segment: U32,
    /// Blocks of the chain.
    pub blocks: U32,
}
/// The current version.
pub type SharedChain = SharedChainV1;

/// A block of the index. Segments ascend.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SharedIndexV1 {
    /// The next block; 0: this is the last.
    pub next: U64,
    /// Entries in use, at least one.
    pub count: U32,
    /// Written zero.
    pub reserved: [u8; 4],
    /// The chains, zero behind the last.
    pub chains: [SharedChain; INDEX_ENTRIES],
}
const _: () = assert!(size_of::<SharedIndexV1>() == PAIR_PAYLOAD);
/// The current version.
pub type SharedIndex = SharedIndexV1;
