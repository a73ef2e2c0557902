//! What the checkpoint writes, and what the cleaner reads.
//!
//! **Structure.** [`Space::changed_pairs`] says what changed since the last call, [`Space::collect`]
//! turns it into payloads of slotted pairs, each for the slot that does not count. **Invariants.** One checkpoint
//! at a time, and it completes before the next one collects; a checkpoint that fails stops the
//! volume, since what was collected counts as written. **Crash.** Live blocks are those of valid
//! handles and of the NAT written with them, so a SIT that leads the log is mended by replay.

use std::collections::BTreeSet;

use super::bitmap::Bitmap;
use super::segment::SegmentState;
use super::summary::{self, Overlay};
use super::{Space, sit};
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::sit::{ENTRIES, SitEntry};
use crate::format::summary::{SummaryBlock, SummaryEntry};
use crate::format::volume::SlotCode;
use crate::packs::PairIndex;
use crate::units::{BlockNo, SegNo};

/// One write of a slotted pair.
#[derive(Debug)]
pub(crate) struct PairWrite {
    /// First block of the pair.
    pub(crate) first: u64,
    /// `format::pair_kind`.
    pub(crate) kind: u32,
    /// Slot to write, the one that does not count.
    pub(crate) slot: u64,
    /// The pair to be named by the packs; `None` for a summary, which its SIT entry names.
    pub(crate) named: Option<PairIndex>,
    /// Content behind the slot header.
    pub(crate) payload: Vec<u8>,
}

/// What the checkpoint takes of a segment, all at one moment.
struct Taken {
    entry: SitEntry,
    overlay: Option<Box<Overlay>>,
    allocated: Bitmap,
    live: Bitmap,
}

impl Taken {
    /// Takes what has changed.
    fn of(state: &mut SegmentState) -> Taken {
        state.sit_dirty = false;
        Taken {
            entry: sit::entry(state),
            overlay: state.overlay.take(),
            allocated: state.allocated,
            live: state.live,
        }
    }
}

impl Space {
    /// The SIT pairs of all segments that changed since the last call, ascending.
    pub(crate) fn changed_pairs(&self) -> Vec<u32> {
        let changed = |segment: &SegNo| {
            let changed = |state: &SegmentState| state.sit_dirty || state.overlay.is_some();
            self.segments.peek(*segment, changed) == Some(true)
        };
        let dirty = self.segments.take_dirty().into_iter().filter(changed);
        let pairs: BTreeSet<u32> = dirty.map(|segment| segment.0 / ENTRIES).collect();
        pairs.into_iter().collect()
    }

    /// Everything of these SIT pairs and their summaries, marked clean. One task at a time collects
    /// a pair.
    ///
    /// # Errors
    /// `Block` when a summary cannot be read back. The volume has to stop then.
    pub(crate) fn collect(&self, checkpoint: u64, pairs: &[u32]) -> Result<Vec<PairWrite>> {
        let mut writes = Vec::new();
        for &pair in pairs {
            self.collect_pair(checkpoint, pair, &mut writes)?;
        }
        Ok(writes)
    }

    /// A SIT pair and the summaries of its segments.
    ///
    /// What a segment has is taken at one moment, under its lock ([`Taken`]). A block gets its
    /// owner before it is live, so each block that is live in the SIT has its owner in a summary of
    /// this checkpoint or an older one. Crash scenario otherwise: a handle becomes valid, or frees
    /// a block, between two looks at the segment; the SIT names a block as live and the summary
    /// names no owner; then a later handle frees the block, and recovery, which does not know its
    /// owner, leaves it in use for good.
    fn collect_pair(&self, checkpoint: u64, pair: u32, writes: &mut Vec<PairWrite>) -> Result<()> {
        let first = pair * ENTRIES;
        let segments = (first..self.layout.segments.min(first + ENTRIES)).map(SegNo);
        let mut entries = Vec::new();
        for segment in segments {
            let taken = self.segments.with(segment, Taken::of);
            let mut entry = taken.entry;
            if let Some(overlay) = &taken.overlay {
                self.collect_summary(checkpoint, segment, overlay, &taken, writes)?;
                // The entry names the slots of its summaries.
                entry.summaries = self.segments.with(segment, |state| sit::codes(state));
            }
            entries.push(entry);
        }
        let named = sit::pair_index(pair);
        writes.push(PairWrite {
            first: self.layout.sit_pair(pair),
            kind: pair_kind::SIT,
            slot: self.packs.code(named).next(),
            named: Some(named),
            payload: sit::payload(checkpoint, pair, &entries),
        });
        Ok(())
    }

