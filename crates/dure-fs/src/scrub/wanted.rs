//! What a block is to hold, as what points to it says; and whether it does.
//!
//! **Structure.** A summary names the owner of a block. The owner says what lies there: a slot has
//! the checksum of a page, the NAT names the image of a node, which has its own. A block that does
//! not verify is looked at again: it is damaged if the owner still says the same, before and after it
//! was read once more by itself.
//!
//! **Invariants.** A slot that is unchanged names the content that it named: nothing that a slot or
//! the NAT names is written to. Race without the second look:
//!
//! | scrub | others |
//! |---|---|
//! | looks at the slot, begins to read | |
//! | | overwrite the page: the slot names another block |
//! | | commit: the block is free; its next user writes to it |
//! | has read what that user wrote: not what the slot said | |
//!
//! **Crash.** Nothing is written.

use dure_block::crc32c::crc32c;
use dure_store::error::{Error, Result};
use dure_store::format::nat::NatEntry;
use dure_store::format::node::NodeImage;
use dure_store::format::slot::Slot;
use dure_store::format::summary::{OWNER_NODE, OWNER_SLOT, SummaryEntry};
use dure_store::space::InUse;
use dure_store::units::{BLOCK_BYTES, BlockNo, Ino, Nid, SlotRef};

use super::Scrub;
use super::past::Pasts;
use crate::cleaner::Owned;

/// A block, and what it is to hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) block: BlockNo,
    pub(super) content: Content,
}

/// What a block is to hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// A page, of the file `ino`.
    Page {
        owner: SummaryEntry,
        ino: Ino,
        slot: Slot,
    },
    /// The image of a node.
    Image { nid: Nid, entry: NatEntry },
    /// A page of a file of the snapshot that is this checkpoint.
    PastPage { past: u64, ino: Ino, slot: Slot },
    /// The image of a node of such a snapshot.
    PastImage { past: u64, nid: Nid },
    /// A table of the snapshots, or a pair kept for one.
    Own,
}

/// What is known of blocks of a segment.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What is to be read.
    pub(super) wanted: Vec<Wanted>,
    /// Blocks that their owner does not point to.
    pub(super) replaced: u64,
    /// Blocks without a known owner.
    pub(super) unknown: u64,
}

