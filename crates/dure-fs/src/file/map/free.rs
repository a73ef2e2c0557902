//! Taking slots away, and the nodes they leave empty.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, LEAF_SLOTS, Slot};
use dure_store::node::NodeRef;
use dure_store::units::Nid;
use zerocopy::IntoBytes;

use super::edit::{MapEdit, leaf_owner};
use super::path::{self, ChildPlace, SlotPlace};
use super::read::{check_root, check_slot, no_children, slot_of};

/// Slots one operation frees at most.
pub(crate) const FREE_SLOTS_MAX: u32 = 512;
/// Leaves one operation looks into at most.
const FREE_LEAVES_MAX: u32 = 4;
/// Nodes one operation makes dirty at most by freeing: the inode's, and each leaf with all above
/// it.
pub(crate) const FREE_NODES_MAX: u32 = 1 + FREE_LEAVES_MAX * path::HEIGHT_MAX;
const _: () = assert!(
    FREE_SLOTS_MAX as u64 > LEAF_SLOTS + DIRECT_SLOTS,
    "one leaf always fits"
);

/// A leaf and the index nodes above it, the root first, each with the child that leads down.
#[derive(Debug)]
struct Branch {
    above: Vec<(NodeRef, ChildPlace)>,
    leaf: NodeRef,
    start: u64,
}

impl MapEdit<'_, '_> {
    /// Frees slots in `range`, as many as one operation may, in ascending order. Returns the page
    /// to go on from, or `None` when the range is done.
    ///
    /// # Errors
    /// `Corrupt`, errors of reading nodes.
    pub(crate) fn free(&mut self, range: Range<u64>) -> Result<Option<u64>> {
        let mut page = range.start;
        let mut slots = 0;
        let mut leaves = 0;
        while page < range.end.min(DIRECT_SLOTS) {
            slots += u32::from(self.free_direct(page)?);
            page += 1;
        }
        while page < range.end {
            let Some(branch) = self.next_branch(page)? else {
                return Ok(None);
            };
            page = page.max(branch.start);
            if page >= range.end {
                return Ok(None);
            }
            let fits =
                slots + u32::try_from(LEAF_SLOTS).expect("a leaf has 320 slots") <= FREE_SLOTS_MAX;
            if leaves == FREE_LEAVES_MAX || !fits {
                return Ok(Some(page));
            }
            let end = range.end.min(branch.start + LEAF_SLOTS);
            slots += self.free_in_leaf(&branch, page..end)?;
            leaves += 1;
            page = end;
        }
        Ok(None)
    }

    fn free_direct(&mut self, page: u64) -> Result<bool> {
        let bytes = &mut self.data.body[path::direct_bytes(page)];
        let old = slot_of(bytes);
        bytes.copy_from_slice(Slot::HOLE.as_bytes());
        let old = check_slot(self.files, self.inode.ino, page, old)?;
        if !old.is_hole() {
            self.unplace(self.direct_owner(page), old.block())?;
        }
        Ok(!old.is_hole())
    }

    /// Frees the slots of `pages` in one leaf, and the leaf if that was all it had.
    fn free_in_leaf(&mut self, branch: &Branch, pages: Range<u64>) -> Result<u32> {
        let mut mapped = Vec::new();
        let mut others = false;
        for page in branch.start..branch.start + LEAF_SLOTS {
            let place = SlotPlace::in_leaf(page);
            let read = |payload: &[u8]| slot_of(&payload[place.bytes()]);
            let slot = self.op.view(&branch.leaf, place.granule, read);
            let slot = check_slot(self.files, self.inode.ino, page, slot)?;
            if slot.is_hole() {
                continue;
            }
            if pages.contains(&page) {
                mapped.push((place, slot));
            } else {
                others = true;
            }
        }
        for &(place, slot) in &mapped {
            self.unplace(leaf_owner(&branch.leaf, place), slot.block())?;
            if others {
                let bytes = self
                    .op
                    .edit(&branch.leaf, place.granule)
                    .part(place.bytes());
                bytes.copy_from_slice(Slot::HOLE.as_bytes());
            }
        }
        if !others {
            self.forget_leaf();
            self.free_branch(branch)?;
        }
        Ok(u32::try_from(mapped.len()).expect("a leaf has at most 320 slots"))
    }

    /// Frees an emptied leaf and every index that has no other child.
    fn free_branch(&mut self, branch: &Branch) -> Result<()> {
        self.op.free_node(&branch.leaf)?;
        for (index, place) in branch.above.iter().rev() {
            self.set_child(index, *place, Nid(0));
            if !self.is_empty(index) {
                return Ok(());
            }
            self.op.free_node(index)?;
        }
        (self.data.map_root, self.data.map_height) = (0.into(), 0.into());
        Ok(())
    }

    fn is_empty(&self, index: &NodeRef) -> bool {
        let zero = |payload: &[u8]| payload.iter().all(|&byte| byte == 0);
        (0..index.granule_count()).all(|granule| self.op.view(index, granule, zero))
    }

    /// The first leaf that covers `page` or comes after it, as this operation sees the tree.
    fn next_branch(&self, page: u64) -> Result<Option<Branch>> {
        let height = check_root(self.data)?;
        if path::height_for(page) > height {
            return Ok(None);
        }
        let mut above = Vec::new();
        let root = Nid(self.data.map_root.get());
        let found = self.descend(root, height, DIRECT_SLOTS, page, &mut above)?;
        Ok(found.map(|(start, leaf)| Branch { above, leaf, start }))
    }

    /// Like `next_branch`, below `nid`; `above` grows on the way down and shrinks on the way back.
    fn descend(
        &self,
        nid: Nid,
        height: u32,
        start: u64,
        page: u64,
        above: &mut Vec<(NodeRef, ChildPlace)>,
    ) -> Result<Option<(u64, NodeRef)>> {
        if height == 1 {
            return Ok(Some((start, self.node(nid, NodeKind::Leaf)?)));
        }
        let index = self.node(nid, NodeKind::Index)?;
        let span = path::subtree_pages(height - 1);
        for n in page.saturating_sub(start) / span..INDEX_CHILDREN {
            let place = ChildPlace::nth(n);
            let child = self.child(&index, place);
            if child.0 == 0 {
                continue;
            }
            above.push((index.clone(), place));
            let found = self.descend(child, height - 1, start + n * span, page, above)?;
            if found.is_some() {
                return Ok(found);
            }
            above.pop();
        }
        if page <= start {
            return Err(no_children(self.files, self.inode.ino, nid));
        }
        Ok(None)
    }
}
