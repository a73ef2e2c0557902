//! Clones: a range of a file names the blocks of a range of another one.
//!
//! **Structure.** What is only in memory is written back first, of both files. Then, in steps under the
//! write-back lock of the target, one operation gives its slots the blocks of up to 64 pages of the
//! source, and lets the space map count them (`dure_store::space::shared`). Holes, and pages that are
//! preallocated, become holes. A page whose content is in a log only is written to its block by a
//! checkpoint first.
//!
//! # Invariants
//! A step holds both inodes exclusively, and looks at every slot again: it shares what read(2) would
//! return at that moment, or nothing. It depends on the last writers of the source's slots: a clone
//! does not survive without what it is a clone of. What later takes a block out of the source need not
//! depend on the clone: if the clone is lost, no slot of it names the block.
//!
//! The size that is logged covers slots with data only if no page below waits for write-back: the
//! target is clean at each step.
//!
//! **On a crash** each step is there wholly, with its references, or not at all.

use std::cell::Cell;
use std::ops::Range;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::node::NodeRef;
use dure_store::space::{OpClass, SharedClaim};
use dure_store::units::{BLOCK_BYTES_U64, SlotRef, to_u64};
use dure_sync::Arc;

use super::body::Body;
use super::bytes::pages_up_to;
use super::cached::{Extent, Way};
use super::map::room::{extend, leaves};
use super::map::{FILE_BYTES_MAX, MapEdit, MapReader, NodePlaces};
use crate::file::Files;
use crate::inode::{Access, Inode, InodeState, LockedInodes};
use crate::quota::Charged;

/// Pages of one step.
const STEP_PAGES: u64 = 64;
/// Pages of a hole that one look finds.
const HOLE_PAGES: u64 = 1 << 20;
/// Times in a row that a page is found changed, or in memory only, before the rest is left to the
/// caller.
const TRIES: u32 = 8;

/// Two files, and what of the first becomes part of the second.
struct Clone<'i> {
    source: &'i Arc<Inode>,
    target: &'i Arc<Inode>,
    /// Pages of the source.
    pages: Range<u64>,
    /// The page of the target that is the first of these.
    to: u64,
    /// Bytes from the start of both; ends within the last page only if the source does.
    len: u64,
    /// An operation has changed the times of the target.
    stamped: Cell<bool>,
}

impl Clone<'_> {
    fn target_of(&self, pages: &Range<u64>) -> Range<u64> {
        let at = |page: u64| self.to + (page - self.pages.start);
        at(pages.start)..at(pages.end)
    }

    /// The size that the target has at least when pages up to `end` are cloned.
    fn size_up_to(&self, end: u64) -> u64 {
        let bytes = ((end - self.pages.start) * BLOCK_BYTES_U64).min(self.len);
        self.to * BLOCK_BYTES_U64 + bytes
    }

    /// Whether the last page may be shared: both files end in it, or neither.
    fn ends_well(&self, source: u64, target: u64) -> bool {
        let end = self.pages.start * BLOCK_BYTES_U64 + self.len;
        let whole = self.len.is_multiple_of(BLOCK_BYTES_U64);
        end <= source && (whole || (end == source && target <= self.size_up_to(self.pages.end)))
    }
}

/// What is at the start of a range of the source.
enum Found {
    /// Nothing up to this page.
    Hole(u64),
    /// Pages with content.
    Slots(Vec<Slot>),
}

/// What came of a step.
enum Step {
    /// Everything before this page is cloned.
    Done(u64),
    /// A page is in memory only.
    Dirty,
    /// The content of a page is in a log only.
    Logged,
    /// The superblock does not say yet that slots share blocks.
    Unannounced,
    /// The rest cannot be shared.
    Stop,
}

/// Whether a file has nothing that is in memory only.
fn is_clean(inode: &Inode, state: &InodeState) -> bool {
    let file = state.file();
    !inode.state().growth_waits()
        && file.pages.is_clean()
        && !file.is_longer()
        && file.cut.is_none()
}

impl Files {
    /// Whether the body shares blocks.
    pub(crate) fn can_clone(&self) -> bool {
        self.body == Body::Cached
    }

    /// See [`FileSystem::clone_range`](crate::volume::FileSystem::clone_range).
    pub(crate) fn clone_range(
        &self,
        (source, from): (&Arc<Inode>, u64),
        (target, to): (&Arc<Inode>, u64),
        len: u64,
    ) -> Result<u64> {
        self.store.check_writable()?;
        let Some(clone) = self.plan_clone((source, from), (target, to), len)? else {
            return Ok(0);
        };
        target.ranges_in(self);
        let start = to;
        let end = clone.size_up_to(clone.pages.end);
        let _range = target.take_span(start, end);
        let done = self.clone_pages(&clone);
        let done = done.map(|page| clone.size_up_to(page) - start)?;
        if done == 0 {
            return Ok(0);
        }
        if !clone.stamped.get() || target.state().seek_hint().size() < start + done {
            self.body.end_allocation(self, target, Some(start + done))?;
        }
        self.end_data_call(target)?;
        Ok(done)
    }

