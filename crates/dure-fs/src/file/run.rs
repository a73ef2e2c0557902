//! Gathering neighbours: blocks of neighbouring slots become one run.

use dure_store::format::slot::LEAF_GRANULE_SLOTS;
use dure_store::units::{BlockNo, Run, SlotRef};

/// Gathers (slot, block) pairs that come in ascending order into runs within one granule.
#[derive(Debug, Default)]
pub(crate) struct SlotRuns {
    open: Option<(SlotRef, Run)>,
}

impl SlotRuns {
    /// Adds one pair; returns the run that ended before it, if one did.
    pub(crate) fn push(&mut self, owner: SlotRef, block: BlockNo) -> Option<(SlotRef, Run)> {
        assert!(!block.is_none() && u64::from(owner.slot) < LEAF_GRANULE_SLOTS);
        if let Some((first, run)) = &mut self.open {
            let count = u64::from(run.count);
            let next_slot = u64::from(first.slot) + count == u64::from(owner.slot);
            let same_granule = (first.nid, first.granule) == (owner.nid, owner.granule);
            if same_granule && next_slot && run.first.0 + count == block.0 {
                run.count += 1;
                return None;
            }
        }
        self.open.replace((
            owner,
            Run {
                first: block,
                count: 1,
            },
        ))
    }

    /// The last run.
    pub(crate) fn end(self) -> Option<(SlotRef, Run)> {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use dure_store::units::Nid;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Runs, taken apart again, are the pairs that went in; and no two neighbours could be one.
        #[test]
        fn runs_are_the_pairs_gathered(
            pairs in prop::collection::btree_map((0..3_u64, 0..2_u8, 0..64_u8), 1..6_u64, 1..80),
        ) {
            let pairs: Vec<(SlotRef, BlockNo)> = pairs.into_iter().map(|((nid, granule, slot), jump)| {
                let owner = SlotRef { nid: Nid(nid), granule, slot };
                (owner, BlockNo(1000 + u64::from(slot) + 1000 * (jump / 4)))
            }).collect();
            let mut gather = SlotRuns::default();
            let mut runs: Vec<_> =
                pairs.iter().filter_map(|&(owner, block)| gather.push(owner, block)).collect();
            runs.extend(gather.end());
            let apart: Vec<(SlotRef, BlockNo)> = runs.iter().flat_map(|&(owner, run)| {
                (0..run.count).map(move |n| {
                    let slot = owner.slot + u8::try_from(n).expect("a run of slots is within its granule");
                    (SlotRef { slot, ..owner }, BlockNo(run.first.0 + u64::from(n)))
                })
            }).collect();
            prop_assert_eq!(apart, pairs);
            for two in runs.windows(2) {
                let ((a, run), (b, next)) = (two[0], two[1]);
                let count = u8::try_from(run.count).expect("a run of slots is within its granule");
                let joins = (a.nid, a.granule, a.slot + count) == (b.nid, b.granule, b.slot)
                    && run.first.0 + u64::from(run.count) == next.first.0;
                prop_assert!(!joins);
            }
        }
    }
}
