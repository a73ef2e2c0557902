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
use dure_store::units::BlockNo;
use dure_sync::CoreId;

use super::{CleanReport, VICTIMS_PER_ROUND};
use crate::cleaner::Cleaner;
use crate::volume::Absorbed;

impl Cleaner {
    /// Moves data of these partitions to the device. Returns whether there is more to move. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// `Stopped`, `ReadOnly`, a failed read or write: then nothing was lost.
    pub(crate) fn move_absorbed(&self, partitions: &[CoreId]) -> Result<bool> {
        self.store.check_writable()?;
        let over = self.files.absorbed_over();
        if over == 0 {
            return Ok(false);
        }
        let count = over.clamp(self.least_victims(), VICTIMS_PER_ROUND);
        let victims = self.store.space.absorbed_victims(partitions, count);
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
            self.store.commit_all()
        });
        let blocks = i64::try_from(report.data).expect("few blocks a round");
        self.counters.moved_blocks.add(blocks);
        moved.map(|()| report.data > 0 && self.files.absorbed_over() > 0)
    }

    /// Segments of a round of moves, at least: an eighth of all, so that a flush covers many pages
    /// also of segments of which little lives.
    fn least_victims(&self) -> usize {
        let all = self.store.absorb().map_or(0, |absorb| absorb.segments_max);
        dure_store::units::to_usize(u64::from(all / 8)).clamp(1, VICTIMS_PER_ROUND)
    }

    /// How much is in persistent memory, and was moved.
    pub(crate) fn absorbed(&self) -> Option<Absorbed> {
        let segment = u64::from(self.store.layout.segment_blocks);
        Some(Absorbed {
            blocks_max: u64::from(self.store.absorb()?.segments_max) * segment,
            blocks: self.store.space.nvm_data_blocks(),
            moved: u64::try_from(self.counters.moved_blocks.sum()).unwrap_or(0),
            refused: u64::try_from(self.store.placement.absorb_refused.sum()).unwrap_or(0),
        })
    }

    /// Whether the block is where data only waits to be moved to the device.
    pub(super) fn absorbs_at(&self, block: BlockNo) -> bool {
        self.store.absorb().is_some() && self.store.layout.is_in_nvm(block)
    }
}