    /// What can be cloned of a range: whole pages, and the last one of the source.
    fn plan_clone<'i>(
        &self,
        (source, from): (&'i Arc<Inode>, u64),
        (target, to): (&'i Arc<Inode>, u64),
        len: u64,
    ) -> Result<Option<Clone<'i>>> {
        let aligned = from.is_multiple_of(BLOCK_BYTES_U64) && to.is_multiple_of(BLOCK_BYTES_U64);
        if !aligned || !self.can_clone() || source.ino == target.ino {
            return Ok(None);
        }
        let size = source.state().seek_hint().size();
        let mut len = len.min(size.saturating_sub(from));
        if to.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::TooLarge);
        }
        if from + len < size {
            len -= len % BLOCK_BYTES_U64;
        }
        let first = from / BLOCK_BYTES_U64;
        Ok((len > 0).then(|| Clone {
            source,
            target,
            pages: first..pages_up_to(from + len),
            to: to / BLOCK_BYTES_U64,
            len,
            stamped: Cell::new(false),
        }))
    }

    /// Clones pages in order; returns the first that is not. An error behind the first step only ends
    /// it.
    fn clone_pages(&self, clone: &Clone<'_>) -> Result<u64> {
        let mut page = clone.pages.start;
        let mut tries = 0;
        while page < clone.pages.end && tries < TRIES {
            let before = page;
            let stepped = self.write_back_by(clone.source, Way::Blocks, Extent::Data);
            let stepped = stepped.and_then(|_| self.clone_held(clone, &mut page));
            let ended = match stepped {
                Err(error) if page == clone.pages.start => return Err(error),
                Err(_) => return Ok(page),
                Ok(Step::Logged) => self.store.checkpoint(),
                Ok(Step::Unannounced) => self.store.allow_sharing(),
                Ok(Step::Dirty) => Ok(()),
                Ok(Step::Stop | Step::Done(_)) => return Ok(page),
            };
            match ended {
                Err(error) if page == clone.pages.start => return Err(error),
                Err(_) => return Ok(page),
                Ok(()) if page > before => tries = 0,
                Ok(()) => tries += 1,
            }
        }
        Ok(page)
    }

    /// Clones pages from `page` on, which it moves, as far as that goes under one hold of the
    /// write-back lock.
    fn clone_held(&self, clone: &Clone<'_>, page: &mut u64) -> Result<Step> {
        let target = clone.target;
        let _held = target.lock_writeback();
        self.finish_cut(target)?;
        self.write_back_held(target, Way::Blocks, Extent::Data)?;
        while *page < clone.pages.end {
            let step = match self.find_slots(clone, *page..clone.pages.end)? {
                None => Step::Dirty,
                Some(Found::Hole(end)) => self.clone_hole(clone, *page..end)?,
                Some(Found::Slots(_)) if !self.store.space.may_share() => Step::Unannounced,
                Some(Found::Slots(slots)) => self.clone_slots(clone, *page, &slots)?,
            };
            match step {
                Step::Done(next) => *page = next,
                other => return Ok(other),
            }
        }
        Ok(Step::Done(*page))
    }

    /// What the source has at the start of a range, up to the first page that is in memory only; `None`
    /// if that is the first one.
    fn find_slots(&self, clone: &Clone<'_>, range: Range<u64>) -> Result<Option<Found>> {
        let state = clone.source.state().read();
        let file = state.file();
        let near = range.start..range.end.min(range.start + HOLE_PAGES);
        let near = near.start..file.pages.next_unclean(near.clone()).unwrap_or(near.end);
        let step = near.start..near.end.min(near.start + STEP_PAGES);
        if clone.source.state().growth_waits() || near.is_empty() {
            return Ok(None);
        }
        let mut map = MapReader::new(self, clone.source);
        let end = near.end.min(file.map_end());
        let mut from = near.start;
        // Preallocated pages count as a hole.
        let first = loop {
            match map.next_mapped(from, end)? {
                Some((page, slot)) if !slot.is_written() => from = page + 1,
                Some((page, _)) => break Some(page),
                None => break None,
            }
        };
        match first {
            None => Ok(Some(Found::Hole(near.end))),
            Some(page) if page > near.start => Ok(Some(Found::Hole(page))),
            Some(_) => {
                let mut slots = Vec::new();
                for page in step {
                    let slot = map.slot(page)?;
                    if !slot.is_written() || file.is_cut(page) {
                        break;
                    }
                    slots.push(slot);
                }
                Ok(Some(Found::Slots(slots)))
            }
        }
    }

    /// Makes what these pages of the source become in the target a hole. The caller holds the
    /// write-back lock of the target.
    fn clone_hole(&self, clone: &Clone<'_>, mut pages: Range<u64>) -> Result<Step> {
        let target = clone.target;
        let size = |inode: &Inode| inode.state().seek_hint().size();
        let is_last = pages.end == clone.pages.end;
        if is_last && !clone.ends_well(size(clone.source), size(target)) {
            pages.end -= 1;
        }
        if pages.is_empty() {
            return Ok(Step::Stop);
        }
        let gone = clone.target_of(&pages);
        let mut from = gone.start;
        while from < gone.end {
            let has_some = {
                let state = target.state().read();
                let mut map = MapReader::new(self, target);
                let present = state.file().pages.next_present(from..gone.end);
                present.is_some() || map.next_mapped(from, gone.end)?.is_some()
            };
            if !has_some {
                break;
            }
            from = self.free_pages(target, from..gone.end)?;
        }
        Ok(Step::Done(pages.end))
    }

    /// Shares the blocks of these slots, of the source's pages from `page` on.
    fn clone_slots(&self, clone: &Clone<'_>, page: u64, slots: &[Slot]) -> Result<Step> {
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
        (mut op, mut charged): (dure_store::op::Op<'v>, Charged<'v>),
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
        let is_last = pages.end == clone.pages.end;
        if is_last && !clone.ends_well(state.file().size(), locked.get(target).file().size()) {
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
        data.size.set(size);
        (data.mtime, data.ctime) = (op.time(), op.time());
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
