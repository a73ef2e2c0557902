//! Blocks of which the media have two copies: NAT and SIT, if mkfs was told so.
//!
//! **Problem.** One bad block of a table takes all that it points to, and what is written again and
//! again to the same place fails first. **Structure.** Whoever writes such a block through a
//! [`Region`](super::Region) writes both copies, which have the same bytes, before the flush that the
//! write is for; whoever reads one that does not verify reads the other (`pair`). What was found
//! damaged is noted, and the next checkpoint writes it anew (`store::copies`).
//!
//! **Invariants.** A slot of a pair that counts is flushed in both copies before it is named, and
//! written to no more: so of a slot that counts a power cut tears no copy. **Crash.** What is torn is
//! a slot that does not count, or a copy that was written anew while the other was whole.

use std::collections::BTreeSet;
use std::ops::Range;

use dure_block::BLOCK_BYTES;
use dure_sync::{Mutex, OnceLock};

use crate::ranks::DAMAGED;
use crate::units::{BLOCK_BYTES_U64, BlockNo, to_u64, to_usize};

/// Blocks that are noted at most; what is left out is found by a scrub.
const NOTED_MAX: usize = 4096;

/// Neighbouring blocks, and where their copies are.
#[derive(Debug, Clone, Copy)]
struct Place {
    first: u64,
    blocks: u64,
    copies: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Twice {
    place: OnceLock<Place>,
    noted: Mutex<DAMAGED, BTreeSet<BlockNo>>,
}

impl Twice {
    /// The same blocks, nothing noted.
    pub(super) fn again(&self) -> Twice {
        let again = Twice::default();
        if let Some(place) = self.place.get() {
            again.place.get_or_init(|| *place);
        }
        again
    }

    /// These blocks have copies, from block `copies` on.
    pub(super) fn begin(&self, blocks: &Range<u64>, copies: u64) {
        self.place.get_or_init(|| Place {
            first: blocks.start,
            blocks: blocks.end - blocks.start,
            copies,
        });
    }

    /// Whether there are such blocks.
    pub(super) fn is_used(&self) -> bool {
        self.place.get().is_some()
    }

    pub(super) fn copy_of(&self, block: BlockNo) -> Option<BlockNo> {
        let place = self.place.get()?;
        let within = block.0.checked_sub(place.first)?;
        (within < place.blocks).then(|| BlockNo(place.copies + within))
    }

    /// What is to be written to copies when `bytes` are to blocks from `first` on.
    pub(super) fn of<'b>(&self, first: BlockNo, bytes: &'b [u8]) -> Option<(BlockNo, &'b [u8])> {
        let place = self.place.get()?;
        let end = first.0 + to_u64(bytes.len()) / BLOCK_BYTES_U64;
        let (start, stop) = (
            first.0.max(place.first),
            end.min(place.first + place.blocks),
        );
        let count = stop.checked_sub(start).filter(|count| *count > 0)?;
        let at = to_usize(start - first.0) * BLOCK_BYTES;
        let part = &bytes[at..at + to_usize(count) * BLOCK_BYTES];
        Some((BlockNo(place.copies + start - place.first), part))
    }

    pub(super) fn note(&self, block: BlockNo) {
        let mut noted = self.noted.lock();
        if noted.len() < NOTED_MAX {
            noted.insert(block);
        }
    }

    pub(super) fn take(&self) -> BTreeSet<BlockNo> {
        match self.is_used() {
            true => std::mem::take(&mut *self.noted.lock()),
            false => BTreeSet::new(),
        }
    }
}
