//! Slotted pairs: small structures that are rewritten in place and survive a torn write.
//!
//! **Problem.** A block that is overwritten may be left half old, half new by a crash.
//! **Structure.** A pair of adjacent blocks; generation g goes to slot g mod 2; the valid slot with
//! the higher generation counts. **Invariants.** The caller writes generation g + 1 only after
//! generation g was flushed, so at most one slot can be torn at any time. **Crash.** Torn write of
//! generation g + 1: the other slot still holds g, whole.
//!
//! # Mirrored pairs
//! **Rot.** A slot that does not verify may be a torn write, or the newest one, damaged. So a
//! structure whose newest generation nothing else records is kept in a *mirrored* pair: two
//! adjacent pairs, each generation written to both. One damaged block then never makes an older
//! generation count. For every other pair, a structure above it names the slot that counts.

use dure_block::{BLOCK_BYTES, Lba};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc_without_field;

/// The kind of structure in a pair. The number is persistent and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotKind(pub u32);

impl SlotKind {
    /// A journal header.
    pub const JOURNAL_HEADER: Self = Self(0x4a48);
}

/// First bytes of each slot of a pair.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SlotHeaderV1 {
    /// [`SLOT_MAGIC`].
    pub magic: U32,
    /// CRC32C of the block with this field zero, seeded by the volume's seed.
    pub crc: U32,
    /// A [`SlotKind`].
    pub kind: U32,
    /// Zero.
    pub reserved: U32,
    /// The block number of this slot.
    pub address: U64,
    /// Rises by one with every write of the pair.
    pub generation: U64,
}

/// The current version of the slot header.
pub type SlotHeader = SlotHeaderV1;

/// Bytes of a slot header.
pub const SLOT_HEADER_BYTES: usize = 32;
/// Bytes left for the structure itself.
pub const SLOT_BODY_BYTES: usize = BLOCK_BYTES - SLOT_HEADER_BYTES;
/// "DRsl".
pub const SLOT_MAGIC: u32 = 0x6c73_5244;
const CRC_FIELD: usize = 4;

const _: () = assert!(size_of::<SlotHeaderV1>() == SLOT_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(SlotHeaderV1, crc) == CRC_FIELD);

/// The newest valid slot of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Newest<'a> {
    /// Its generation.
    pub generation: u64,
    /// The bytes after the slot header.
    pub body: &'a [u8],
}

/// Where generation `generation` of the pair at `pair` is written.
#[must_use]
pub fn address(pair: Lba, generation: u64) -> Lba {
    pair.offset(generation % 2)
}

/// Fills in the slot header of `block` (whose body the caller has written) and its checksum.
/// Returns the address the block must be written to.
///
/// # Panics
/// If `block` is not one block.
pub fn seal(block: &mut [u8], kind: SlotKind, pair: Lba, generation: u64, seed: u32) -> Lba {
    assert!(block.len() == BLOCK_BYTES, "a slot is one block");
    let at = address(pair, generation);
    let mut header = SlotHeaderV1 {
        magic: SLOT_MAGIC.into(),
        crc: 0.into(),
        kind: kind.0.into(),
        reserved: 0.into(),
        address: at.number().into(),
        generation: generation.into(),
    };
    block[..SLOT_HEADER_BYTES].copy_from_slice(header.as_bytes());
    header.crc = crc_without_field(seed, block, CRC_FIELD).into();
    block[..SLOT_HEADER_BYTES].copy_from_slice(header.as_bytes());
    at
}

/// The newest valid slot among `first` and `second`, the two blocks of the pair at `pair`.
#[must_use]
pub fn open<'a>(
    first: &'a [u8],
    second: &'a [u8],
    kind: SlotKind,
    pair: Lba,
    seed: u32,
) -> Option<Newest<'a>> {
    let first = open_slot(first, kind, pair, 0, seed);
    let second = open_slot(second, kind, pair, 1, seed);
    match (first, second) {
        (Some(a), Some(b)) if b.generation > a.generation => Some(b),
        (Some(a), _) => Some(a),
        (None, b) => b,
    }
}

/// Blocks of a mirrored pair.
pub const MIRRORED_BLOCKS: usize = 4;

/// The two pairs of the mirrored pair at `pair`.
#[must_use]
pub fn mirrors(pair: Lba) -> [Lba; 2] {
    [pair, pair.offset(2)]
}

/// The newest valid slot of the mirrored pair at `pair`, whose blocks are `blocks`.
///
/// # Panics
/// If `blocks` is not [`MIRRORED_BLOCKS`] blocks.
#[must_use]
pub fn open_mirrored(blocks: &[u8], kind: SlotKind, pair: Lba, seed: u32) -> Option<Newest<'_>> {
    assert!(
        blocks.len() == MIRRORED_BLOCKS * BLOCK_BYTES,
        "the caller gives two pairs"
    );
    let slots = (0..).zip(blocks.chunks_exact(BLOCK_BYTES));
    let slots = slots.filter_map(|(n, block): (u64, _)| {
        let copy = mirrors(pair)[usize::from(n >= 2)];
        open_slot(block, kind, copy, n % 2, seed)
    });
    slots.max_by_key(|slot| slot.generation)
}

/// One slot of the pair, for checks that examine both: `slot` is 0 or 1.
#[must_use]
pub fn open_slot(
    block: &[u8],
    kind: SlotKind,
    pair: Lba,
    slot: u64,
    seed: u32,
) -> Option<Newest<'_>> {
    assert!(block.len() == BLOCK_BYTES, "a slot is one block");
    let (header, body) = SlotHeaderV1::ref_from_prefix(block).ok()?;
    let sound = header.magic.get() == SLOT_MAGIC
        && header.kind.get() == kind.0
        && header.reserved.get() == 0
        && header.address.get() == pair.number() + slot
        && header.generation.get() % 2 == slot
        && header.crc.get() == crc_without_field(seed, block, CRC_FIELD);
    sound.then_some(Newest {
        generation: header.generation.get(),
        body,
    })
}
