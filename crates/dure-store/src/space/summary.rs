//! Segment summaries between medium and memory.
//!
//! **Problem.** The cleaner needs the owner of every live block, and the summaries of a whole
//! volume do not fit into memory.
//!
//! **Structure.** Only what changed since the last checkpoint is in memory: an *overlay* of the
//! entries set since. The checkpoint reads the pair, lays the overlay over it, hands the result out
//! for writing and drops the overlay. The SIT entry names the slot that counts.
//!
//! # Invariants
//! Setting an owner never does I/O. A summary is a hint: a user of an entry asks the owner; and an
//! entry that is missing proves nothing. So a pair that cannot be read back when it is rewritten
//! counts as empty; all other readers report it.
//!
//! **Crash.** What was written is in a slot that does not count, and recovery sets the owners of
//! what the logs name again.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::bitmap::{BITS, Bitmap};
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::summary::{ENTRIES, SummaryBlock, SummaryEntry};
use crate::format::volume::SlotCode;
use crate::layout::Layout;
use crate::media::Region;
use crate::pair;
use crate::units::SegNo;

/// Summary pairs of the largest segment.
pub(crate) const PAIRS_MAX: usize = 2;
const _: () = assert!(BITS.div_ceil(ENTRIES) == 2);

/// The entries of one segment that were set since its summary was last written.
#[derive(Debug)]
pub(crate) struct Overlay {
    entries: Box<[SummaryEntry]>,
    set: Bitmap,
}

impl Overlay {
    /// Nothing set yet.
    pub(crate) fn new(segment_blocks: u32) -> Overlay {
        let entries = (0..segment_blocks)
            .map(|_| SummaryEntry::default())
            .collect();
        Overlay {
            entries,
            set: Bitmap::EMPTY,
        }
    }

    /// Sets the owner of block `index`.
    pub(crate) fn set(&mut self, index: u32, owner: SummaryEntry) {
        self.entries[index as usize] = owner;
        self.set.insert(&Bitmap::of(index, 1));
    }

    /// The owner of block `index`, if it was set.
    pub(crate) fn get(&self, index: u32) -> Option<SummaryEntry> {
        self.set
            .contains(index)
            .then(|| self.entries[index as usize])
    }

    /// Whether anything of pair `n` was set.
    pub(crate) fn touches(&self, n: u32) -> bool {
        !self.set.and(&blocks_of(n)).is_empty()
    }

    /// The blocks of pair `n` among `blocks` whose entries are not here.
    pub(crate) fn missing(&self, n: u32, blocks: &Bitmap) -> Bitmap {
        blocks.and(&blocks_of(n)).without(&self.set)
    }

    /// The payload of pair `n`: the overlay over what the medium has.
    pub(crate) fn payload(
        &self,
        checkpoint: u64,
        segment: SegNo,
        n: u32,
        old: Option<&SummaryBlock>,
    ) -> Vec<u8> {
        let mut block = SummaryBlock {
            checkpoint: U64::new(checkpoint),
            segment: U64::new(u64::from(segment.0)),
            entries: old.map_or([SummaryEntry::default(); ENTRIES as usize], |old| {
                old.entries
            }),
            reserved: [0; 16],
        };
        for index in self.set.and(&blocks_of(n)).iter() {
            block.entries[(index - n * ENTRIES) as usize] = self.entries[index as usize];
        }
        block.as_bytes().to_vec()
    }
}

/// Pair `n` of `segment` as the medium has it; `None` when it was never written.
///
/// # Errors
/// `Corrupt`, naming segment, pair and block; `Block` when reading fails.
pub fn read(
    region: &Region,
    layout: &Layout,
    (segment, n): (SegNo, u32),
    code: SlotCode,
) -> Result<Option<SummaryBlock>> {
    let SlotCode::Slot(slot) = code else {
        return Ok(None);
    };
    let first = layout.summary_pair(segment, n);
    let payload = pair::read_slot(region, first, slot, pair_kind::SUMMARY, layout.crc_seed)?;
    let block = SummaryBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
    let (want, got) = (u64::from(segment.0), block.segment.get());
    Error::expect_eq("segment of a summary", first + slot, want, got)?;
    Ok(Some(block))
}

/// The pair that holds the entry of block `index`.
pub(crate) fn pair_of(index: u32) -> u32 {
    index / ENTRIES
}

/// The entry of block `index`.
pub(crate) fn entry_of(block: &SummaryBlock, index: u32) -> SummaryEntry {
    block.entries[(index % ENTRIES) as usize]
}

/// The blocks whose entries pair `n` holds.
fn blocks_of(n: u32) -> Bitmap {
    let first = (n * ENTRIES).min(BITS);
    Bitmap::of(first, ENTRIES.min(BITS - first))
}
