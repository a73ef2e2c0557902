//! Block maps of files without what is lost: pointers to lost nodes, blocks that are not theirs.
//!
//! **Structure.** A walk over the map of one file, which finds each slot and each pointer that leads
//! nowhere. **Invariants.** A block that two slots name stays with the one
//! whose checksum it has. What is taken away is said page by page. **Crash.** Nothing is written
//! here.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::fields::{self, subtree_pages};
use dure_store::format::inode::INODE_BODY;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::slot::{
    DIRECT_SLOTS, INDEX_CHILDREN, INDEX_GRANULE_CHILDREN, LEAF_GRANULE_SLOTS, LEAF_SLOTS,
    SLOT_BYTES, Slot,
};
use dure_store::units::{BLOCK_BYTES, GranuleId, Ino, Nid, to_u64, to_usize};
use zerocopy::{FromBytes, IntoBytes};

use super::edit::Edit;
use crate::context::Context;
use crate::file::children;

/// A written slot or a pointer on the way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Where it lies.
    pub(super) granule: GranuleId,
    /// Byte in the granule.
    at: usize,
    /// Its page, or the first page below the pointer.
    pub(super) page: u64,
    /// Pages below the pointer.
    pub(super) pages: u64,
}

/// What a walk finds.
pub(super) enum Found {
    /// A slot.
    Slot(Place, Slot),
    /// A pointer to a node that is not there, or not this file's.
    Lost(Place),
}

/// All slots of file `ino`, and the pointers that lead nowhere.
pub(super) fn walk(edit: &mut Edit<'_, '_>, ino: Ino) -> Vec<Found> {
    let Some(mut walk) = Walk::new(edit.context, ino) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    while let Some(found) = walk.next(edit.context) {
        all.extend(found);
    }
    all
}

/// A walk over the map of a file, node by node, in the order of pages.
pub(super) struct Walk {
    ino: Ino,
    /// What the inode itself names.
    direct: Option<Vec<Found>>,
    /// Nodes that are to be walked, with their heights.
    stack: Vec<(Nid, u32, Place)>,
    seen: BTreeSet<Nid>,
}

impl Walk {
    /// Over the map of `ino`, if that is a file.
    pub(super) fn new(context: &mut Context<'_>, ino: Ino) -> Option<Walk> {
        let image = context.image(ino.nid())?;
        let record = image.inode(ino.index());
        if fields::kind(&record) != fields::REGULAR {
            return None;
        }
        let id = ino.data_granule();
        let mut direct = Vec::new();
        slots(&mut direct, id, INODE_BODY, &record.data.body, 0);
        let (root, height) = (record.data.map_root.get(), record.data.map_height.get());
        let mut stack = Vec::new();
        if (1..=fields::HEIGHT_MAX).contains(&height) && root != 0 {
            let place = Place {
                granule: id,
                at: 0,
                page: DIRECT_SLOTS,
                pages: subtree_pages(height),
            };
            stack.push((Nid(root), height, place));
        }
        Some(Walk {
            ino,
            direct: Some(direct),
            stack,
            seen: BTreeSet::new(),
        })
    }

    /// What the next node of the map names; bounded, since every node is walked once.
    pub(super) fn next(&mut self, context: &mut Context<'_>) -> Option<Vec<Found>> {
        if let Some(direct) = self.direct.take() {
            return Some(direct);
        }
        let (nid, height, place) = self.stack.pop()?;
        let kind = if height == 1 {
            NodeKind::Leaf
        } else {
            NodeKind::Index
        };
        let known = nid.0 < context.layout.nids() && context.lives(nid);
        let image = known.then(|| context.image(nid)).flatten();
        let image = image.filter(|image| image.kind == kind && image.owner == self.ino);
        let Some(image) = image.filter(|_| self.seen.insert(nid)) else {
            return Some(vec![Found::Lost(place)]);
        };
        let mut found = Vec::new();
        if height == 1 {
            for (index, payload) in (0_u8..).zip(image.payloads()) {
                let page = place.page + u64::from(index) * LEAF_GRANULE_SLOTS;
                slots(&mut found, GranuleId { nid, index }, 0, payload, page);
            }
        } else {
            self.descend(&image, nid, height, place.page);
        }
        Some(found)
    }

    /// Puts the children of an index node on the stack, the first one on top.
    fn descend(&mut self, image: &NodeImage, nid: Nid, height: u32, page: u64) {
        let below = subtree_pages(height - 1);
        let all = (0_u64..).zip(children(image));
        let living: Vec<(u64, Nid)> = all.filter(|(_, child)| child.0 != 0).collect();
        for (n, child) in living.into_iter().rev() {
            let granule = u8::try_from(n / INDEX_GRANULE_CHILDREN).expect("seven granules");
            let place = Place {
                granule: GranuleId {
                    nid,
                    index: granule,
                },
                at: to_usize(n % INDEX_GRANULE_CHILDREN) * 8,
                page: page + below * n,
                pages: below,
            };
            self.stack.push((child, height - 1, place));
        }
    }
}

