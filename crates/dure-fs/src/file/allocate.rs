//! Preallocation, holes and zeroes.
//!
//! **Structure.** Preallocated slots name a block and say "unwritten"; holes are made page-wise by
//! freeing slots, zeroed ranges by replacing blocks with unwritten ones, and both byte-wise at the
//! edges by writing zeroes. All blocks that a call adds, for data and map, are
//! reserved before the first change ([`Growth`]), so a call that finds no room has changed nothing.
//!
//! # Invariants
//! Each operation frees or fills a bounded number of slots, and each leaves a legal state: a range
//! that is partly punched, or partly allocated, is one a caller could have asked for. A zeroed
//! range gets new blocks, never "unwritten" on a block that counted: a write would fill it in place
//! while a crash could still bring the old slot back.
//!
//! **On a crash** operations that were durable stay. A page written into a preallocated block reads
//! as zeroes until the operation that says "written" is durable: the block is filled in place,
//! before or after that operation gets into a log, and recovery drops an operation whose CRC the
//! block does not match.

use std::collections::BTreeSet;
use std::ops::Range;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::placement::{Target, Tier};
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES_U64, to_u64};
use dure_sync::{Arc, CoreId};

use super::bytes::pages_up_to;
use super::map::path::granule_rest;
use super::map::room::{extend, leaves};
use super::map::{FILE_BYTES_MAX, FREE_NODES_MAX, MapEdit, MapReader, NodePlaces};
use super::ranges::Range as Held;
use crate::file::Files;
use crate::inode::Inode;
use crate::quota::Charged;

/// Slots one operation fills.
const STEP_SLOTS: usize = 256;
/// Granules of slots one step looks at: bounds its walk, and the leaves it touches.
const STEP_GRANULES: usize = 16;

/// What to do with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Give blocks to holes; the file is at least as long as the range reaches.
    Extend,
    /// Give blocks to holes; the size stays.
    KeepSize,
    /// Make a hole; the size stays.
    Punch,
    /// Make the range read as zeroes and have blocks; extends the file.
    Zero,
    /// Make the range read as zeroes and have blocks; the size stays.
    ZeroKeepSize,
}

/// The pages that a range of bytes touches.
fn pages_over(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES_U64..pages_up_to(range.end)
}

/// The pages that are wholly in a range of bytes, and the bytes before and behind them, each within
/// one page.
fn split_edges(range: &Range<u64>) -> (Range<u64>, [Range<u64>; 2]) {
    let (first, last) = (pages_up_to(range.start), range.end / BLOCK_BYTES_U64);
    if first > last {
        return (first..first, [range.clone(), range.end..range.end]);
    }
    let left = range.start..first * BLOCK_BYTES_U64;
    (first..last, [left, last * BLOCK_BYTES_U64..range.end])
}

/// Blocks that a preallocation adds, reserved. What is left of them when it is dropped goes back.
#[derive(Debug)]
struct Growth<'v> {
    files: &'v Files,
    core: CoreId,
    data: u32,
    nodes: u32,
    /// What `data` is charged for.
    charged: Charged<'v>,
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        self.files.unreserve(self.core, self.data + self.nodes);
    }
}

/// Slots that one operation fills with unwritten blocks.
#[derive(Debug, Default)]
struct Step {
    pages: Vec<u64>,
    /// How many of the pages replace a block.
    replaced: u32,
    /// One of these blocks is shared with a clone, and so not given back.
    adds: bool,
    /// Nodes that exist and that the operation changes.
    rewritten: u32,
    /// Nodes it makes.
    new: NodePlaces,
    /// Where to go on.
    next: u64,
}

impl Files {
    fn punch(&self, inode: &Arc<Inode>, held: Option<&Held<'_>>, range: &Range<u64>) -> Result<()> {
        let (
            Range {
                start: first,
                end: last,
            },
            [left, right],
        ) = split_edges(range);
        self.body.zero(self, (inode, held), left)?;
        self.body.zero(self, (inode, held), right)?;
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        if self.drop_unmapped(inode, first..last)? {
            return Ok(());
        }
        let mut from = first;
        while from < last {
            from = self.free_pages(inode, from..last)?;
        }
        Ok(())
    }

    /// Makes pages a hole that have no slots, so are in memory at most. False: nothing done. The
    /// caller holds the write-back mutex.
    fn drop_unmapped(&self, inode: &Inode, pages: Range<u64>) -> Result<bool> {
        let mut state = inode.state().write();
        if self.is_mapped(inode, pages.clone())? {
            return Ok(false);
        }
        inode.state().seek_hint().data_goes(&pages);
        self.body.discard(self, state.file_mut(), pages);
        Ok(true)
    }

