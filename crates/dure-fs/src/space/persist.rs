//! What the checkpoint writes, and what the cleaner reads.
//!
//! **Structure.** [`Space::collect`] turns everything that changed since the last call into
//! payloads of slotted pairs and knows the generation of each. **Invariants.** One checkpoint at a
//! time, and it flushes what it collected before it collects again; a checkpoint that fails stops
//! the volume, since what was collected counts as written. **Crash.** Live blocks are those of
//! valid handles and of the NAT just flushed, so a SIT that lags or leads the log is mended by
//! replay.

use std::collections::BTreeSet;

use dure_sync::atomic::Ordering;

use super::summary::{self, Overlay};
use super::{Space, sit};
use crate::error::Result;
use crate::format::pair_kind;
use crate::format::sit::ENTRIES;
use crate::format::summary::SummaryEntry;
use crate::units::{BlockNo, SegNo};

/// One write of a slotted pair.
#[derive(Debug)]
pub(crate) struct PairWrite {
    /// First block of the pair.
    pub(crate) first: u64,
    /// `format::pair_kind`.
    pub(crate) kind: u32,
    /// Generation to write, one more than the newest on the medium.
    pub(crate) generation: u64,
    /// Content behind the slot header.
    pub(crate) payload: Vec<u8>,
}

impl Space {
    /// Everything of SIT and summaries that changed since the last call, marked clean.
    ///
    /// # Errors
    /// `Block` when a summary cannot be read back. The volume has to stop then.
    pub(crate) fn collect(&self, checkpoint: u64) -> Result<Vec<PairWrite>> {
        let mut writes = Vec::new();
        let mut sit_pairs = BTreeSet::new();
        for segment in self.segments.take_dirty() {
            let (sit_dirty, overlay) = self.segments.with(segment, |state| {
                (std::mem::take(&mut state.sit_dirty), state.overlay.take())
            });
            if sit_dirty {
                sit_pairs.insert(segment.0 / ENTRIES);
            }
            if let Some(overlay) = overlay {
                self.collect_summary(checkpoint, segment, &overlay, &mut writes)?;
            }
        }
        writes.extend(
            sit_pairs
                .into_iter()
                .map(|pair| self.collect_sit(checkpoint, pair)),
        );
        Ok(writes)
    }

    /// The owner of a live block, as its summary has it; nobody when the summary has no valid slot.
    /// For recovery: a summary whose first write was torn belongs to a checkpoint that did not
    /// complete, so the owners it would have named are in the logs.
    ///
    /// # Errors
    /// `Corrupt` when the summary is another segment's, `Block` when reading fails.
    pub(crate) fn owner(&self, block: BlockNo) -> Result<SummaryEntry> {
        let (segment, index) = self.locate(block);
        let recent = self.segments.with(segment, |state| {
            state
                .overlay
                .as_ref()
                .and_then(|overlay| overlay.get(index))
        });
        if let Some(owner) = recent {
            return Ok(owner);
        }
        let pair = summary::read(&self.queue, &self.layout, segment, summary::pair_of(index))?;
        pair.map_or(Ok(SummaryEntry::default()), |pair| {
            self.entry(&pair, segment, index)
        })
    }

    /// The live blocks of a segment and their owners, as the summaries have them. Only the owner
    /// knows whether it is true.
    ///
    /// # Errors
    /// `Corrupt` when a summary is not readable, `Block` when reading fails.
    pub(crate) fn owners(&self, segment: SegNo) -> Result<Vec<(BlockNo, SummaryEntry)>> {
        let (live, recent) = self.segments.with(segment, |state| {
            let overlay = state.overlay.as_deref();
            let recent = |index| overlay.and_then(|overlay| overlay.get(index));
            (
                state.live,
                state.live.iter().map(recent).collect::<Vec<_>>(),
            )
        });
        let mut pairs = [const { None }; summary::PAIRS_MAX];
        let mut owners = Vec::new();
        for (index, recent) in live.iter().zip(recent) {
            let n = summary::pair_of(index);
            let cached = &mut pairs[n as usize];
            let owner = match (recent, &*cached) {
                (Some(owner), _) => owner,
                (None, Some(pair)) => self.entry(pair, segment, index)?,
                (None, None) => {
                    let pair = summary::open(&self.queue, &self.layout, segment, n)?;
                    self.entry(cached.insert(pair), segment, index)?
                }
            };
            owners.push((self.block(segment, index), owner));
        }
        Ok(owners)
    }

    fn entry(
        &self,
        pair: &summary::SummaryPair,
        segment: SegNo,
        index: u32,
    ) -> Result<SummaryEntry> {
        let at = self.layout.summary_pair(segment, summary::pair_of(index));
        summary::entry_of(pair, index, at)
    }

    fn collect_summary(
        &self,
        checkpoint: u64,
        segment: SegNo,
        overlay: &Overlay,
        writes: &mut Vec<PairWrite>,
    ) -> Result<()> {
        for n in (0..self.layout.summary_pairs).filter(|&n| overlay.touches(n)) {
            let (known, allocated, live) = self.segments.with(segment, |state| {
                (
                    state.summary_generations[n as usize],
                    state.allocated,
                    state.live,
                )
            });
            let missing = overlay.missing(n, &allocated);
            let mut old = None;
            if known == 0 || !missing.is_empty() {
                old = summary::read(&self.queue, &self.layout, segment, n)?;
                if old.is_none() && !missing.and(&live).is_empty() {
                    self.summaries_lost.add(1);
                }
            }
            let newest = old.as_ref().map_or(known, |old| old.generation.max(known));
            let generation = newest + 1;
            let old = old.filter(|_| !missing.is_empty());
            let old = old.as_ref().map(|old| &old.block);
            writes.push(PairWrite {
                first: self.layout.summary_pair(segment, n),
                kind: pair_kind::SUMMARY,
                generation,
                payload: overlay.payload(checkpoint, segment, n, old),
            });
            self.segments.with(segment, |state| {
                state.summary_generations[n as usize] = generation
            });
        }
        Ok(())
    }

    fn collect_sit(&self, checkpoint: u64, pair: u32) -> PairWrite {
        let first = pair * ENTRIES;
        let end = self.layout.segments.min(first + ENTRIES);
        let entries: Vec<_> = (first..end)
            .map(|segment| {
                self.segments
                    .with(SegNo(segment), |state| sit::entry(state))
            })
            .collect();
        let generation = &self.sit_generations[pair as usize];
        // Relaxed: only the one checkpoint uses it.
        let generation = generation.fetch_add(1, Ordering::Relaxed) + 1;
        PairWrite {
            first: self.layout.sit_pair(pair),
            kind: pair_kind::SIT,
            generation,
            payload: sit::payload(checkpoint, pair, &entries),
        }
    }
}
