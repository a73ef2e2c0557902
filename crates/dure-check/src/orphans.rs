//! Orphan slots: inodes to be deleted or truncated after a crash. Looked at before the trees,
//! because a file that is being truncated may have pages behind its end.

use dure_store::format::fields::REGULAR;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::orphan::{INTENT_DELETE, LINK_GRANULE, OrphanSlot, SLOT_GRANULES};
use dure_store::units::{GranuleId, Ino, Nid, is_zero};
use zerocopy::FromBytes;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::NodeUse;

/// Walks the chain of every partition.
pub(super) fn check(context: &mut Context<'_>) {
    for partition in 0..context.layout.journals {
        let mut nid = Nid(1 + u64::from(partition));
        // Bounded: every node is taken once.
        while nid.0 != 0 {
            let by = NodeUse::Orphans(partition);
            let Some(image) = context.take(nid, NodeKind::Orphan, by) else {
                break;
            };
            check_slots(context, nid, &image);
            let link = image.payload(usize::from(LINK_GRANULE));
            let (next, rest) = link.split_at(8);
            if !is_zero(rest) {
                let what = format!("link of orphan node {nid}");
                context.issue(IssueKind::ReservedNotZero { what, at: nid.0 });
            }
            nid = Nid(u64::from_le_bytes(
                next.try_into().expect("a link has 8 bytes"),
            ));
        }
    }
}

fn check_slots(context: &mut Context<'_>, nid: Nid, image: &NodeImage) {
    for (index, payload) in (0_u8..).zip(image.payloads().take(SLOT_GRANULES)) {
        let granule = GranuleId { nid, index };
        for (slot, bytes) in payload.chunks_exact(size_of::<OrphanSlot>()).enumerate() {
            let orphan =
                OrphanSlot::read_from_bytes(bytes).expect("a chunk has the size of an orphan slot");
            if orphan.ino.get() != 0 {
                check_slot(context, granule, slot, &orphan);
            }
        }
    }
}

fn check_slot(context: &mut Context<'_>, granule: GranuleId, slot: usize, orphan: &OrphanSlot) {
    let ino = orphan.ino.get();
    let Some(facts) = context.inodes.get(ino) else {
        let nid = Ino(ino).nid();
        if nid.0 >= context.layout.nids() || !context.broken.get(nid.0) {
            context.issue(IssueKind::OrphanVanished { granule, slot, ino });
            context.repairs.orphans.push((granule, slot));
        }
        return;
    };
    let ino = Ino(ino);
    let mut mismatch = |why| context.issue(IssueKind::OrphanMismatch { ino, why });
    let delete = orphan.intent.get() == INTENT_DELETE;
    if delete {
        if facts.orphan {
            mismatch("is in two orphan slots");
        }
        if !facts.flagged {
            mismatch("is to be deleted but lacks the orphan flag");
        }
        if facts.nlink != 0 {
            mismatch("is to be deleted but has a link count");
        }
        context.report.counts.orphans += u64::from(!facts.orphan);
    } else if facts.kind != REGULAR {
        mismatch("is to be truncated but is not a file");
    }
    let facts = context.inodes.get_mut(ino);
    facts.orphan |= delete;
    facts.truncating |= !delete;
}