    /// Makes pages a hole, as many as one operation can; returns the next one. The caller holds the
    /// write-back mutex, and no truncate is half done.
    pub(super) fn free_pages(&self, inode: &Arc<Inode>, pages: Range<u64>) -> Result<u64> {
        let Range { start, end } = pages;
        let mut op = self
            .store
            .op(OpKind::Allocate, OpClass::Delete, FREE_NODES_MAX)?;
        let mut state = inode.state().write();
        let mut data = inode.data_draft(&state);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        let next = edit.free(start..end)?.unwrap_or(end);
        edit.end();
        inode.state().seek_hint().data_goes(&(start..next));
        inode.data_stored(&mut state, &data, op.finish());
        self.body.discard(self, state.file_mut(), start..next);
        Ok(next)
    }

    /// Gives an unwritten block to each hole of `pages`; replaces the block of each page of
    /// `zeroed` by an unwritten one.
    fn preallocate(
        &self,
        inode: &Arc<Inode>,
        pages: Range<u64>,
        zeroed: &Range<u64>,
    ) -> Result<()> {
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        let mut growth = self.reserve_growth(inode, &pages)?;
        let mut from = pages.start;
        while from < pages.end {
            let step = self.next_step(inode, from..pages.end, zeroed)?;
            if !step.pages.is_empty() {
                self.fill_slots(inode, &step, &mut growth)?;
            }
            self.drop_zeroed(inode, from.max(zeroed.start)..step.next.min(zeroed.end));
            from = step.next;
        }
        Ok(())
    }

    /// Drops the cached pages of the zeroed range.
    fn drop_zeroed(&self, inode: &Inode, gone: Range<u64>) {
        if !gone.is_empty() {
            let mut state = inode.state().write();
            inode.state().seek_hint().data_goes(&gone);
            self.body.discard(self, state.file_mut(), gone);
        }
    }

