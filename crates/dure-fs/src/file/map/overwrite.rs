//! Other blocks for pages that have one.
//!
//! **Problem.** An overwrite changes slots, and of the inode's data nothing but times, which tick
//! rarely, and often not these. Tasks that overwrite different pages of one file change different
//! slots. **Structure.** [`MapOverwrite`] changes slots and nothing else: the size, the number of
//! blocks, the tree and the times stay as they are, and no copy of the inode's data is made.
//! **Invariants.** Slots of several tasks are in one granule, so only the bytes of a slot are stored,
//! under the granule's lock, over whatever others have stored meanwhile. **On a crash** a slot
//! changes with its operation.

use dure_store::error::Result;
use dure_store::format::inode::INODE_BODY;
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{DIRECT_SLOTS, SLOT_BYTES, Slot};
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::units::SlotRef;
use zerocopy::IntoBytes;

use super::path::{self, SlotPlace};
use super::read::{MapReader, check_slot, slot_of};
use crate::file::Files;
use crate::file::run::SlotRuns;
use crate::inode::Inode;

/// Slots that an operation changes. The caller holds write-back and the inode: exclusively, or both
/// shared and the range of the pages exclusively. Pages are to be set in ascending order.
#[derive(Debug)]
pub(crate) struct MapOverwrite<'a, 'v> {
    files: &'v Files,
    op: &'a mut Op<'v>,
    inode: &'a Inode,
    map: MapReader<'a>,
    leaf: Option<NodeRef>,
    placed: SlotRuns,
    unplaced: SlotRuns,
}

impl<'a, 'v> MapOverwrite<'a, 'v> {
    pub(crate) fn new(files: &'v Files, op: &'a mut Op<'v>, inode: &'a Inode) -> Self {
        MapOverwrite {
            map: MapReader::new(files, inode),
            files,
            op,
            inode,
            leaf: None,
            placed: SlotRuns::default(),
            unplaced: SlotRuns::default(),
        }
    }

    /// Stores `slot` for `page`. False if the page has no content: then the operation is to be
    /// dropped.
    ///
    /// # Errors
    /// `Corrupt`, errors of reading nodes.
    pub(crate) fn set(&mut self, page: u64, slot: Slot) -> Result<bool> {
        if page < DIRECT_SLOTS {
            let granule = self.inode.ino.data_index();
            let at = INODE_BODY + path::direct_bytes(page).start;
            let index = path::direct_slot(page);
            return self.store(page, slot, &self.inode.node, (granule, at, index));
        }
        let Some(nid) = self.map.leaf_of(page)? else {
            return Ok(false);
        };
        let leaf = match self.leaf.take() {
            Some(leaf) if leaf.nid == nid => leaf,
            _ => self
                .files
                .store
                .node(nid, NodeKind::Leaf.of(self.inode.ino))?,
        };
        let place = SlotPlace::in_leaf(page);
        let within = (place.granule, place.bytes().start, place.slot);
        let done = self.store(page, slot, &leaf, within);
        self.leaf = Some(leaf);
        done
    }

    /// Like `set`, where the slot is at byte `at` of a granule of `node`.
    fn store(
        &mut self,
        page: u64,
        slot: Slot,
        node: &NodeRef,
        (granule, at, index): (u8, usize, u8),
    ) -> Result<bool> {
        let draft = self.op.edit_shared(node, granule);
        let bytes = draft.part(at..at + SLOT_BYTES);
        let old = slot_of(bytes);
        bytes.copy_from_slice(slot.as_bytes());
        let old = check_slot(self.files, self.inode.ino, page, old)?;
        if !old.is_written() {
            return Ok(false);
        }
        let owner = SlotRef {
            nid: node.nid,
            granule,
            slot: index,
        };
        if let Some((owner, run)) = self.unplaced.push(owner, old.block()) {
            self.op.unplace(owner, run);
        }
        if let Some((owner, run)) = self.placed.push(owner, slot.block()) {
            self.op.place(owner, run);
        }
        Ok(true)
    }

    /// To be called after the last change.
    pub(crate) fn end(self) {
        if let Some((owner, run)) = self.placed.end() {
            self.op.place(owner, run);
        }
        if let Some((owner, run)) = self.unplaced.end() {
            self.op.unplace(owner, run);
        }
    }
}
