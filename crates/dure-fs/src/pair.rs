//! Slotted pairs as the file system uses them: reading both slots, writing the next generation.

use dure_block::{BlockBuf, Lba, Queue, WriteFlags};
use dure_journal::format::slotted::{self, SlotKind};

use crate::error::{Error, Result};
use crate::units::{BLOCK_BYTES, is_zero};

/// One valid slot of a pair.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Its generation.
    pub(crate) generation: u64,
    /// The bytes behind the slot header.
    pub(crate) payload: Vec<u8>,
}

/// What was found in a pair: at most two valid slots, newest first. None at all: never written.
#[derive(Debug)]
pub(crate) struct Pair {
    slots: Vec<Slot>,
}

impl Pair {
    /// The slot that counts.
    pub(crate) fn newest(&self) -> Option<&Slot> {
        self.slots.first()
    }

    /// The one before it.
    pub(crate) fn older(&self) -> Option<&Slot> {
        self.slots.get(1)
    }
}

/// Reads the pair at `first`.
///
/// # Errors
/// `Corrupt` when neither slot is valid although something was written there.
pub(crate) fn read(queue: &Queue, first: u64, kind: u32, seed: u32) -> Result<Pair> {
    let mut bytes = vec![0; 2 * BLOCK_BYTES];
    queue.read(Lba::new(first), &mut bytes)?;
    parse(&bytes, first, kind, seed)
}

/// The same from bytes at hand.
pub(crate) fn parse(bytes: &[u8], first: u64, kind: u32, seed: u32) -> Result<Pair> {
    let mut slots = Vec::new();
    for (n, block) in (0..2).zip(bytes.chunks_exact(BLOCK_BYTES)) {
        let slot = slotted::open_slot(block, SlotKind(kind), Lba::new(first), n, seed);
        if let Some(slot) = slot {
            let what = || format!("generation of a pair of kind {kind}");
            Error::expect_count(what, first + n, slot.generation)?;
            slots.push(Slot {
                generation: slot.generation,
                payload: slot.body.to_vec(),
            });
        }
    }
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.generation));
    if slots.is_empty() && !is_zero(bytes) {
        return Err(Error::Corrupt {
            what: format!("both slots of a pair of kind {kind}"),
            at: first,
            want: 1,
            got: 0,
        });
    }
    Ok(Pair { slots })
}

/// Writes `payload` as generation `generation` of the pair at `first`. Not flushed.
pub(crate) fn write(
    queue: &Queue,
    first: u64,
    kind: u32,
    generation: u64,
    payload: &[u8],
    seed: u32,
) -> Result<()> {
    let mut block = BlockBuf::zeroed(1);
    block.as_mut_slice()[slotted::SLOT_HEADER_BYTES..].copy_from_slice(payload);
    let at = slotted::seal(
        block.as_mut_slice(),
        SlotKind(kind),
        Lba::new(first),
        generation,
        seed,
    );
    queue.write(at, block.as_slice(), WriteFlags::NONE)?;
    Ok(())
}
