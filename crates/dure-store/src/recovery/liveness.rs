//! Which blocks named by log records are live: exactly those their owner points to in the recovered
//! state. A free is never replayed (docs/design/journal-model.md, finding 8): the block may have
//! been used again.

use super::Base;
use super::replay::Replayed;
use super::slots::Slots;
use crate::error::{Error, Result};
use crate::format::nat::NatEntry;
use crate::format::summary::{OWNER_NONE, OWNER_SLOT, SummaryEntry};
use crate::space::Space;
use crate::units::SlotRef;
use crate::units::{BlockNo, Nid, Run, to_usize};
use zerocopy::little_endian::U64;

/// Puts the space map right for every block a surviving record names.
///
/// # Errors
/// Errors of reading a summary or an owner's image.
pub(crate) fn mend(base: &impl Base, space: &Space, replayed: &Replayed) -> Result<()> {
    let named = named_blocks(replayed);
    let mut slots = Slots::new(base, &replayed.nodes);
    for of_block in named.chunk_by(|a, b| a.0 == b.0) {
        let block = of_block[0].0;
        let owner = match space.may_share() {
            true => sharers(&mut slots, space, block, of_block)?,
            false => first_owner(&mut slots, block, of_block)?,
        };
        let run = Run {
            first: block,
            count: 1,
        };
        if let Some(owner) = owner {
            own(space, block, owner)?;
        } else if space.is_live(block)
            && !owned_elsewhere(base, &mut slots, space, block, of_block)?
        {
            space.mend_dead(run)?;
        }
    }
    // Every slot that a record has changed, whether or not a note names its block: notes are about
    // what came and went, the slots say what is.
    for (&nid, node) in &replayed.nodes {
        for (granule, slot) in node.slots_changed() {
            let named = node.slot(granule, slot).filter(|slot| !slot.is_hole());
            if let Some(block) = named.map(|slot| slot.block())
                && space.is_dead(block)
            {
                own(space, block, SlotRef { nid, granule, slot })?;
            }
        }
    }
    for (owner, block) in moved(base, replayed)? {
        if space.is_dead(block) {
            own(space, block, owner)?;
        }
    }
    // What recovery writes must not lie where a record points: if it crashes, the next one follows
    // the records again.
    let blocks = named.chunk_by(|a, b| b.0.0 <= a.0.0 + 1);
    for (first, last) in blocks.map(|run| (run[0].0, run[run.len() - 1].0)) {
        let count = u32::try_from(last.0 - first.0 + 1).expect("blocks of one volume");
        space.fence(Run { first, count })?;
    }
    Ok(())
}

