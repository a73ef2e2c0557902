//! Blocks that clones share: every slot that names one is in the lists of the volume, and no other.
//!
//! On a volume that was not unmounted, recovery asks each slot that the logs name: blocks of which they
//! say something are left out.

use dure_store::format::slot::Slot;
use dure_store::format::volume::VolumeHeader;
use dure_store::space::Space;
use dure_store::units::{BlockNo, SlotRef, to_u64};

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::BlockUse;

/// Whether this is an issue of the lists, which a repair writes anew.
pub(super) fn are_wrong(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SharedLost { .. }
            | IssueKind::SharedMissing { .. }
            | IssueKind::SharedUnlisted { .. }
            | IssueKind::SharedStale { .. }
    )
}

/// Whether the lists lack what the passes have found: to add that needs no guess.
pub(super) fn lack(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SharedMissing { .. } | IssueKind::SharedUnlisted { .. }
    )
}

/// Whether it is not known what the lists said.
pub(super) fn are_lost(kind: &IssueKind) -> bool {
    matches!(kind, IssueKind::SharedLost { .. })
}

/// Reads the lists. Runs when the SIT is loaded.
pub(super) fn load(context: &mut Context<'_>, header: &VolumeHeader) {
    let (region, layout) = (context.region.clone(), &context.layout);
    let space = Space::new_empty(region, layout, context.packs.clone());
    if let Err(error) = space.load_shared(header) {
        let why = error.to_string();
        context.issue(IssueKind::SharedLost { why });
        return;
    }
    let own = space.own_of_shared();
    let live = own.iter().find(|block| context.is_live(**block)).copied();
    for (block, owners) in space.all_shared() {
        let sharers = context.shared.blocks.entry(block).or_default();
        sharers.listed.extend(owners);
    }
    context.shared.own = own;
    if let Some(BlockNo(block)) = live {
        let why = format!("block {block} holds one, and the SIT has it as live");
        context.issue(IssueKind::SharedLost { why });
    }
}

/// A slot names a block of the main area. True if it is the first.
pub(super) fn own(context: &mut Context<'_>, by: BlockUse, (owner, slot): (SlotRef, Slot)) -> bool {
    let block = slot.block();
    let index = block.0 - context.layout.main;
    let written = slot.is_written();
    let Some(sharers) = context.shared.blocks.get_mut(&block) else {
        let may_share = context.layout.superblock.has_clones() && written;
        if !may_share || !context.owned.get(index) {
            return context.own(block, by);
        }
        // Recovery asks all slots that the logs name, and lists them.
        if context.clean || !context.noted.get(index) {
            context.shared.unlisted.insert(block);
        }
        return false;
    };
    let first = sharers.found.first().map(|(_, crc)| *crc);
    if written {
        sharers.found.push((owner, slot.crc.get()));
        if first == Some(slot.crc.get()) {
            sharers.second.get_or_insert(by);
            return false;
        }
    }
    let is_first = if written && first.is_some() {
        let block = block.0;
        context.issue(IssueKind::BlockShared { block, by });
        false
    } else {
        context.own(block, by)
    };
    if !is_first && let Some(sharers) = context.shared.blocks.get_mut(&block) {
        sharers.mixed = true;
    }
    is_first
}

/// Compares the lists with what the passes have found.
pub(super) fn compare(context: &mut Context<'_>) {
    let mut issues = Vec::new();
    for (block, sharers) in &context.shared.blocks {
        let index = block.0 - context.layout.main;
        if !context.clean && context.noted.get(index) {
            continue;
        }
        if sharers.listed.is_empty() {
            let second = sharers.second.filter(|_| !sharers.mixed);
            let block = block.0;
            issues.extend(second.map(|by| IssueKind::SharedMissing { block, by }));
            continue;
        }
        let found = sharers.found.iter().map(|(owner, _)| owner);
        let known = found.filter(|owner| sharers.listed.contains(owner)).count();
        let (listed, block) = (sharers.listed.len(), block.0);
        if known < listed {
            let count = to_u64(listed - known);
            issues.push(IssueKind::SharedStale { block, count });
        }
        if known < sharers.found.len() {
            let count = to_u64(sharers.found.len() - known);
            issues.push(IssueKind::SharedUnlisted { block, count });
        }
    }
    issues.into_iter().for_each(|issue| context.issue(issue));
}
