//! The volume header (the one block whose write empties all logs) and the checkpoint pack.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::BLOCK_BYTES;

/// Bytes of a pair's block after its slot header.
pub const PAIR_PAYLOAD: usize = BLOCK_BYTES - 32;

/// The volume was unmounted cleanly: logs are empty.
pub const STATE_CLEAN: u32 = 1;
/// The volume is, or was at the crash, mounted for writing.
pub const STATE_DIRTY: u32 = 2;

/// Payload of the volume header's pair.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct VolumeHeaderV1 {
    /// Log records and journal headers of another epoch are dead.
    pub epoch: U64,
    /// Handle number every journal starts with in this epoch.
    pub first_number: U64,
    /// The last checkpoint whose NAT, SIT and summaries are all durable.
    pub checkpoint: U64,
    /// [`STATE_CLEAN`] or [`STATE_DIRTY`].
    pub state: U32,
    /// Times the volume was mounted for writing.
    pub mounts: U32,
    /// Live nodes in the NAT of `checkpoint`; 0: never counted.
    pub nodes: U64,
    /// Inodes in use in the NAT of `checkpoint`, for statfs.
    pub inodes: U64,
    /// Seconds since 1970 of the last write of this header.
    pub written: U64,
    /// Written zero.
    pub reserved: [u8; 56],
}
const _: () = assert!(size_of::<VolumeHeaderV1>() == 112);
/// The current version.
pub type VolumeHeader = VolumeHeaderV1;

/// NAT pairs named by one pack pair: one bit each.
pub const PACK_BITS: u64 = 32256;

/// Payload of a checkpoint pack pair: the NAT pairs that checkpoint `checkpoint` rewrites.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct PackV1 {
    /// The checkpoint.
    pub checkpoint: U64,
    /// Which pack pair this is.
    pub index: U64,
    /// Written zero.
    pub reserved: [u8; 16],
    /// Bit i: NAT pair `index * PACK_BITS + i` is rewritten.
    pub bits: [u8; 4032],
}
const _: () = assert!(size_of::<PackV1>() == PAIR_PAYLOAD);
/// The current version.
pub type Pack = PackV1;
