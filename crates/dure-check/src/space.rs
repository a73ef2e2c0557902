//! The space map as it should be, from the SIT and what the passes saw; for what writes a repair.

use std::collections::BTreeSet;

use dure_store::error::Result;
use dure_store::format::sit::ENTRIES;
use dure_store::space::Space;
use dure_store::units::{BlockNo, Run, SegNo, SlotRef};

use crate::context::Context;

/// Blocks without an owner that the SIT has live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unowned {
    /// They become free: nothing can have been lost.
    Freed,
    /// They stay: they may be the rest of something. So do listed owners of shared blocks.
    Kept,
}

/// Owned blocks are live, wrong owners in summaries are corrected, and logs are logs.
///
/// # Errors
/// `Corrupt` when blocks cannot be what they are owned for.
pub(crate) fn owned(context: &Context<'_>, unowned: Unowned) -> Result<Space> {
    let layout = &context.layout;
    let space = Space::new_empty(context.region.clone(), layout, context.packs.clone());
    for (index, block) in &context.sit {
        for (segment, entry) in (index * ENTRIES..layout.segments).zip(&block.entries) {
            space.load_damaged(SegNo(segment), entry);
        }
    }
    let place = (&*context.region, layout);
    context.snapshots.pin(place, &space, &context.packs)?;
    for segment in &context.log_segments {
        space.mark_log(layout.segment_start(*segment))?;
    }
    let block = |index: u64| Run {
        first: BlockNo(layout.main + index),
        count: 1,
    };
    let is_log = |segment: SegNo| context.log_segments.contains(&segment);
    let in_log = |index: u64| {
        let place = layout.locate(BlockNo(layout.main + index));
        place.is_some_and(|(segment, _)| is_log(segment))
    };
    for index in context.owned.touched().flatten() {
        if context.owned.get(index) && !in_log(index) {
            space.mend_live(block(index))?;
        }
    }
    if unowned == Unowned::Freed {
        let per_segment = u64::from(layout.segment_blocks);
        let in_sit = context.sit.keys();
        let in_sit = in_sit.flat_map(|pair| pair * ENTRIES..(pair + 1) * ENTRIES);
        for segment in in_sit.filter(|&n| n < layout.segments && !is_log(SegNo(n))) {
            let start = u64::from(segment) * per_segment;
            for index in (start..start + per_segment).filter(|n| !context.owned.get(*n)) {
                space.mend_dead(block(index))?;
            }
        }
    }
    for (block, sharers) in &context.shared.blocks {
        let found = sharers.found.iter().map(|(owner, _)| *owner);
        let mut slots: BTreeSet<SlotRef> = found.collect();
        // A slot that was not found may lie in a node that cannot be read now.
        if unowned == Unowned::Kept && !space.is_dead(*block) {
            slots.extend(&sharers.listed);
        }
        let slots: Vec<SlotRef> = slots.into_iter().collect();
        space.mend_owners(*block, &slots);
    }
    // The lists count as they are until the volume header names others.
    for first in context.shared.own.iter().copied() {
        space.fence(Run { first, count: 1 })?;
    }
    for (block, owner) in &context.repairs.summaries {
        space.set_owner(*block, *owner);
    }
    Ok(space)
}
