//! How much data waits in persistent memory to be moved to the device.

use dure_store::placement::Target;
use dure_store::units::to_usize;
use dure_sync::CoreId;

use crate::file::Files;

/// One of so many neighbouring blocks asks whether there is something to move.
const BLOCKS_PER_LOOK: u32 = 32;

impl Files {
    /// Pages of this partition went to these blocks: wakes its worker if too many blocks of
    /// persistent memory are in use. Counting these reads what other cores write, so only a few
    /// blocks of each segment ask, and those that found no room there.
    pub(super) fn want_moves_if_many(&self, partition: CoreId, targets: &[Target]) {
        let asks = |target: &Target| {
            let place = self.store.layout.locate(target.block);
            place.is_some_and(|(_, index)| index.is_multiple_of(BLOCKS_PER_LOOK))
                || !self.store.layout.is_in_nvm(target.block)
        };
        let looks = self.options.each_write_looks || targets.iter().any(asks);
        if looks && self.absorbed_over() > 0 {
            self.workers.want_moves(partition);
        }
    }

    /// Segments' worth of absorbed data that is too much.
    pub(crate) fn absorbed_over(&self) -> usize {
        let Some(high) = self.options.absorbed_high else {
            return 0;
        };
        let segment = u64::from(self.store.layout.segment_blocks);
        let high = u64::from(high) * segment;
        let over = self.store.space.nvm_data_blocks().saturating_sub(high);
        to_usize(over.div_ceil(segment))
    }
}