    /// The owner of a live block, as its summary has it; none (`OWNER_NONE`) when the summary was
    /// never written, or was lost.
    ///
    /// # Errors
    /// `Corrupt` when the summary is not readable, `Block` when reading fails.
    pub fn owner(&self, block: BlockNo) -> Result<SummaryEntry> {
        let (segment, index) = self.locate(block);
        let n = summary::pair_of(index);
        let (recent, code) = self.segments.with(segment, |state| {
            let overlay = state.overlay.as_ref();
            let recent = overlay.and_then(|overlay| overlay.get(index));
            (recent, state.summaries[n as usize])
        });
        if let Some(owner) = recent {
            return Ok(owner);
        }
        let block = summary::read(&self.region, &self.layout, (segment, n), code)?;
        Ok(block.map_or_else(SummaryEntry::default, |block| {
            summary::entry_of(&block, index)
        }))
    }

    /// The live blocks of a segment and their owners, as the summaries have them. These are hints:
    /// only the owner knows whether it points to the block.
    ///
    /// # Errors
    /// `Corrupt` when a summary is not readable, `Block` when reading fails.
    pub fn owners(&self, segment: SegNo) -> Result<Vec<(BlockNo, SummaryEntry)>> {
        let (live, recent, codes) = self.segments.with(segment, |state| {
            let overlay = state.overlay.as_deref();
            let recent = |index| overlay.and_then(|overlay| overlay.get(index));
            (
                state.live,
                state.live.iter().map(recent).collect::<Vec<_>>(),
                state.summaries,
            )
        });
        let mut pairs: [Option<Option<SummaryBlock>>; summary::PAIRS_MAX] = [None, None];
        let mut owners = Vec::new();
        for (index, recent) in live.iter().zip(recent) {
            let n = summary::pair_of(index);
            let cached = &mut pairs[n as usize];
            if recent.is_none() && cached.is_none() {
                let code = codes[n as usize];
                *cached = Some(summary::read(
                    &self.region,
                    &self.layout,
                    (segment, n),
                    code,
                )?);
            }
            let written = || {
                cached
                    .as_ref()?
                    .as_ref()
                    .map(|block| summary::entry_of(block, index))
            };
            let owner = recent.or_else(written).unwrap_or_default();
            owners.push((self.block(segment, index), owner));
        }
        Ok(owners)
    }

    /// The summary pairs of which the overlay has entries, completed from the medium for the other
    /// blocks that were in use when it was taken.
    fn collect_summary(
        &self,
        checkpoint: u64,
        segment: SegNo,
        overlay: &Overlay,
        taken: &Taken,
        writes: &mut Vec<PairWrite>,
    ) -> Result<()> {
        for n in (0..self.layout.summary_pairs).filter(|&n| overlay.touches(n)) {
            let code = self
                .segments
                .with(segment, |state| state.summaries[n as usize]);
            let missing = overlay.missing(n, &taken.allocated);
            let mut old = None;
            if !missing.is_empty() {
                old = match summary::read(&self.region, &self.layout, (segment, n), code) {
                    // The other entries are lost, which affects only the cleaner: a missing entry
                    // frees no block.
                    Err(Error::Corrupt { .. }) => None,
                    found => found?,
                };
                if old.is_none() && !missing.and(&taken.live).is_empty() {
                    self.summaries_lost.add(1);
                }
            }
            let slot = code.next();
            writes.push(PairWrite {
                first: self.layout.summary_pair(segment, n),
                kind: pair_kind::SUMMARY,
                slot,
                named: None,
                payload: overlay.payload(checkpoint, segment, n, old.as_ref()),
            });
            self.segments.with(segment, |state| {
                state.summaries[n as usize] = SlotCode::Slot(slot);
            });
        }
        Ok(())
    }
}
