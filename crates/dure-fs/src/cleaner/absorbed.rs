//! Moving data from persistent memory to the block device: `page_cache=nvram`.
//!
//! **Structure.** Each worker empties segments of absorbed data in its partitions' share, those
//! first that have not changed for long, while there are more than may be. What was overwritten or
//! deleted since is not moved. Data goes to the device in long runs, is flushed there, and then
//! named; the old blocks are free when the operations are valid, without a checkpoint.
//!
//! **On a crash** a slot names the old block or the new one, both with the same bytes. Crash scenario
//! if the flush came after the operation: the log, in persistent memory, says that the page is on the
//! device, the device has lost it, and the block in persistent memory is free.

use dure_store::error::Result;
use dure_store::format::summary::OWNER_SLOT;
use dure_store::placement::Target;
use dure_store::units::BlockNo;
use dure_sync::CoreId;

use super::{CleanReport, VICTIMS_PER_ROUND};
use crate::volume::{Absorbed, Volume};

/// Of so many neighbouring blocks one asks whether there is something to move.
const BLOCKS_PER_LOOK: u32 = 32;

impl Volume {
    /// Pages of this partition went to these blocks: wakes its worker if too many blocks of
    /// persistent memory are in use. Counting these reads what other cores write, so only a few
    /// blocks of each segment ask, and those that found no room there.
    pub(crate) fn want_moves_if_many(&self, partition: CoreId, targets: &[Target]) {
        let asks = |target: &Target| {
            let place = self.layout.locate(target.block);
            place.is_some_and(|(_, index)| index.is_multiple_of(BLOCKS_PER_LOOK))
                || !self.layout.is_in_nvm(target.block)
        };
        if targets.iter().any(asks) && self.absorbed_over() > 0 {
            self.want_moves(partition);
        }
    }

    /// Moves data of these partitions to the device. Returns whether there is more to move. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// `Stopped`, `ReadOnly`, a failed read or write: then nothing was lost.
    pub(crate) fn move_absorbed(&self, partitions: &[CoreId]) -> Result<bool> {
        self.check_writable()?;
        let over = self.absorbed_over();
        if over == 0 {
            return Ok(false);
        }
        let count = over.clamp(self.least_victims(), VICTIMS_PER_ROUND);
        let victims = self.space.absorbed_victims(partitions, count);
        let mut report = CleanReport::default();
        let moved = self.holding(&victims, |held| {
            let mut slots = Vec::new();
            for owners in self.owners_of(held, &mut report) {
                slots.extend(
                    owners
                        .into_iter()
                        .filter(|(_, owner)| owner.kind == OWNER_SLOT),
                );
            }
            self.move_slots(slots, &mut report)?;
            self.commit_all()
        });
        let blocks = i64::try_from(report.data).expect("few blocks a round");
        self.counters.moved_blocks.add(blocks);
        moved.map(|()| report.data > 0 && self.absorbed_over() > 0)
    }

    /// Segments of a round of moves, at least: an eighth of all, so that a flush covers many pages
    /// also of segments of which little lives.
    fn least_victims(&self) -> usize {
        let all = self.absorb().map_or(0, |absorb| absorb.segments_max);
        dure_store::units::to_usize(u64::from(all / 8)).clamp(1, VICTIMS_PER_ROUND)
    }

    /// How much is in persistent memory, and was moved.
    pub(crate) fn absorbed(&self) -> Option<Absorbed> {
        let segment = u64::from(self.layout.segment_blocks);
        Some(Absorbed {
            blocks_max: u64::from(self.absorb()?.segments_max) * segment,
            blocks: self.space.nvm_data_blocks(),
            moved: u64::try_from(self.counters.moved_blocks.sum()).unwrap_or(0),
            refused: u64::try_from(self.placement.absorb_refused.sum()).unwrap_or(0),
        })
    }

    /// Segments' worth of absorbed data that is too much.
    fn absorbed_over(&self) -> usize {
        let Some(absorb) = self.absorb() else {
            return 0;
        };
        let segment = u64::from(self.layout.segment_blocks);
        let high = u64::from(self.options.nvram_high(absorb.segments_max)) * segment;
        let over = self.space.nvm_data_blocks().saturating_sub(high);
        dure_store::units::to_usize(over.div_ceil(segment))
    }

    /// Whether the block is where data only waits to be moved to the device.
    pub(super) fn absorbs_at(&self, block: BlockNo) -> bool {
        self.absorb().is_some() && self.layout.is_in_nvm(block)
    }
}
