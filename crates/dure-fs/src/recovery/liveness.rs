//! Which blocks named by log records are live: exactly those their owner points to in the recovered
//! state. A free is never replayed (journal-model.md, finding 8): the block may have been used again.

use std::collections::BTreeMap;

use super::Base;
use super::replay::{Replayed, recovered_slot};
use crate::error::Result;
use crate::format::summary::{OWNER_SLOT, SummaryEntry};
use crate::op::SlotRef;
use crate::space::Space;
use crate::units::{BlockNo, Nid, Run};
use zerocopy::little_endian::U64;

/// Puts the space map right for every block a surviving record names.
///
/// # Errors
/// Errors of reading a summary or an owner's image.
pub(crate) fn mend(base: &impl Base, space: &Space, replayed: &Replayed) -> Result<()> {
    let mut owners: BTreeMap<BlockNo, Vec<SlotRef>> = BTreeMap::new();
    for (owner, run) in &replayed.blocks {
        for n in 0..run.count {
            let slot = owner.slot + u8::try_from(n).expect("checked when the note was read");
            let block = BlockNo(run.first.0 + u64::from(n));
            owners
                .entry(block)
                .or_default()
                .push(SlotRef { slot, ..*owner });
        }
    }
    for (block, named) in owners {
        let run = Run {
            first: block,
            count: 1,
        };
        let mut owner = None;
        for &slot in &named {
            if owner.is_none() && points_to(base, replayed, slot, block)? {
                owner = Some(slot);
            }
        }
        if let Some(owner) = owner {
            space.mend_live(run)?;
            let entry = SummaryEntry {
                nid: U64::new(owner.nid.0),
                kind: OWNER_SLOT,
                granule: owner.granule,
                slot: owner.slot,
                reserved: 0,
            };
            space.set_owner(block, entry);
        } else if space.is_live(block) && !owned_elsewhere(base, space, replayed, block, &named)? {
            space.mend_dead(run)?;
        }
    }
    // What recovery writes must not lie where a record points: if it crashes, the next one follows
    // the records again.
    for (_, run) in &replayed.blocks {
        space.fence(*run)?;
    }
    Ok(())
}

fn points_to(
    base: &impl Base,
    replayed: &Replayed,
    owner: SlotRef,
    block: BlockNo,
) -> Result<bool> {
    let slot = recovered_slot(base, &replayed.nodes, owner)?;
    Ok(slot.is_some_and(|slot| slot.block() == block))
}

/// The block was freed by a handle still in a log and used again by one whose log has been left behind:
/// then the summary, durable before that tail passed, names the present owner.
fn owned_elsewhere(
    base: &impl Base,
    space: &Space,
    replayed: &Replayed,
    block: BlockNo,
    named: &[SlotRef],
) -> Result<bool> {
    let entry = space.owner(block)?;
    let nid = Nid(entry.nid.get());
    if entry.kind != OWNER_SLOT {
        // A node image: its NAT entry decides, and the NAT says so itself.
        let nat = base.entry(nid)?;
        return Ok(entry.kind != 0 && nat.block() == block);
    }
    let owner = SlotRef {
        nid,
        granule: entry.granule,
        slot: entry.slot,
    };
    if named.contains(&owner) {
        return Ok(false);
    }
    points_to(base, replayed, owner, block)
}
