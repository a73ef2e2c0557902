//! Segment summaries between medium and memory.
//!
//! **Problem.** The cleaner needs the owner of every live block, and the summaries of a whole
//! volume do not fit into memory. **Structure.** Only what changed since the last checkpoint is in
//! memory: an *overlay* of the entries set since. The checkpoint reads the pair, lays the overlay
//! over it, hands the result out for writing and drops the overlay. **Invariants.** Setting an
//! owner never does I/O. A summary is a hint: whoever uses an entry asks the owner. So a pair that
//! cannot be read back when it is rewritten (a torn first write, or what an earlier volume left
//! there) counts as empty; only [`open`] for a block that is known to be live reports it.
//! **Crash.** A torn write leaves the older slot, and recovery sets the owners of what the logs
//! name again.

use dure_block::{BLOCK_BYTES, Lba, Queue};
use dure_journal::format::slotted::{self, SlotKind};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::bitmap::{BITS, Bitmap};
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::summary::{ENTRIES, SummaryBlock, SummaryEntry};
use crate::layout::Layout;
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

/// What the medium has of a pair.
#[derive(Debug)]
pub(crate) struct SummaryPair {
    /// The newest generation.
    pub(crate) generation: u64,
    /// Its content.
    pub(crate) block: SummaryBlock,
}

/// Reads pair `n` of `segment`; `None` when neither slot is valid.
///
/// # Errors
/// `Block` when reading fails.
pub(crate) fn read(
    queue: &Queue,
    layout: &Layout,
    segment: SegNo,
    n: u32,
) -> Result<Option<SummaryPair>> {
    let pair = Lba::new(layout.summary_pair(segment, n));
    let mut bytes = vec![0; 2 * BLOCK_BYTES];
    queue.read(pair, &mut bytes)?;
    let (first, second) = bytes.split_at(BLOCK_BYTES);
    let kind = SlotKind(pair_kind::SUMMARY);
    let Some(newest) = slotted::open(first, second, kind, pair, layout.crc_seed) else {
        return Ok(None);
    };
    let block = SummaryBlock::read_from_bytes(newest.body).expect("a pair's payload has this size");
    let at = slotted::address(pair, newest.generation).number();
    let what = || format!("generation of summary pair {n} of segment {}", segment.0);
    Error::expect_count(what, at, newest.generation)?;
    Error::expect_eq(
        "segment of a summary",
        at,
        u64::from(segment.0),
        block.segment.get(),
    )?;
    Ok(Some(SummaryPair {
        generation: newest.generation,
        block,
    }))
}

/// As [`read`], for a segment that has live blocks there: a pair without a valid slot is corrupt.
///
/// # Errors
/// `Corrupt`, naming segment, pair and block; `Block` when reading fails.
pub(crate) fn open(queue: &Queue, layout: &Layout, segment: SegNo, n: u32) -> Result<SummaryPair> {
    read(queue, layout, segment, n)?.ok_or_else(|| Error::Corrupt {
        what: format!(
            "summary pair {n} of segment {}: both slots invalid",
            segment.0
        ),
        at: layout.summary_pair(segment, n),
        want: 1,
        got: 0,
    })
}

/// The pair that holds the entry of block `index`.
pub(crate) fn pair_of(index: u32) -> u32 {
    index / ENTRIES
}

/// Checks the reserved byte of an entry, and gives it.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn entry_of(pair: &SummaryPair, index: u32, at: u64) -> Result<SummaryEntry> {
    let entry = pair.block.entries[(index % ENTRIES) as usize];
    Error::expect_eq(
        "summary entry: reserved byte",
        at,
        0,
        u64::from(entry.reserved),
    )?;
    Ok(entry)
}

/// The blocks whose entries pair `n` holds.
fn blocks_of(n: u32) -> Bitmap {
    let first = (n * ENTRIES).min(BITS);
    Bitmap::of(first, ENTRIES.min(BITS - first))
}