    /// Reserves blocks for the holes of `pages` and for the nodes of the map that they need. The
    /// caller holds the write-back mutex, so the map stays.
    fn reserve_growth(&self, inode: &Arc<Inode>, pages: &Range<u64>) -> Result<Growth<'_>> {
        let core = self.store.partition();
        if let Some(growth) = self.try_growth(inode, pages)? {
            return Ok(growth);
        }
        self.body.place_reserved(self, inode)?;
        let (data, nodes) = self.growth(inode, pages)?;
        let charged = self.charge(inode, data)?;
        self.store
            .reserve_blocks(core, data + nodes, OpClass::Normal)?;
        Ok(Growth {
            files: self,
            core,
            data,
            nodes,
            charged,
        })
    }

    /// The same, but for nothing if there is no room, or if the owner may not have as much: dirty pages
    /// in holes have blocks reserved, and are charged, so these count twice until they are placed.
    fn try_growth(&self, inode: &Arc<Inode>, pages: &Range<u64>) -> Result<Option<Growth<'_>>> {
        let core = self.store.partition();
        let (data, nodes) = self.growth(inode, pages)?;
        let charged = match self.charge(inode, data) {
            Err(Error::Quota { .. }) => return Ok(None),
            charged => charged?,
        };
        let space = &self.store.space;
        if !space.reserve(core, data + nodes, OpClass::Normal) {
            return Ok(None);
        }
        Ok(Some(Growth {
            files: self,
            core,
            data,
            nodes,
            charged,
        }))
    }

    /// Blocks for data and nodes that the holes of `pages` need.
    fn growth(&self, inode: &Inode, pages: &Range<u64>) -> Result<(u32, u32)> {
        let full = Error::NoSpace { what: "blocks" };
        let _held = inode.state().read();
        let wanted = pages.end - pages.start;
        if wanted.saturating_sub(inode.data_head().blocks.get()) > self.store.space.total_blocks() {
            return Err(full);
        }
        let mut map = MapReader::new(self, inode);
        let (mut mapped, mut from) = (0, pages.start);
        while let Some((page, _)) = map.next_mapped(from, pages.end)? {
            (mapped, from) = (mapped + 1, page + 1);
        }
        let mut nodes = BTreeSet::new();
        if mapped < wanted {
            for leaf in leaves(pages.clone()) {
                nodes.extend(map.missing_nodes(leaf)?);
            }
        }
        let count = |blocks: u64| u32::try_from(blocks).ok();
        let (data, nodes) = (count(wanted - mapped), count(to_u64(nodes.len())));
        match (data, nodes) {
            (Some(data), Some(nodes)) if data.checked_add(nodes).is_some() => Ok((data, nodes)),
            _ => Err(full),
        }
    }

    /// Slots from the start of the range on, as many as one operation may fill.
    fn next_step(&self, inode: &Inode, range: Range<u64>, zeroed: &Range<u64>) -> Result<Step> {
        let _held = inode.state().read();
        let mut map = MapReader::new(self, inode);
        let mut step = Step {
            // The inode, and room in the log for the notes about 256 blocks.
            rewritten: 1 + 4,
            next: range.start,
            ..Step::default()
        };
        let replaced_max = self.store.space.rewrites_at_once();
        for _ in 0..STEP_GRANULES {
            if step.next >= range.end {
                break;
            }
            let end = range.end.min(step.next + granule_rest(step.next));
            step.rewritten += 1;
            for leaf in leaves(step.next..end) {
                extend(&mut step.new, map.missing_nodes(leaf)?);
            }
            while step.next < end {
                let slot = map.slot(step.next)?;
                let replaces = slot.is_written() && zeroed.contains(&step.next);
                let full = step.pages.len() == STEP_SLOTS
                    || (replaces && u64::from(step.replaced) == replaced_max);
                if full {
                    return Ok(step);
                }
                if slot.is_hole() || replaces {
                    step.pages.push(step.next);
                    step.replaced += u32::from(replaces);
                    step.adds |= replaces && self.store.space.is_shared(slot.block());
                }
                step.next += 1;
            }
        }
        Ok(step)
    }

    fn fill_slots(&self, inode: &Inode, step: &Step, growth: &mut Growth<'_>) -> Result<()> {
        let core = self.store.partition();
        let class = match step.adds {
            true => OpClass::Normal,
            false => OpClass::Rewrite,
        };
        self.store.reserve_blocks(core, step.replaced, class)?;
        let new = |&page| Target::new(page, Slot::HOLE, 0);
        let mut targets: Vec<Target> = step.pages.iter().map(new).collect();
        let filled = self
            .store
            .placement
            .allocate(core, &mut targets, Tier::Home)
            .and_then(|()| self.log_unwritten(inode, step, &targets, growth));
        match filled {
            Ok(()) => {
                let count =
                    u32::try_from(step.pages.len()).expect("a step has at most STEP_SLOTS pages");
                growth.data -= count - step.replaced;
            }
            Err(_) => {
                self.store.placement.release(&targets);
                self.unreserve(core, step.replaced);
            }
        }
        filled
    }

    fn log_unwritten(
        &self,
        inode: &Inode,
        step: &Step,
        targets: &[Target],
        growth: &mut Growth<'_>,
    ) -> Result<()> {
        let new = u32::try_from(step.new.len()).expect("a step makes few nodes");
        let held = new.min(growth.nodes);
        let nodes = step.rewritten + new - held;
        let mut op = self.store.op_holding(OpKind::Allocate, (nodes, held), 0)?;
        growth.nodes -= held;
        let mut state = inode.state().write();
        let mut data = inode.data_draft(&state);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        for target in targets {
            edit.set(target.page, Slot::unwritten(target.block))?;
        }
        let count = u32::try_from(step.pages.len()).expect("a step has at most STEP_SLOTS pages");
        growth
            .charged
            .hand_over(state.charge(), count - step.replaced);
        if step.replaced == 0 {
            edit.end_unwritten();
            inode.unwritten_stored(&mut state, &data, op.finish());
        } else {
            edit.end();
            inode.data_stored(&mut state, &data, op.finish());
        }
        Ok(())
    }
}

impl Files {
    /// See [`FileSystem::allocate`](crate::volume::FileSystem::allocate).
    pub(crate) fn allocate(
        &self,
        inode: &Arc<Inode>,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.store.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
        let range = offset..end.ok_or(Error::TooLarge)?;
        inode.ranges_in(self);
        let held = inode.take_span(range.start, range.end);
        match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => {
                self.preallocate(inode, pages_over(&range), &(0..0))?;
            }
            AllocateMode::Punch => self.punch(inode, held.as_ref(), &range)?,
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                let (within, [left, right]) = split_edges(&range);
                self.preallocate(inode, pages_over(&range), &within)?;
                self.body.zero(self, (inode, held.as_ref()), left)?;
                self.body.zero(self, (inode, held.as_ref()), right)?;
            }
        }
        let extend = matches!(mode, AllocateMode::Extend | AllocateMode::Zero);
        let size = extend.then_some(range.end);
        self.body.end_allocation(self, inode, size)?;
        self.end_data_call(inode)
    }
}
