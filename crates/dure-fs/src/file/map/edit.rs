//! Changing slots within an operation.

use dure_store::error::{Error, Result};
use dure_store::format::inode::InodeData;
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{DIRECT_SLOTS, Slot};
use dure_store::node::{Node, NodeRef};
use dure_store::op::Op;
use dure_store::units::{BlockNo, Nid, SlotRef};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::path::{self, ChildPlace, SlotPlace};
use super::read::{check_root, check_slot, slot_of};
use crate::file::Files;
use crate::file::run::SlotRuns;
use crate::inode::Inode;

/// The map of one inode as an operation is changing it. The caller holds the inode exclusively and
/// its write-back mutex. Pages are to be set in ascending order for the runs to be long.
#[derive(Debug)]
pub(crate) struct MapEdit<'a, 'v> {
    pub(super) files: &'v Files,
    pub(super) op: &'a mut Op<'v>,
    pub(super) inode: &'a Inode,
    /// The inode's data to be: direct slots, root, height and block count change here.
    pub(super) data: &'a mut InodeData,
    born: Vec<NodeRef>,
    leaf: Option<(u64, NodeRef)>,
    placed: SlotRuns,
    unplaced: SlotRuns,
}

impl<'a, 'v> MapEdit<'a, 'v> {
    /// Begins to edit the map of `data`, a copy of the inode's.
    pub(crate) fn new(
        files: &'v Files,
        op: &'a mut Op<'v>,
        inode: &'a Inode,
        data: &'a mut InodeData,
    ) -> MapEdit<'a, 'v> {
        let (placed, unplaced) = (SlotRuns::default(), SlotRuns::default());
        MapEdit {
            files,
            op,
            inode,
            data,
            born: Vec::new(),
            leaf: None,
            placed,
            unplaced,
        }
    }

    /// Stores `slot` for `page`, making nodes as needed. A block that leaves the slot is freed when
    /// the operation is valid; one that comes is placed. Returns the slot's owner.
    ///
    /// # Errors
    /// `NoSpace` when no node can be had, `Corrupt`, errors of reading nodes.
    pub(crate) fn set(&mut self, page: u64, slot: Slot) -> Result<SlotRef> {
        let (owner, old) = self.store_slot(page, slot)?;
        if old.block() != slot.block() {
            if !old.is_hole() {
                self.unplace(owner, old.block())?;
            }
            self.place(owner, slot.block());
        }
        Ok(owner)
    }

    /// Like [`MapEdit::set`], of a slot that names the block of slot `source`.
    ///
    /// # Errors
    /// Those of [`MapEdit::set`].
    pub(crate) fn share(&mut self, page: u64, slot: Slot, source: SlotRef) -> Result<()> {
        let (owner, old) = self.store_slot(page, slot)?;
        if old.block() != slot.block() {
            if !old.is_hole() {
                self.unplace(owner, old.block())?;
            }
            self.op.share(source, owner, slot.block());
            self.data.blocks += 1;
        }
        Ok(())
    }

    /// Writes the slot; returns whose it is, and what it was.
    fn store_slot(&mut self, page: u64, slot: Slot) -> Result<(SlotRef, Slot)> {
        assert!(
            !slot.is_hole(),
            "a hole is set: slots are taken away by `free`"
        );
        let (owner, old) = if page < DIRECT_SLOTS {
            let owner = self.direct_owner(page);
            let bytes = &mut self.data.body[path::direct_bytes(page)];
            let old = slot_of(bytes);
            bytes.copy_from_slice(slot.as_bytes());
            (owner, old)
        } else {
            let leaf = self.leaf_for(page)?;
            let place = SlotPlace::in_leaf(page);
            let bytes = self.op.edit(&leaf, place.granule).part(place.bytes());
            let old = slot_of(bytes);
            bytes.copy_from_slice(slot.as_bytes());
            (leaf_owner(&leaf, place), old)
        };
        let old = check_slot(self.files, self.inode.ino, page, old)?;
        Ok((owner, old))
    }

    /// Like [`MapEdit::set`]; the log carries the content of the slot's block.
    ///
    /// # Errors
    /// Those of [`MapEdit::set`].
    pub(crate) fn set_with_data(&mut self, page: u64, slot: Slot, bytes: &[u8]) -> Result<()> {
        let owner = self.set(page, slot)?;
        self.op.data(owner, slot.block(), bytes);
        Ok(())
    }

    /// Writes the data into the inode's granule; to be called once, after the last change.
    pub(crate) fn end(self) {
        self.end_with(Inode::store_data);
    }

    /// Like [`MapEdit::end`], if unwritten blocks were given to holes, and nothing else was done.
    pub(crate) fn end_unwritten(self) {
        self.end_with(Inode::store_unwritten);
    }

