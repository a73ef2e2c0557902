//! The volume header (whose write completes a checkpoint, and empties all logs when the epoch is
//! new) and the packs: together they name the slot that counts of every pair of the tables.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::BLOCK_BYTES;

/// Bytes of a pair's block after its slot header.
pub const PAIR_PAYLOAD: usize = BLOCK_BYTES - 32;

/// The volume was unmounted cleanly: logs are empty.
pub const STATE_CLEAN: u32 = 1;
/// The volume is, or was at the crash, mounted for writing.
pub const STATE_DIRTY: u32 = 2;
/// The volume is, or was at the crash, mounted for writing without a log (`journal=none`): after a
/// crash only a rebuild can tell what is left.
pub const STATE_UNLOGGED: u32 = 3;
/// All states there are.
pub const STATES: [u32; 3] = [STATE_CLEAN, STATE_DIRTY, STATE_UNLOGGED];

/// Payload of the volume header's pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct VolumeHeaderV3 {
    /// Log records and journal headers of another epoch are dead.
    pub epoch: U64,
    /// Handle number every journal starts with in this epoch.
    pub first_number: U64,
    /// The last checkpoint whose NAT, SIT and summaries are all durable.
    pub checkpoint: U64,
    /// One of [`STATES`].
    pub state: U32,
    /// Times the volume was mounted for writing.
    pub mounts: U32,
    /// Live nodes in the NAT of `checkpoint`.
    pub nodes: U64,
    /// Inodes in use in the NAT of `checkpoint`, for statfs.
    pub inodes: U64,
    /// Seconds since 1970 of the last write of this header.
    pub written: U64,
    /// First block of the table of snapshots; 0: there is none.
    pub snapshots: U64,
    /// First block of the index of shared blocks; 0: no block is shared.
    pub shared: U64,
    /// Written zero.
    pub reserved: [u8; 32],
    /// Which mount wrote this: a random number of its own; 0: mkfs. A mount that finds another's
    /// before a checkpoint writes nothing more.
    pub mount: U64,
    /// The slot that counts of each pack pair, as in [`PackV2::slots`].
    pub packs: [u8; 3952],
}
const _: () = assert!(size_of::<VolumeHeaderV3>() == PAIR_PAYLOAD);
/// The current version.
pub type VolumeHeader = VolumeHeaderV3;

/// Most pack pairs of a volume.
pub const PACKS_MAX: u64 = 4 * 3952;

/// Pairs whose slots one pack names.
pub const PACK_PAIRS: u64 = 4 * 4032;

/// Payload of a pack pair: which slot of each pair counts. The packs of the NAT come first, those
/// of the SIT behind them.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct PackV2 {
    /// The checkpoint that wrote it.
    pub checkpoint: U64,
    /// Which pack pair this is.
    pub index: U64,
    /// Written zero.
    pub reserved: [u8; 16],
    /// Two bits for each pair, the first in the lowest bits of byte 0: a [`SlotCode`].
    pub slots: [u8; 4032],
}
const _: () = assert!(size_of::<PackV2>() == PAIR_PAYLOAD);
/// The current version.
pub type Pack = PackV2;

/// What two bits say of a pair: 0 never written, 1 slot 0 counts, 2 slot 1 counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlotCode {
    /// Neither slot was ever written: whatever lies there is not this volume's.
    #[default]
    Unwritten,
    /// This slot (0 or 1) counts; the other may hold anything.
    Slot(u64),
}

impl SlotCode {
    /// From the two lowest bits; `None` for 3, which says nothing.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<SlotCode> {
        Some(match bits & 3 {
            0 => SlotCode::Unwritten,
            1 => SlotCode::Slot(0),
            2 => SlotCode::Slot(1),
            _ => return None,
        })
    }

    /// The two bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            SlotCode::Unwritten => 0,
            SlotCode::Slot(0) => 1,
            SlotCode::Slot(_) => 2,
        }
    }

    /// The `n`-th of the codes in `bytes`.
    #[must_use]
    pub fn get(bytes: &[u8], n: u64) -> Option<SlotCode> {
        let byte = bytes[crate::units::to_usize(n / 4)];
        SlotCode::from_bits(byte >> (n % 4 * 2))
    }

    /// Sets the `n`-th of the codes in `bytes`.
    pub fn set(self, bytes: &mut [u8], n: u64) {
        let shift = n % 4 * 2;
        let byte = &mut bytes[crate::units::to_usize(n / 4)];
        *byte = *byte & !(3 << shift) | self.bits() << shift;
    }

    /// The slot that does not count, which the next generation goes to.
    #[must_use]
    pub fn next(self) -> u64 {
        match self {
            SlotCode::Unwritten => 1,
            SlotCode::Slot(slot) => 1 - slot,
        }
    }
}
