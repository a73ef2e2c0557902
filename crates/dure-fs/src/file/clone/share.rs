//! The operation that lets slots of one file name the blocks of another one's.

use std::ops::Range;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::space::{OpClass, SharedClaim};
use dure_store::units::{SlotRef, to_u64};

use super::{Clone, Step, is_clean};
use crate::file::Files;
use crate::file::map::room::{extend, leaves};
use crate::file::map::{MapEdit, MapReader, NodePlaces};
use crate::inode::{Access, Inode, InodeState, LockedInodes};
use crate::quota::Charged;

impl Files {
    /// Shares the blocks of these slots, of the source's pages from `page` on.
    pub(super) fn clone_slots(&self, clone: &Clone<'_>, page: u64, slots: &[Slot]) -> Result<Step> {
        let pages = page..page + to_u64(slots.len());
        let core = self.store.partition();
        // Each border of segments ends a run, and each of granules, of the source or of the target.
        let place = |slot: &Slot| {
            let block = slot.block();
            (
                self.store.layout.locate(block).map(|(segment, _)| segment),
                block.0,
            )
        };
        let breaks = slots.windows(2).filter(|pair| {
            let [(segment, block), (next, after)] = [place(&pair[0]), place(&pair[1])];
            segment != next || after != block + 1
        });
        let runs = u32::try_from(breaks.count() + 5).expect("a step has few pages");
        let Some(claim) = self.store.claim_shared(core, runs)? else {
            return Ok(Step::Stop);
        };
        let nodes = self.nodes_to_clone(clone, &pages)?;
        let charged = self.charge(clone.target, self.holes_of(clone, &pages)?)?;
        let op = match self.store.op(OpKind::Allocate, OpClass::Normal, nodes) {
            Err(Error::NoSpace { .. }) => return Ok(Step::Stop),
            op => op?,
        };
        self.share_slots((op, charged), clone, (pages, slots), claim)
    }

    /// Holes of the target that these pages of the source fill; nobody asks without quotas. The caller
    /// holds the write-back lock of the target.
    fn holes_of(&self, clone: &Clone<'_>, pages: &Range<u64>) -> Result<u32> {
        if self.inodes.quotas().is_none() {
            return Ok(0);
        }
        let _state = clone.target.state().read();
        let mut map = MapReader::new(self, clone.target);
        let mut holes = 0;
        for page in clone.target_of(pages) {
            holes += u32::from(map.slot(page)?.is_hole());
        }
        Ok(holes)
    }

    /// Nodes that a step makes dirty at most.
    fn nodes_to_clone(&self, clone: &Clone<'_>, pages: &Range<u64>) -> Result<u32> {
        let target = clone.target_of(pages);
        // The inode, and notes about blocks.
        let mut nodes = 2;
        let _state = clone.target.state().read();
        let mut map = MapReader::new(self, clone.target);
        let mut new = NodePlaces::new();
        for leaf in leaves(target) {
            // A leaf that exists, or new nodes and the index they hang on.
            nodes += 1;
            extend(&mut new, map.missing_nodes(leaf)?);
        }
        Ok(u32::try_from(nodes + new.len()).expect("a step has few nodes"))
    }

    /// Where these slots of the source are, if they are as they were found and can be shared now. The
    /// caller holds the source.
    fn owners_of(
        &self,
        source: &Inode,
        state: &InodeState,
        (pages, slots): (Range<u64>, &[Slot]),
    ) -> Result<std::result::Result<Vec<(NodeRef, SlotRef)>, Step>> {
        let mut owners = Vec::with_capacity(slots.len());
        let mut map = MapReader::new(self, source);
        for (page, slot) in pages.zip(slots) {
            if state.file().is_cut(page) || map.slot(page)? != *slot {
                return Ok(Err(Step::Dirty));
            }
            if self.store.data_log.holds(slot.block()) {
                return Ok(Err(Step::Logged));
            }
            // What only waits in persistent memory to be moved to the device would stay there.
            let waits = self.store.absorb().is_some() && self.store.layout.is_in_nvm(slot.block());
            if waits {
                return Ok(Err(Step::Stop));
            }
            owners.push(map.owner(page)?);
        }
        Ok(Ok(owners))
    }

    /// The operation of a step, with both inodes held.
    fn share_slots<'v>(
        &'v self,
        (mut op, mut charged): (Op<'v>, Charged<'v>),
        clone: &Clone<'_>,
        (pages, slots): (Range<u64>, &[Slot]),
        claim: SharedClaim<'_>,
    ) -> Result<Step> {
        let (source, target) = (clone.source, clone.target);
        let exclusive = |inode| (inode, Access::Exclusive);
        let mut locked = LockedInodes::lock([exclusive(&**source), exclusive(&**target)]);
        let state = locked.get(source);
        if !is_clean(target, locked.get(target))
            || source.state().growth_waits()
            || state.file().pages.next_unclean(pages.clone()).is_some()
        {
            return Ok(Step::Dirty);
        }
        let (mut pages, mut slots) = (pages, slots);
        let own = locked.get(target).file().size();
        if clone.compares && own < clone.size_up_to(pages.end) {
            // It was cut since: a comparison makes no file longer.
            return Ok(Step::Stop);
        }
        let is_last = pages.end == clone.pages.end;
        if is_last && !clone.ends_well(state.file().size(), own) {
            pages.end -= 1;
            slots = &slots[..slots.len() - 1];
        }
        if slots.is_empty() {
            return Ok(Step::Stop);
        }
        let owners = match self.owners_of(source, state, (pages.clone(), slots))? {
            Ok(owners) => owners,
            Err(step) => return Ok(step),
        };
        let to = clone.target_of(&pages);
        let mut data = target.data_draft(locked.get(target));
        // Everything below is on the medium: the file is clean.
        let size = data.size.get().max(clone.size_up_to(pages.end));
        assert!(
            !clone.compares || size == data.size.get(),
            "a comparison keeps the size"
        );
        data.size.set(size);
        if !clone.compares {
            (data.mtime, data.ctime) = (op.time(), op.time());
        }
        let mut last = None;
        for (node, owner) in &owners {
            if op.marks_reads() && last != Some((owner.nid, owner.granule)) {
                op.depends_on(node.last_writer(owner.granule));
            }
            last = Some((owner.nid, owner.granule));
        }
        let mut edit = MapEdit::new(self, &mut op, target, &mut data);
        for ((page, slot), (_, owner)) in to.clone().zip(slots).zip(&owners) {
            // Of pages that may be lost with the power (`data=writeback`) the clone is not one: it
            // would fall to "unwritten", on a block that the source would then fill in place.
            let slot = Slot::written(slot.block(), slot.crc.get());
            edit.share(page, slot, *owner)?;
        }
        edit.end();
        // Nothing can fail from here on.
        target.state().seek_hint().data_comes(&to);
        let mark = op.finish();
        drop(claim);
        clone.stamped.set(true);
        let state = locked.get_mut(target);
        charged.hand_over(state.charge(), u32::MAX);
        target.data_stored(state, &data, mark);
        let file = state.file_mut();
        self.body.discard(self, file, to);
        file.set_size(target.state().seek_hint(), size);
        Ok(Step::Done(pages.end))
    }
}