    fn end_with(self, store: impl FnOnce(&Inode, &mut Op<'v>, &InodeData)) {
        if let Some((owner, run)) = self.placed.end() {
            self.op.place(owner, run);
        }
        if let Some((owner, run)) = self.unplaced.end() {
            self.op.unplace(owner, run);
        }
        store(self.inode, self.op, self.data);
    }

    fn place(&mut self, owner: SlotRef, block: BlockNo) {
        if let Some((owner, run)) = self.placed.push(owner, block) {
            self.op.place(owner, run);
        }
        self.data.blocks += 1;
    }

    /// Takes a block out of its slot.
    ///
    /// # Errors
    /// `Corrupt` when the inode counts fewer blocks than its slots have.
    pub(super) fn unplace(&mut self, owner: SlotRef, block: BlockNo) -> Result<()> {
        let Some(blocks) = self.data.blocks.get().checked_sub(1) else {
            return Err(Error::Corrupt {
                what: format!("number of blocks of inode {}", self.inode.ino),
                at: self.files.store.nat.entry(self.inode.node.nid)?.block().0,
                want: 1,
                got: 0,
            });
        };
        self.data.blocks.set(blocks);
        if let Some((owner, run)) = self.unplaced.push(owner, block) {
            self.op.unplace(owner, run);
        }
        Ok(())
    }

    pub(super) fn direct_owner(&self, page: u64) -> SlotRef {
        let slot = path::direct_slot(page);
        SlotRef {
            nid: self.inode.node.nid,
            granule: self.inode.ino.data_index(),
            slot,
        }
    }

    /// The node `nid`, which may have been made by this operation.
    pub(super) fn node(&self, nid: Nid, kind: NodeKind) -> Result<NodeRef> {
        match self.born.iter().find(|node| node.nid == nid) {
            Some(node) => Ok(node.clone()),
            None => self.files.store.node(nid, kind.of(self.inode.ino)),
        }
    }

    /// The child of an index as this operation sees it.
    pub(super) fn child(&self, index: &NodeRef, place: ChildPlace) -> Nid {
        let read = |payload: &[u8]| {
            U64::read_from_bytes(&payload[place.bytes()])
                .expect("a child's place has 8 bytes")
                .get()
        };
        Nid(self.op.view(index, place.granule, read))
    }

    pub(super) fn set_child(&mut self, index: &NodeRef, place: ChildPlace, child: Nid) {
        let bytes = self.op.edit(index, place.granule).part(place.bytes());
        bytes.copy_from_slice(&child.0.to_le_bytes());
    }

    fn new_node(&mut self, kind: NodeKind) -> Result<NodeRef> {
        let node = self.op.new_node_of(kind, self.inode.ino)?;
        assert_ne!(
            node.nid.0, 0,
            "a map node gets the number of the root directory's node"
        );
        self.born.push(node.clone());
        Ok(node)
    }

    /// The leaf of `page`, made with all above it if it is not there.
    fn leaf_for(&mut self, page: u64) -> Result<NodeRef> {
        let start = path::node_start(page, 1);
        if let Some((cached, leaf)) = &self.leaf
            && *cached == start
        {
            return Ok(leaf.clone());
        }
        self.grow(path::height_for(page))?;
        let height = self.data.map_height.get();
        let mut nid = Nid(self.data.map_root.get());
        for level in (2..=height).rev() {
            let index = self.node(nid, NodeKind::Index)?;
            let place = ChildPlace::toward(page, level);
            nid = self.child(&index, place);
            if nid.0 == 0 {
                let made = self.new_node(kind_at(level - 1))?;
                self.set_child(&index, place, made.nid);
                nid = made.nid;
            }
        }
        let leaf = self.node(nid, NodeKind::Leaf)?;
        self.leaf = Some((start, leaf.clone()));
        Ok(leaf)
    }

    /// Makes the tree at least `height` high.
    fn grow(&mut self, height: u32) -> Result<()> {
        let mut now = check_root(self.data)?;
        if now == 0 {
            let root = self.new_node(kind_at(height))?;
            (self.data.map_root, self.data.map_height) = (root.nid.0.into(), height.into());
            return Ok(());
        }
        while now < height {
            now += 1;
            let root = self.new_node(NodeKind::Index)?;
            self.set_child(&root, ChildPlace::nth(0), Nid(self.data.map_root.get()));
            (self.data.map_root, self.data.map_height) = (root.nid.0.into(), now.into());
        }
        Ok(())
    }

    /// Forgets the leaf it remembers: it may be freed.
    pub(super) fn forget_leaf(&mut self) {
        self.leaf = None;
    }
}

/// What a node of `height` is.
pub(super) fn kind_at(height: u32) -> NodeKind {
    if height == 1 {
        NodeKind::Leaf
    } else {
        NodeKind::Index
    }
}

pub(super) fn leaf_owner(leaf: &Node, place: SlotPlace) -> SlotRef {
    SlotRef {
        nid: leaf.nid,
        granule: place.granule,
        slot: place.slot,
    }
}