const _: () = assert!(INDEX_CHILDREN.is_multiple_of(INDEX_GRANULE_CHILDREN) && LEAF_SLOTS > 0);

fn slots(found: &mut Vec<Found>, granule: GranuleId, from: usize, bytes: &[u8], first: u64) {
    for (n, bytes) in bytes.chunks_exact(SLOT_BYTES).enumerate() {
        let slot = Slot::read_from_bytes(bytes).expect("a chunk has the size of a slot");
        if slot != Slot::HOLE {
            let place = Place {
                granule,
                at: from + n * SLOT_BYTES,
                page: first + to_u64(n),
                pages: 1,
            };
            found.push(Found::Slot(place, slot));
        }
    }
}

/// Takes pointers to lost nodes out of the map of `ino`, and slots that cannot be.
pub(super) fn mend(edit: &mut Edit<'_, '_>, ino: Ino) {
    let mut size = 0;
    if let Some(image) = edit.context.image(ino.nid()) {
        size = image.inode(ino.index()).data.size.get();
    }
    let end = size.div_ceil(to_u64(BLOCK_BYTES));
    for found in walk(edit, ino) {
        match found {
            Found::Lost(place) if place.granule == ino.data_granule() => {
                edit.data(ino, |data| {
                    data.head.map_root.set(0);
                    data.head.map_height.set(0);
                });
                lose(edit, ino, place, end);
            }
            Found::Lost(place) => {
                edit.granule(place.granule, |payload| payload[place.at..][..8].fill(0));
                lose(edit, ino, place, end);
            }
            Found::Slot(place, slot) => {
                let inside = edit.context.layout.locate(slot.block()).is_some();
                let sane = slot.is_sane() && (slot.crc.get() == 0 || slot.is_written());
                if !inside || !sane {
                    punch(edit, ino, place);
                } else if slot.is_written() && place.page >= end {
                    clear(edit, place);
                }
            }
        }
    }
}

fn lose(edit: &mut Edit<'_, '_>, ino: Ino, place: Place, end: u64) {
    let last = (place.page + place.pages).min(end).saturating_sub(1);
    let what = format!(
        "pages {} to {last} lost their places and read as zeroes",
        place.page
    );
    edit.lose(ino, None, what);
}

fn clear(edit: &mut Edit<'_, '_>, place: Place) {
    edit.granule(place.granule, |payload| {
        payload[place.at..][..SLOT_BYTES].copy_from_slice(Slot::HOLE.as_bytes());
    });
}

fn punch(edit: &mut Edit<'_, '_>, ino: Ino, place: Place) {
    clear(edit, place);
    let what = format!("page {} is lost and reads as zeroes", place.page);
    edit.lose(ino, None, what);
}

/// Leaves each of `blocks`, which several slots or images name, to the one whose checksum it has.
pub(super) fn settle(edit: &mut Edit<'_, '_>, blocks: &BTreeSet<u64>) {
    let mut owners: BTreeMap<u64, Vec<(Ino, Place, Slot)>> = BTreeMap::new();
    let inodes: Vec<Ino> = edit.context.inodes.all().map(|(ino, _)| ino).collect();
    for ino in inodes {
        for found in walk(edit, ino) {
            if let Found::Slot(place, slot) = found
                && blocks.contains(&slot.block().0)
            {
                owners
                    .entry(slot.block().0)
                    .or_default()
                    .push((ino, place, slot));
            }
        }
    }
    let images = images_at(edit, blocks);
    for block in blocks {
        let image = images.get(block).copied();
        let mut kept = false;
        for (ino, place, slot) in owners.remove(block).unwrap_or_default() {
            let is_its = slot.is_written() && crc_of(edit, *block) == Some(slot.crc.get());
            // All those of clones have it.
            let is_only = !edit.context.layout.superblock.has_clones();
            if (kept && is_only) || !is_its {
                punch(edit, ino, place);
            }
            kept |= is_its;
        }
        if let Some(nid) = image.filter(|_| kept) {
            edit.forget(nid);
        }
    }
}

fn crc_of(edit: &Edit<'_, '_>, block: u64) -> Option<u32> {
    let mut bytes = [0; BLOCK_BYTES];
    let read = edit
        .context
        .region
        .read(dure_store::units::BlockNo(block), &mut bytes);
    read.ok().map(|()| dure_block::crc32c::crc32c(&bytes))
}

/// The nodes whose images the NAT has at these blocks.
fn images_at(edit: &Edit<'_, '_>, blocks: &BTreeSet<u64>) -> BTreeMap<u64, Nid> {
    let mut images = BTreeMap::new();
    for (pair, entries) in &edit.context.nat {
        let first = pair * dure_store::format::nat::ENTRIES;
        for (nid, entry) in (first..).map(Nid).zip(entries.iter()) {
            if blocks.contains(&entry.block().0) {
                images.insert(entry.block().0, nid);
            }
        }
    }
    images
}
