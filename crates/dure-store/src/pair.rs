//! Slotted pairs as the file system uses them.
//!
//! **Structure.** The volume header is a *mirrored* pair: the newest valid slot of two pairs
//! counts. Every other pair is *named*: the structure above it says which slot counts
//! (`packs`), the next content goes to the other slot, and counts when that structure names it.
//! **Invariants.** A slot that is named and does not verify is damage, never a torn write: it was
//! flushed before it was named. What lies in the other slot is never looked at. **Crash.** A torn
//! write hits a slot that does not count.

use dure_block::{BlockBuf, Lba};
use dure_journal::format::slotted::{self, SlotKind};

use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::media::Region;
use crate::units::{BLOCK_BYTES, BlockNo, is_zero};

/// One valid slot of a pair.
#[derive(Debug)]
pub struct Slot {
    /// Its generation.
    pub(crate) generation: u64,
    /// The bytes behind the slot header.
    pub payload: Vec<u8>,
}

/// The name of a kind of pair in messages.
fn name(kind: u32) -> &'static str {
    match kind {
        pair_kind::VOLUME => "volume header",
        pair_kind::PACK => "pack",
        pair_kind::NAT => "NAT pair",
        pair_kind::SIT => "SIT pair",
        pair_kind::SUMMARY => "summary pair",
        pair_kind::SNAPSHOTS => "table of snapshots",
        pair_kind::KEPT_LIST => "list of pairs kept for a snapshot",
        pair_kind::KEPT => "pair kept for a snapshot",
        pair_kind::SHARED_INDEX => "index of shared blocks",
        pair_kind::SHARED_RUNS => "list of shared blocks",
        _ => "pair",
    }
}

/// The newest slot of the mirrored pair at `first`; `None` if it was never written.
///
/// # Errors
/// `Corrupt` when no slot is valid although something was written there.
pub fn read_newest(region: &Region, first: u64, kind: u32, seed: u32) -> Result<Option<Slot>> {
    let mut bytes = vec![0; slotted::MIRRORED_BLOCKS * BLOCK_BYTES];
    region.read(BlockNo(first), &mut bytes)?;
    let newest = slotted::open_mirrored(&bytes, SlotKind(kind), Lba::new(first), seed);
    let Some(slot) = newest else {
        if is_zero(&bytes) {
            return Ok(None);
        }
        return Err(Error::Corrupt {
            what: format!("{}: valid slots", name(kind)),
            at: first,
            want: 1,
            got: 0,
        });
    };
    let what = || format!("generation of the {}", name(kind));
    Error::expect_count(what, first, slot.generation)?;
    Ok(Some(Slot {
        generation: slot.generation,
        payload: slot.body.to_vec(),
    }))
}

/// The content of slot `slot` of the pair at `first`, which counts: if its block is damaged and has a
/// copy, that of the copy, which then is noted to be written anew.
///
/// # Errors
/// `Corrupt` when it does not verify, naming its block; `Block` when reading fails.
pub fn read_slot(region: &Region, first: u64, slot: u64, kind: u32, seed: u32) -> Result<Vec<u8>> {
    let at = BlockNo(first + slot);
    let read = |block: BlockNo| {
        let mut bytes = vec![0; BLOCK_BYTES];
        region.read(block, &mut bytes)?;
        open_slot(&bytes, first, slot, kind, seed).map(<[u8]>::to_vec)
    };
    read(at).or_else(|error| {
        let copy = region.copy_of(at).and_then(|copy| read(copy).ok());
        let content = copy.ok_or(error)?;
        region.note_damaged(at);
        Ok(content)
    })
}

/// The content of slot `slot` of the pair at `first`, which counts, from the slot's block.
///
/// # Errors
/// `Corrupt` when it does not verify.
pub(crate) fn open_slot(
    block: &[u8],
    first: u64,
    slot: u64,
    kind: u32,
    seed: u32,
) -> Result<&[u8]> {
    let found = slotted::open_slot(block, SlotKind(kind), Lba::new(first), slot, seed);
    let found = found.ok_or_else(|| Error::Corrupt {
        what: format!("{}: the slot that counts is damaged", name(kind)),
        at: first + slot,
        want: 1,
        got: 0,
    })?;
    Ok(found.body)
}

/// The content of a block of its own that has the head of a slot.
///
/// # Errors
/// Those of [`read_slot`].
pub fn read_single(region: &Region, block: BlockNo, kind: u32, seed: u32) -> Result<Vec<u8>> {
    read_slot(region, block.0, 0, kind, seed)
}

/// A block of its own with the head of a slot, written by `checkpoint`, and where it goes.
pub(crate) fn single_block(
    block: BlockNo,
    kind: u32,
    (checkpoint, payload): (u64, &[u8]),
    seed: u32,
) -> (BlockNo, BlockBuf) {
    block_of(block.0, kind, 2 * checkpoint, payload, seed)
}

/// Writes `payload` to slot `slot` of the pair at `first`. Not flushed, and not named yet.
///
/// # Errors
/// A failed write.
pub(crate) fn write_slot(
    region: &Region,
    first: u64,
    slot: u64,
    kind: u32,
    content: (u64, &[u8]),
    seed: u32,
) -> Result<()> {
    let (at, block) = slot_block(first, slot, kind, content, seed);
    Ok(region.write(at, block.as_slice())?)
}

/// The block with `payload` for slot `slot` of the pair at `first`, and where it goes.
pub(crate) fn slot_block(
    first: u64,
    slot: u64,
    kind: u32,
    (checkpoint, payload): (u64, &[u8]),
    seed: u32,
) -> (BlockNo, BlockBuf) {
    assert!(slot <= 1, "a pair has two slots");
    block_of(first, kind, 2 * checkpoint + slot, payload, seed)
}

/// The block with `payload` as generation `generation` of the pair at `first`, and where it goes.
fn block_of(
    first: u64,
    kind: u32,
    generation: u64,
    payload: &[u8],
    seed: u32,
) -> (BlockNo, BlockBuf) {
    let mut block = BlockBuf::zeroed(1);
    block.as_mut_slice()[slotted::SLOT_HEADER_BYTES..].copy_from_slice(payload);
    let at = slotted::seal(
        block.as_mut_slice(),
        SlotKind(kind),
        Lba::new(first),
        generation,
        seed,
    );
    (BlockNo(at.number()), block)
}

/// Writes `payload` as generation `generation` of the pair at `first`. Not flushed.
///
/// # Errors
/// A failed write.
pub(crate) fn write(
    region: &Region,
    first: u64,
    kind: u32,
    generation: u64,
    payload: &[u8],
    seed: u32,
) -> Result<()> {
    let (at, block) = block_of(first, kind, generation, payload, seed);
    Ok(region.write(at, block.as_slice())?)
}

/// Writes `payload` as generation `generation` to both copies of the mirrored pair at `first`. Not
/// flushed.
///
/// # Errors
/// A failed write.
pub(crate) fn write_mirrored(
    region: &Region,
    first: u64,
    kind: u32,
    generation: u64,
    payload: &[u8],
    seed: u32,
) -> Result<()> {
    for pair in slotted::mirrors(Lba::new(first)) {
        write(region, pair.number(), kind, generation, payload, seed)?;
    }
    Ok(())
}
