//! Block maps of files: every slot by itself, the blocks they name, and how many they are.

use dure_store::format::fields::subtree_pages;
use dure_store::format::inode::InodeRecord;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::slot::{
    DIRECT_SLOTS, INDEX_CHILDREN, INDEX_GRANULE_CHILDREN, LEAF_GRANULE_SLOTS, SLOT_BYTES, Slot,
};
use dure_store::format::summary::OWNER_SLOT;
use dure_store::units::{Ino, Nid, SlotRef, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::options::Data;
use crate::owner::{BlockUse, NodeUse};
use crate::{clones, data, summary};

/// A file while its slots are counted.
struct FileWalk {
    ino: Ino,
    /// Pages that may be written.
    pages: u64,
    blocks: u64,
    beyond: Option<u64>,
}

/// A map node that is to be walked.
struct Subtree {
    nid: Nid,
    height: u32,
    /// First page below it.
    page: u64,
}

/// Where a slot lies, and which page it is.
#[derive(Clone, Copy)]
struct SlotPlace {
    nid: Nid,
    granule: u8,
    slot: u8,
    page: u64,
}

/// Walks the map of file `ino`.
pub(super) fn check(context: &mut Context<'_>, ino: Ino, record: &InodeRecord, truncating: bool) {
    let pages = if truncating {
        u64::MAX
    } else {
        Context::pages(record.data.size.get())
    };
    let mut walk = FileWalk {
        ino,
        pages,
        blocks: 0,
        beyond: None,
    };
    let place = SlotPlace {
        nid: ino.nid(),
        granule: ino.data_index(),
        slot: 0,
        page: 0,
    };
    check_slots(context, &mut walk, &record.data.body, place);
    if record.data.map_height.get() > 0 {
        let root = Nid(record.data.map_root.get());
        walk_tree(context, &mut walk, root, record.data.map_height.get());
    }
    if let Some(page) = walk.beyond {
        context.issue(IssueKind::SlotBeyondEnd { ino, page });
    }
    if walk.blocks != record.data.blocks.get() {
        let (want, got) = (walk.blocks, record.data.blocks.get());
        context.issue(IssueKind::InodeBlocks { ino, want, got });
        context.repairs.blocks.insert(ino, want);
    }
}

fn walk_tree(context: &mut Context<'_>, walk: &mut FileWalk, root: Nid, height: u32) {
    let mut stack = vec![Subtree {
        nid: root,
        height,
        page: DIRECT_SLOTS,
    }];
    // Bounded: every node is taken once, and an index node has at most 448 children.
    while let Some(Subtree { nid, height, page }) = stack.pop() {
        let kind = if height == 1 {
            NodeKind::Leaf
        } else {
            NodeKind::Index
        };
        let Some(image) = context.take(nid, kind, NodeUse::Map(walk.ino)) else {
            continue;
        };
        if height == 1 {
            check_leaf(context, walk, nid, &image, page);
        } else {
            let children = children(&image);
            let below = subtree_pages(height - 1);
            let new = (0..)
                .zip(children)
                .filter(|(_, child)| child.0 != 0)
                .map(|(n, nid)| Subtree {
                    nid,
                    height: height - 1,
                    page: page + below * n,
                });
            let at = stack.len();
            stack.extend(new);
            stack[at..].reverse();
        }
    }
}

/// The children an index node names, 0 where there is none.
pub(super) fn children(image: &NodeImage) -> Vec<Nid> {
    let mut children = Vec::with_capacity(to_usize(INDEX_CHILDREN));
    for payload in image.payloads() {
        assert_eq!(to_u64(payload.len()), INDEX_GRANULE_CHILDREN * 8);
        for bytes in payload.as_chunks::<8>().0 {
            children.push(Nid(u64::from_le_bytes(*bytes)));
        }
    }
    children
}

fn check_leaf(
    context: &mut Context<'_>,
    walk: &mut FileWalk,
    nid: Nid,
    image: &NodeImage,
    first: u64,
) {
    let mut page = first;
    for (granule, payload) in (0_u8..).zip(image.payloads()) {
        check_slots(
            context,
            walk,
            payload,
            SlotPlace {
                nid,
                granule,
                slot: 0,
                page,
            },
        );
        page += LEAF_GRANULE_SLOTS;
    }
}

fn check_slots(context: &mut Context<'_>, walk: &mut FileWalk, bytes: &[u8], first: SlotPlace) {
    let mut place = first;
    for bytes in bytes.chunks_exact(SLOT_BYTES) {
        let slot = Slot::read_from_bytes(bytes).expect("a chunk has the size of a slot");
        if slot != Slot::HOLE {
            check_slot(context, walk, slot, place);
        }
        place.slot = place.slot.wrapping_add(1);
        place.page += 1;
    }
}

fn check_slot(context: &mut Context<'_>, walk: &mut FileWalk, slot: Slot, place: SlotPlace) {
    let (ino, page) = (walk.ino, place.page);
    if !slot.is_sane() || (slot.crc.get() != 0 && !slot.is_written()) {
        context.issue(IssueKind::SlotBad { ino, page });
        return;
    }
    walk.blocks += 1;
    let block = slot.block();
    if context.layout.locate(block).is_none() {
        context.issue(IssueKind::SlotOutside {
            ino,
            page,
            block: block.0,
        });
        return;
    }
    if slot.is_written() && page >= walk.pages {
        walk.beyond.get_or_insert(page);
    }
    let SlotPlace {
        nid,
        granule,
        slot: n,
        ..
    } = place;
    let owner = SlotRef {
        nid,
        granule,
        slot: n,
    };
    let verifies = context.options.data == Data::Verify && slot.is_written();
    if !clones::own(context, BlockUse::Page(ino, page), (owner, slot)) {
        if verifies {
            data::of_shared(context, ino, page, slot);
        }
    } else {
        context.report.counts.blocks_data += 1;
        // Of a shared block any owner will do: that is asked when all are known.
        if !context.shared.blocks.contains_key(&block) {
            summary::expect_owner(context, block, nid, OWNER_SLOT, (granule, n));
        }
        if verifies {
            data::verify(context, ino, page, slot);
        }
    }
}
