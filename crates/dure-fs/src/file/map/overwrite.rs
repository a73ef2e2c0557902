//! Other blocks for pages that have one, by holders of the shared inode lock.
//!
//! **Problem.** Tasks that overwrite different pages of one file change different slots; of the
//! inode's data they change nothing but times, which tick rarely, and often not these.
//! **Structure.** [`MapOverwrite`] changes slots and nothing else: the size, the number of blocks, the
//! tree and the times stay as they are. **Invariants.** Slots of several tasks are in one granule,
//! so only the bytes of a slot are stored, under the granule's lock, over whatever others have
//! stored meanwhile. **On a crash** a slot changes with its operation.

use dure_store::error::Result;
use dure_store::format::inode::INODE_BODY;
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{DIRECT_SLOTS, SLOT_BYTES, Slot};
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::units::SlotRef;
use zerocopy::IntoBytes;

use super::path::{self, SlotPlace};
use super::read::MapReader;
use crate::file::run::SlotRuns;
use crate::inode::Inode;
use crate::volume::Volume;

/// Slots that an operation changes. The caller holds write-back and the inode shared, and the range
/// of the pages exclusively. Pages are to be set in ascending order.
#[derive(Debug)]
pub(crate) struct MapOverwrite<'a, 'v> {
    volume: &'v Volume,
    op: &'a mut Op<'v>,
    inode: &'a Inode,
    map: MapReader<'v>,
    placed: SlotRuns,
    unplaced: SlotRuns,
}

impl<'a, 'v> MapOverwrite<'a, 'v> {
    pub(crate) fn new(volume: &'v Volume, op: &'a mut Op<'v>, inode: &'a Inode) -> Self {
        MapOverwrite {
            map: MapReader::new(volume, inode),
            volume,
            op,
            inode,
            placed: SlotRuns::default(),
            unplaced: SlotRuns::default(),
        }
    }

    /// Stores `slot` for `page`. False, and nothing is changed, if the page has no content.
    ///
    /// # Errors
    /// `Corrupt`, errors of reading nodes.
    pub(crate) fn set(&mut self, page: u64, slot: Slot) -> Result<bool> {
        let old = self.map.slot(page)?;
        if !old.is_written() {
            return Ok(false);
        }
        let Some((node, granule, at)) = self.place_of(page)? else {
            return Ok(false);
        };
        let bytes = self
            .op
            .edit_shared(&node, granule)
            .part(at..at + SLOT_BYTES);
        bytes.copy_from_slice(slot.as_bytes());
        let index = match page < DIRECT_SLOTS {
            true => path::direct_slot(page),
            false => SlotPlace::in_leaf(page).slot,
        };
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

    /// The node that has the slot of `page`, the granule, and where the slot begins in it.
    fn place_of(&mut self, page: u64) -> Result<Option<(NodeRef, u8, usize)>> {
        if page < DIRECT_SLOTS {
            let at = INODE_BODY + path::direct_bytes(page).start;
            let granule = self.inode.ino.data_index();
            return Ok(Some((self.inode.node.clone(), granule, at)));
        }
        let Some(leaf) = self.map.leaf_of(page)? else {
            return Ok(None);
        };
        let role = NodeKind::Leaf.of(self.inode.ino);
        let place = SlotPlace::in_leaf(page);
        let node = self.volume.node(leaf, role)?;
        Ok(Some((node, place.granule, place.bytes().start)))
    }
}
