//! Which blocks a scrub compares, and which owners they have.
//!
//! **Structure.** The summaries of neighbouring segments are read in one request, without a lock
//! ([`Summaries`]). Then the bitmaps and the owners that are only in memory are laid over them
//! ([`Space::in_use`]): that is right if no checkpoint was made meanwhile, which the caller sees to.
//!
//! **Invariants.** A summary whose slot counts and does not verify is read once more by itself, while
//! the caller keeps checkpoints away: what fails then is damage. **Crash.** Nothing is written.

use std::ops::Range;

use dure_block::BLOCK_BYTES;
use zerocopy::FromBytes;

use super::segment::SegmentState;
use super::{Space, summary};
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::summary::{SummaryBlock, SummaryEntry};
use crate::format::volume::SlotCode;
use crate::pair;
use crate::units::{BlockNo, SegNo, to_u64, to_usize};

/// Summaries of neighbouring segments, as the medium had them.
#[derive(Debug)]
pub(crate) struct Summaries {
    /// Where the first of them begins.
    first: u64,
    /// Empty if the request failed: then each is read by itself.
    bytes: Vec<u8>,
}

impl Summaries {
    /// Blocks that were read.
    pub(crate) fn blocks(&self) -> u64 {
        to_u64(self.bytes.len() / BLOCK_BYTES)
    }

    /// The block with this number, if it was read.
    fn block(&self, block: u64) -> Option<&[u8]> {
        let at = to_usize(block.checked_sub(self.first)?) * BLOCK_BYTES;
        self.bytes.get(at..at + BLOCK_BYTES)
    }
}

/// A block whose content counts.
#[derive(Debug, Clone, Copy)]
pub struct InUse {
    /// The block.
    pub block: BlockNo,
    /// Its owner, as the summary has it: a hint.
    pub owner: SummaryEntry,
    /// It is live; else only snapshots need it.
    pub live: bool,
}

/// The blocks of a segment whose content counts, ascending.
#[derive(Debug)]
pub struct SegmentInUse {
    /// The segment.
    pub segment: SegNo,
    /// Its blocks.
    pub blocks: Vec<InUse>,
}

impl Space {
    /// How many blocks count in segments from `from` on.
    #[must_use]
    pub fn blocks_in_use(&self, from: SegNo) -> u64 {
        let behind = self.segments.touched().filter(|segment| *segment >= from);
        behind.map(|segment| self.count_in_use(segment)).sum()
    }

    /// How many blocks count in these segments.
    #[must_use]
    pub fn blocks_in_use_among(&self, segments: Range<u32>) -> u64 {
        segments.map(|n| self.count_in_use(SegNo(n))).sum()
    }

    fn count_in_use(&self, segment: SegNo) -> u64 {
        let count = |state: &SegmentState| u64::from(state.in_use().count());
        self.segments.peek(segment, count).unwrap_or(0)
    }

    /// Reads the summaries of these segments.
    pub(crate) fn read_summaries(&self, segments: &Range<u32>) -> Summaries {
        let (layout, len) = (&self.layout, segments.end.saturating_sub(segments.start));
        let first = layout.summary_pair(SegNo(segments.start), 0);
        let blocks = 2 * u64::from(layout.summary_pairs) * u64::from(len);
        let mut bytes = vec![0; to_usize(blocks) * BLOCK_BYTES];
        if self.region.read(BlockNo(first), &mut bytes).is_err() {
            bytes.clear();
        }
        Summaries { first, bytes }
    }

    /// The blocks of a segment that count; adds to `damage` what is wrong with its summary. No
    /// checkpoint was made since `read` was, and none is made meanwhile.
    pub(crate) fn in_use(
        &self,
        segment: SegNo,
        read: &Summaries,
        damage: &mut Vec<(SegNo, Error)>,
    ) -> SegmentInUse {
        let found = self.segments.peek(segment, |state| {
            let blocks = state.in_use();
            let overlay = state.overlay.as_deref();
            let recent = |index| overlay.and_then(|overlay| overlay.get(index));
            let recent: Vec<_> = blocks.iter().map(recent).collect();
            (blocks, state.live, recent, state.summaries)
        });
        let Some((blocks, live, recent, codes)) = found else {
            let blocks = Vec::new();
            return SegmentInUse { segment, blocks };
        };
        let pairs: Vec<Option<SummaryBlock>> = (0..self.layout.summary_pairs)
            .zip(codes)
            .map(|(n, code)| {
                let found = self.summary_in(read, (segment, n), code);
                found.unwrap_or_else(|error| {
                    damage.push((segment, error));
                    None
                })
            })
            .collect();
        let written = |index| {
            let pair = pairs.get(summary::pair_of(index) as usize)?;
            pair.as_ref().map(|pair| summary::entry_of(pair, index))
        };
        let blocks = blocks.iter().zip(recent).map(|(index, recent)| InUse {
            block: self.block(segment, index),
            owner: recent.or_else(|| written(index)).unwrap_or_default(),
            live: live.contains(index),
        });
        SegmentInUse {
            segment,
            blocks: blocks.collect(),
        }
    }

    /// What counts of a summary pair, from what was read, or else from the medium.
    fn summary_in(
        &self,
        read: &Summaries,
        (segment, n): (SegNo, u32),
        code: SlotCode,
    ) -> Result<Option<SummaryBlock>> {
        let SlotCode::Slot(slot) = code else {
            return Ok(None);
        };
        let first = self.layout.summary_pair(segment, n);
        let (kind, seed) = (pair_kind::SUMMARY, self.layout.crc_seed);
        let opened = read
            .block(first + slot)
            .and_then(|block| pair::open_slot(block, first, slot, kind, seed).ok())
            .and_then(|payload| SummaryBlock::read_from_bytes(payload).ok())
            .filter(|block| block.segment.get() == u64::from(segment.0));
        match opened {
            Some(block) => Ok(Some(block)),
            None => summary::read(&self.region, &self.layout, (segment, n), code),
        }
    }
}
