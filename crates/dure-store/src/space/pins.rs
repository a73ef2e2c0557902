//! Blocks that snapshots need.
//!
//! **Structure.** A block is *pinned* if it is live in the SIT of a snapshot, or is one of the
//! snapshots' own, which are in no SIT: tables, lists and pairs that are kept. A pinned block stays
//! allocated when it dies, so nothing is written to it.
//!
//! **Invariants.** Everything that a snapshot has live is pinned before an operation that began after the
//! snapshot can settle. The cleaner leaves segments alone that have a pinned block.
//!
//! **Crash.** Pins are counted anew at mount, from the SIT of each snapshot (`crate::snapshot`).

use std::collections::BTreeMap;

use super::bitmap::Bitmap;
use super::mend::Change;
use super::segment::SegmentState;
use super::{Space, sit};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::units::{BlockNo, Run, SegNo};

/// What SIT pairs have live, segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Pins(BTreeMap<SegNo, Bitmap>);

impl Pins {
    /// Adds what SIT pair `index`, read from block `at`, has live.
    ///
    /// # Errors
    /// `Corrupt`, naming pair, block and field.
    pub(crate) fn add_pair(
        &mut self,
        layout: &Layout,
        index: u64,
        (at, payload): (BlockNo, &[u8]),
    ) -> Result<()> {
        let index = u32::try_from(index).expect("SIT pairs are u32");
        let add = |segment, live: &Bitmap| self.add(segment, live);
        sit::live_blocks(layout, index, at.0, payload, add)
    }

    /// Whether it has this block.
    pub(crate) fn contains(&self, segment: SegNo, index: u32) -> bool {
        let blocks = self.0.get(&segment);
        blocks.is_some_and(|blocks| blocks.contains(index))
    }

    fn add(&mut self, segment: SegNo, blocks: &Bitmap) {
        if !blocks.is_empty() {
            self.0.entry(segment).or_default().insert(blocks);
        }
    }
}

impl Space {
    /// A snapshot is taken: everything that is live is pinned. No operation settles meanwhile.
    pub(crate) fn pin_live(&self) {
        for segment in self.segments.touched() {
            self.segments.with(segment, |state| {
                let live = state.live;
                state.pin(&live);
            });
        }
    }

    /// Mount: pins these blocks, and `own`, those of the snapshots' own.
    ///
    /// # Errors
    /// `Corrupt` for a block outside of the main area, or an own one that is live.
    pub(crate) fn pin(&self, mut pins: Pins, own: &[BlockNo]) -> Result<()> {
        self.expect_dead(own)?;
        self.add_own(&mut pins, own)?;
        for (segment, blocks) in &pins.0 {
            let taken = self.segments.with(*segment, |state| state.pin(blocks));
            self.apply(Change {
                taken: u64::from(taken),
                ..Change::default()
            });
        }
        Ok(())
    }

    /// A snapshot is deleted, durably: only these blocks and `own` are pinned from now on. The others
    /// are free, unless they are live.
    ///
    /// # Errors
    /// `Corrupt` for a block outside of the main area.
    pub(crate) fn pin_only(&self, mut pins: Pins, own: &[BlockNo]) -> Result<()> {
        self.add_own(&mut pins, own)?;
        for segment in self.segments.touched() {
            let blocks = pins.0.get(&segment).copied().unwrap_or_default();
            let free = self.segments.with(segment, |state| state.pin_only(&blocks));
            self.pinned_only.add(-i64::from(free));
            self.apply(Change {
                given: u64::from(free),
                ..Change::default()
            });
        }
        Ok(())
    }

    /// No file and no node has a block of the snapshots' own: it would be freed while it is in use.
    ///
    /// # Errors
    /// `Corrupt`: the SIT, or a log, says otherwise.
    pub(crate) fn expect_dead(&self, own: &[BlockNo]) -> Result<()> {
        match own.iter().find(|block| self.is_live(**block)) {
            None => Ok(()),
            Some(block) => Err(Error::Corrupt {
                what: "block of snapshots or of lists of shared blocks: not live for a file".into(),
                at: block.0,
                want: 0,
                got: 1,
            }),
        }
    }

    fn add_own(&self, pins: &mut Pins, own: &[BlockNo]) -> Result<()> {
        let of_shared = self.own_of_shared();
        for &first in own.iter().chain(&of_shared) {
            for piece in self.checked_pieces(Run { first, count: 1 })? {
                pins.add(piece.segment, &Bitmap::of(piece.first, 1));
            }
        }
        Ok(())
    }

    /// A block that was allocated is the snapshots' own from now on.
    pub(crate) fn adopt(&self, block: BlockNo) {
        let (segment, index) = self.locate(block);
        self.segments
            .with(segment, |state| state.pin(&Bitmap::of(index, 1)));
        self.pinned_only.add(1);
    }

    /// A block is not the snapshots' own any more. It stays allocated until [`Space::release`].
    pub(crate) fn disown(&self, block: BlockNo) {
        let (segment, index) = self.locate(block);
        self.segments.with(segment, |state| state.unpin(index));
        self.pinned_only.add(-1);
    }

    /// Counts what only snapshots need, once the mount knows what is live.
    pub(crate) fn count_pinned(&self) {
        let of = |segment| {
            let count = |state: &SegmentState| i64::from(state.pinned_only());
            self.segments.peek(segment, count)
        };
        let now: i64 = self.segments.touched().filter_map(of).sum();
        self.pinned_only.add(now - self.pinned_only.sum());
    }
}