impl Scrub<'_> {
    /// The nodes that own pages among these blocks and are not in memory, ascending.
    pub(super) fn absent_nodes<'b>(&self, blocks: impl Iterator<Item = &'b InUse>) -> Vec<Nid> {
        let of_slot = |block: &&InUse| block.live && block.owner.kind == OWNER_SLOT;
        let owners = blocks.filter(of_slot);
        let mut nids: Vec<Nid> = owners.map(|block| Nid(block.owner.nid.get())).collect();
        nids.sort_unstable();
        nids.dedup();
        nids.retain(|nid| self.store.nodes.get(*nid).is_none());
        nids
    }

    /// Puts these nodes in memory.
    pub(super) fn read_nodes(&self, nids: &[Nid]) {
        match nids {
            // A node that cannot be read is found where its image lies.
            [nid] => drop(self.cleaner.node_if_alive(*nid)),
            _ => self.store.preload(nids.iter().copied()),
        }
    }

    /// What blocks of a segment are to hold, ascending. Reads the nodes that are not in memory.
    pub(super) fn wanted(&self, blocks: &[InUse], pasts: &mut Pasts) -> Found {
        let mut found = Found::default();
        let same = |a: &InUse, b: &InUse| {
            (a.live, a.owner.kind, a.owner.nid, a.owner.granule)
                == (b.live, b.owner.kind, b.owner.nid, b.owner.granule)
        };
        for group in blocks.chunk_by(same) {
            match group[0].owner.kind {
                _ if !group[0].live => group
                    .iter()
                    .for_each(|block| self.past(block, pasts, &mut found)),
                OWNER_SLOT => self.pages_of(group, &mut found),
                OWNER_NODE => group
                    .iter()
                    .for_each(|block| self.image_in(block, &mut found)),
                _ => found.unknown += dure_store::units::to_u64(group.len()),
            }
        }
        found
    }

    fn pages_of(&self, group: &[InUse], found: &mut Found) {
        let owned: Vec<Owned> = group.iter().map(|one| (one.block, one.owner)).collect();
        let count = dure_store::units::to_u64(group.len());
        let (ino, slots) = match self.cleaner.slots_of(&owned) {
            Ok(Some(found)) => found,
            Ok(None) => {
                found.replaced += count;
                return;
            }
            // The node is damaged: it is found where its image lies.
            Err(_) => {
                found.unknown += count;
                return;
            }
        };
        for ((block, owner), slot) in owned.into_iter().zip(slots) {
            match slot {
                // What was only preallocated has no content, and what is in the log none here.
                Some(slot) if slot.is_written() && !self.store.data_log.holds(block) => {
                    let content = Content::Page { owner, ino, slot };
                    found.wanted.push(Wanted { block, content });
                }
                Some(_) => {}
                // The summary names one owner, which may have let go of what others share.
                None => match self.sharing(block, |_| true).next() {
                    Some(wanted) => found.wanted.push(wanted),
                    None => found.replaced += 1,
                },
            }
        }
    }

    /// The pages that share a block, of the owners that are asked for.
    pub(super) fn sharing(
        &self,
        block: BlockNo,
        of: impl Fn(&SummaryEntry) -> bool,
    ) -> impl Iterator<Item = Wanted> {
        let owners = self.store.space.owners_of(block).into_iter();
        let entry = |SlotRef { nid, granule, slot }| SummaryEntry {
            nid: nid.0.into(),
            kind: OWNER_SLOT,
            granule,
            slot,
            reserved: 0,
        };
        let owners = owners.map(entry).filter(move |owner| of(owner));
        owners.filter_map(move |owner| {
            let (ino, slots) = self.cleaner.slots_of(&[(block, owner)]).ok()??;
            let slot = slots[0].filter(Slot::is_written)?;
            let is_here = !self.store.data_log.holds(block);
            is_here.then_some(Wanted {
                block,
                content: Content::Page { owner, ino, slot },
            })
        })
    }

    fn image_in(&self, one: &InUse, found: &mut Found) {
        let nid = Nid(one.owner.nid.get());
        match self.store.nat.entry(nid) {
            Ok(entry) if entry.block() == one.block => found.wanted.push(Wanted {
                block: one.block,
                content: Content::Image { nid, entry },
            }),
            Ok(_) => found.replaced += 1,
            Err(_) => found.unknown += 1,
        }
    }

    /// Compares what was read of a block.
    pub(super) fn compare(&self, wanted: &Wanted, bytes: &[u8]) -> Result<()> {
        match wanted.content {
            Content::Page { ino, slot, .. } | Content::PastPage { ino, slot, .. } => {
                let (want, got) = (slot.crc.get(), crc32c(bytes));
                let what = format_args!("checksum of a page of inode {ino}");
                match want == got {
                    true => Ok(()),
                    false => Err(Error::Corrupt {
                        what: what.to_string(),
                        at: wanted.block.0,
                        want: u64::from(want),
                        got: u64::from(got),
                    }),
                }
            }
            Content::Image { nid, .. } | Content::PastImage { nid, .. } => {
                let seed = self.store.layout.crc_seed;
                NodeImage::open(bytes, nid, wanted.block, seed).map(drop)
            }
            Content::Own => self.store.check_own(wanted.block, bytes),
        }
    }

    /// Whether what points to the block says the same as before.
    pub(super) fn is_still(&self, wanted: &Wanted) -> bool {
        match wanted.content {
            Content::Page { owner, ino, slot } => {
                let now = self.cleaner.slots_of(&[(wanted.block, owner)]);
                matches!(now, Ok(Some((now, slots))) if now == ino && slots[0] == Some(slot))
            }
            Content::Image { nid, entry } => self.store.nat.entry(nid).ok() == Some(entry),
            Content::PastPage { past, .. } | Content::PastImage { past, .. } => {
                self.store.past_name(past).is_some()
            }
            Content::Own => self.store.snapshots.own().contains(&wanted.block),
        }
    }

    /// What is wrong with a block that did not verify, if it is damaged.
    pub(super) fn look_again(&self, wanted: &Wanted, first: Error) -> Option<Error> {
        if !self.rule.holds() {
            return Some(first);
        }
        if !self.is_still(wanted) {
            return None;
        }
        let mut bytes = [0; BLOCK_BYTES];
        let read = match &wanted.content {
            Content::Page { slot, .. } => self
                .store
                .placement
                .read_page(slot, &mut bytes, || "checksum of a page".into()),
            _ => self
                .store
                .region
                .read(wanted.block, &mut bytes)
                .map_err(Error::from)
                .and_then(|()| self.compare(wanted, &bytes)),
        };
        read.err().filter(|_| self.is_still(wanted))
    }
}
