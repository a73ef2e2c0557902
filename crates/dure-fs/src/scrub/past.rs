//! Blocks that only snapshots need.
//!
//! **Structure.** A block keeps its owner in the summary as long as a snapshot needs it. The first
//! snapshot, from the newest on, whose owner points to it says what it holds. **Invariants.** Nothing
//! that a snapshot has is ever written to, so a block that does not verify is damaged, unless the
//! snapshot was deleted meanwhile: a scrub keeps none from being deleted. **Crash.** Nothing is
//! written.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::inode::INODE_BODY;
use dure_store::format::nat::NatEntry;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::slot::{SLOT_BYTES, Slot};
use dure_store::format::summary::{OWNER_NODE, OWNER_SLOT, SummaryEntry};
use dure_store::space::InUse;
use dure_store::units::{BLOCK_BYTES, BlockNo, Ino, Nid};
use dure_store::{Past, Store};
use zerocopy::FromBytes;

use super::Scrub;
use super::wanted::{Content, Found, Wanted};

/// Nodes of snapshots in memory, at most.
const NODES_MAX: usize = 1024;

/// The snapshots as a scrub looks at some neighbouring segments, and what it has read of them.
#[derive(Debug)]
pub(super) struct Pasts {
    /// The newest first.
    pub(super) all: Vec<Past>,
    /// Their tables, lists and pairs.
    own: BTreeSet<BlockNo>,
    nodes: BTreeMap<(u64, Nid), Option<(NatEntry, NodeImage)>>,
}

impl Pasts {
    /// Those that there are now.
    pub(super) fn of(store: &Store) -> Pasts {
        Pasts {
            all: store.pasts(),
            own: store.snapshots.own().into_iter().collect(),
            nodes: BTreeMap::new(),
        }
    }

    /// The slot that the owner names in a snapshot, and the inode that has it.
    fn slot(&mut self, store: &Store, n: usize, owner: &SummaryEntry) -> Option<(Ino, Slot)> {
        let (past, nid) = (&self.all[n], Nid(owner.nid.get()));
        if self.nodes.len() >= NODES_MAX {
            self.nodes.clear();
        }
        // A node that cannot be read is found where its image lies.
        let read = || store.past_node(past, nid).ok().flatten();
        let node = self
            .nodes
            .entry((past.checkpoint, nid))
            .or_insert_with(read);
        slot_in(&node.as_ref()?.1, nid, owner)
    }
}

/// The slot in an image, and the regular file that has it.
fn slot_in(image: &NodeImage, nid: Nid, owner: &SummaryEntry) -> Option<(Ino, Slot)> {
    let granule = usize::from(owner.granule);
    if granule >= image.kind.granules() {
        return None;
    }
    let (ino, start) = match image.kind {
        NodeKind::Leaf => (image.owner, 0),
        NodeKind::Inode => {
            let ino = Ino::of_data(nid, owner.granule)?;
            let record = image.inode(ino.index());
            record
                .attributes
                .is_regular()
                .then_some((ino, INODE_BODY))?
        }
        _ => return None,
    };
    let at = start + usize::from(owner.slot) * SLOT_BYTES;
    let bytes = image.payload(granule).get(at..at + SLOT_BYTES)?;
    Some((ino, Slot::read_from_bytes(bytes).ok()?))
}

impl Scrub<'_> {
    /// What a block that is not live is to hold.
    pub(super) fn past(&self, one: &InUse, pasts: &mut Pasts, found: &mut Found) {
        let content = match one.owner.kind {
            _ if pasts.own.contains(&one.block) => Some(Content::Own),
            OWNER_SLOT => self.past_page(one, pasts),
            OWNER_NODE => self.past_image(one, pasts),
            _ => None,
        };
        match content {
            Some(Content::PastPage { slot, .. }) if !slot.is_written() => {}
            Some(content) => found.wanted.push(Wanted {
                block: one.block,
                content,
            }),
            None => found.unknown += 1,
        }
    }

    fn past_page(&self, one: &InUse, pasts: &mut Pasts) -> Option<Content> {
        (0..pasts.all.len()).find_map(|n| {
            let (ino, slot) = pasts.slot(self.store, n, &one.owner)?;
            let past = pasts.all[n].checkpoint;
            (slot.block() == one.block).then_some(Content::PastPage { past, ino, slot })
        })
    }

    fn past_image(&self, one: &InUse, pasts: &Pasts) -> Option<Content> {
        let nid = Nid(one.owner.nid.get());
        pasts.all.iter().find_map(|past| {
            let entry = self.store.past_entry(past, nid).ok().flatten()?;
            let past = past.checkpoint;
            (entry.block() == one.block).then_some(Content::PastImage { past, nid })
        })
    }

    /// The name of a snapshot that has the same in the block, if one does: the block stays as it is.
    pub(super) fn kept_by(&self, wanted: &Wanted) -> Option<String> {
        let mut pasts = Pasts::of(self.store);
        let one = |owner| InUse {
            block: wanted.block,
            owner,
            live: false,
        };
        let found = match wanted.content {
            Content::Page { owner, .. } => self.past_page(&one(owner), &mut pasts),
            Content::Image { nid, .. } => {
                let owner = SummaryEntry {
                    nid: nid.0.into(),
                    ..SummaryEntry::default()
                };
                self.past_image(&one(owner), &pasts)
            }
            _ => None,
        };
        match found {
            Some(Content::PastPage { past, .. } | Content::PastImage { past, .. }) => {
                self.store.past_name(past)
            }
            _ => None,
        }
    }

    /// The page that a snapshot has in the same slot, if it is the same content in another block.
    pub(super) fn same_page(&self, owner: &SummaryEntry, slot: &Slot) -> Option<[u8; BLOCK_BYTES]> {
        let mut pasts = Pasts::of(self.store);
        (0..pasts.all.len()).find_map(|n| {
            let (_, other) = pasts.slot(self.store, n, owner)?;
            let is_same = other.is_written() && other.crc == slot.crc;
            if !is_same || other.block() == slot.block() {
                return None;
            }
            let mut bytes = [0; BLOCK_BYTES];
            let read = self
                .store
                .placement
                .read_page(&other, &mut bytes, String::new);
            read.ok().map(|()| bytes)
        })
    }
}