fn first_owner(
    slots: &mut Slots<'_, impl Base>,
    block: BlockNo,
    named: &[(BlockNo, SlotRef)],
) -> Result<Option<SlotRef>> {
    for &(_, slot) in named {
        if points_to(slots, slot, block)? {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// Puts the list of the slots that name a block right, and returns one of them. Asked are those that
/// records name, and those that the last checkpoint knew of. These are all: an operation that shares a block names
/// both slots, and what the checkpoint does not know has its records in the logs.
///
/// Crash scenario without the list: A's block is shared with B, a checkpoint; A is overwritten, commit,
/// crash. Records name A only, and the block would be free while B names it.
fn sharers(
    slots: &mut Slots<'_, impl Base>,
    space: &Space,
    block: BlockNo,
    named: &[(BlockNo, SlotRef)],
) -> Result<Option<SlotRef>> {
    let listed = space.owners_of(block);
    let mut asked = listed.clone();
    asked.extend(named.iter().map(|(_, slot)| *slot));
    asked.sort_unstable();
    asked.dedup();
    let mut owners = Vec::with_capacity(asked.len());
    let mut known = None;
    for slot in asked {
        match points_to(slots, slot, block) {
            Ok(true) => {
                known.get_or_insert(slot);
                owners.push(slot);
            }
            Ok(false) => {}
            // It was an owner, and no record says that it let go. The node is refused when it is asked
            // for: that is no reason to refuse the volume.
            Err(Error::Corrupt { .. } | Error::Block(_)) if listed.contains(&slot) => {
                owners.push(slot);
            }
            Err(error) => return Err(error),
        }
    }
    space.mend_owners(block, &owners);
    Ok(known.or_else(|| owners.first().copied()))
}

/// Each block that a record names, with a slot it was allocated for or freed from, by block.
fn named_blocks(replayed: &Replayed) -> Vec<(BlockNo, SlotRef)> {
    let counts = replayed.blocks.iter().map(|(_, run)| u64::from(run.count));
    let mut named = Vec::with_capacity(to_usize(counts.sum()));
    for (owner, run) in &replayed.blocks {
        for n in 0..run.count {
            let slot = owner.slot + u8::try_from(n).expect("checked when the note was read");
            let block = BlockNo(run.first.0 + u64::from(n));
            named.push((block, SlotRef { slot, ..*owner }));
        }
    }
    named.sort_unstable();
    // Of most blocks there are two notes that say the same: it came to the slot, and it went.
    named.dedup();
    named
}

/// The block is live, and the slot's.
///
/// # Errors
/// `Corrupt` for a block that no slot can own.
pub(super) fn own(space: &Space, block: BlockNo, owner: SlotRef) -> Result<()> {
    space.mend_live(Run {
        first: block,
        count: 1,
    })?;
    let entry = SummaryEntry {
        nid: U64::new(owner.nid.0),
        kind: OWNER_SLOT,
        granule: owner.granule,
        slot: owner.slot,
        reserved: 0,
    };
    space.set_owner(block, entry);
    Ok(())
}

/// Slots of pages of the data log that name another block than the log does. A recovery that could
/// not write a page to its block has named that one (`recovery::replace`), and may have been cut
/// off before the SIT said so; no record does.
///
/// # Errors
/// Errors of reading an owner's image.
pub fn moved(base: &impl Base, replayed: &Replayed) -> Result<Vec<(SlotRef, BlockNo)>> {
    let mut slots = Slots::new(base, &replayed.nodes);
    let mut moved = Vec::new();
    for &(owner, block) in &replayed.pages {
        let slot = slots.get(owner)?;
        let now = slot.filter(|slot| !slot.is_hole()).map(|slot| slot.block());
        moved.extend(now.filter(|now| *now != block).map(|now| (owner, now)));
    }
    Ok(moved)
}

fn points_to(slots: &mut Slots<'_, impl Base>, owner: SlotRef, block: BlockNo) -> Result<bool> {
    let slot = slots.get(owner)?;
    Ok(slot.is_some_and(|slot| slot.block() == block))
}

/// The block was freed by a handle still in a log and used again by one whose log has been left
/// behind: then the summary, durable before that tail passed, names the present owner.
fn owned_elsewhere<B: Base>(
    base: &B,
    slots: &mut Slots<'_, B>,
    space: &Space,
    block: BlockNo,
    named: &[(BlockNo, SlotRef)],
) -> Result<bool> {
    let entry = match space.owner(block) {
        Ok(entry) => entry,
        // Summaries are hints. Without one the block stays live: at worst it stays unused.
        Err(Error::Corrupt { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let nid = Nid(entry.nid.get());
    if entry.kind == OWNER_NONE {
        // A live block has an owner, so this summary was lost when it was rewritten. The owner is
        // unknown; the block stays in use until the check has walked all owners.
        return Ok(true);
    }
    if entry.kind != OWNER_SLOT {
        // A node image: its NAT entry decides, and the NAT says so itself.
        let names = |nat: NatEntry| nat.block() == block;
        return Ok(base.entry(nid).is_ok_and(names));
    }
    let owner = SlotRef {
        nid,
        granule: entry.granule,
        slot: entry.slot,
    };
    if named.contains(&(block, owner)) {
        return Ok(false);
    }
    match points_to(slots, owner, block) {
        Err(Error::Corrupt { .. }) => Ok(true),
        asked => asked,
    }
}
