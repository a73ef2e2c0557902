//! Preallocation, holes and zeroes.
//!
//! **Structure.** Preallocated slots name a block and say "unwritten"; holes and zeroed ranges are
//! made page-wise by freeing slots, and byte-wise at the edges by writing zeroes into the page
//! cache.
//!
//! **Invariants.** Each operation frees or fills a bounded number of slots, and each leaves a legal
//! state: a range that is partly punched, or partly allocated, is one a caller could have asked
//! for. A zeroed range gets new blocks, never "unwritten" on a block that counted: a write would
//! fill it in place while a crash could still bring the old slot back. **On a crash** operations
//! that were durable stay.

use std::ops::Range;

use dure_sync::Arc;

use super::map::path::granule_rest;
use super::map::{FILE_BYTES_MAX, FREE_NODES_MAX, MapEdit, MapReader};
use super::ranges::Range as Held;
use super::read::split;
use super::state::Stamp;
use super::write::Source;
use super::writeback::pages_up_to;
use crate::error::{Error, Result};
use crate::format::slot::Slot;
use crate::inode::{Inode, InodeRef};
use crate::op::OpKind;
use crate::space::OpClass;
use crate::units::{BLOCK_BYTES_U64, BlockNo, to_usize};
use crate::volume::{FileSystem, Volume};

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
    /// The same; the size stays.
    ZeroKeepSize,
}

impl FileSystem {
    /// Allocates, punches or zeroes `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` for an empty range or another type of inode, `TooLarge`, `NoSpace` (what was done
    /// so far stays), `ReadOnly`, `Stopped`, device errors.
    pub fn allocate(
        &self,
        inode: &InodeRef,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let inode = super::regular(inode)?;
        self.0.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX);
        let range = offset..end.ok_or(Error::TooLarge)?;
        let held = inode.take_span(range.start, range.end);
        match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => self.0.preallocate(inode, &range)?,
            AllocateMode::Punch => self.0.punch(inode, held.as_ref(), &range)?,
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                self.0.punch(inode, held.as_ref(), &range)?;
                self.0.preallocate(inode, &range)?;
            }
        }
        let extend = matches!(mode, AllocateMode::Extend | AllocateMode::Zero);
        let mut state = inode.state.write();
        if extend {
            let size = state.file.size().max(range.end);
            state.file.set_size(&inode.outline, size);
        }
        state.file.stamp(Stamp::Set, self.0.now());
        self.0
            .pages
            .note_dirty(self.0.partition(), inode, &mut state.file);
        Ok(())
    }
}

impl Volume {
    fn punch(&self, inode: &Arc<Inode>, held: Option<&Held<'_>>, range: &Range<u64>) -> Result<()> {
        let first = pages_up_to(range.start);
        let last = range.end / BLOCK_BYTES_U64;
        if first > last {
            return self.zero_edge(inode, held, range.start, range.end);
        }
        self.zero_edge(inode, held, range.start, first * BLOCK_BYTES_U64)?;
        self.zero_edge(inode, held, last * BLOCK_BYTES_U64, range.end)?;
        let _held = inode.writeback().lock();
        self.finish_cut(inode)?;
        let mut from = first;
        while from < last {
            let mut op = self.op(OpKind::Allocate, OpClass::Delete, FREE_NODES_MAX)?;
            let mut state = inode.state.write();
            let mut record = state.record;
            let mut edit = MapEdit::new(self, &mut op, inode, &mut record);
            let next = edit.free(from..last)?.unwrap_or(last);
            edit.end();
            inode.outline.data_goes(&(from..next));
            state.file.note_mark(op.finish());
            state.record = record;
            state.file.map_changes += 1;
            self.drop_pages(&mut state.file, from..next);
            from = next;
        }
        Ok(())
    }

    /// Zeroes bytes within one page, unless they are zero because nothing is there.
    fn zero_edge(
        &self,
        inode: &Arc<Inode>,
        held: Option<&Held<'_>>,
        start: u64,
        end: u64,
    ) -> Result<()> {
        let (page, _) = split(start);
        let end = {
            let state = inode.state.read();
            let end = end.min(inode.size_up_to(&state, end));
            let mapped = || -> Result<bool> {
                let slot = MapReader::new(self).slot(&state.record, page)?;
                Ok(slot.is_written() && !state.file.is_cut(page))
            };
            let added = inode.state.added();
            let cached = || {
                state.file.pages.contains(page)
                    || added.is_some_and(|added| added.first_in(page..page + 1).is_some())
            };
            if start >= end || !(cached() || mapped()?) {
                return Ok(());
            }
            end
        };
        let zeroes = Source::Zeroes(to_usize(end - start));
        self.write_at(inode, held, start, zeroes, Stamp::Keep)
            .map(|_| ())
    }

    fn preallocate(&self, inode: &Arc<Inode>, range: &Range<u64>) -> Result<()> {
        let last = pages_up_to(range.end);
        let _held = inode.writeback().lock();
        self.finish_cut(inode)?;
        let mut from = range.start / BLOCK_BYTES_U64;
        while from < last {
            let (holes, nodes, next) = self.holes(inode, from..last)?;
            if !holes.is_empty() {
                self.fill_holes(inode, &holes, nodes)?;
            }
            from = next;
        }
        Ok(())
    }

    /// Holes from the start of the range on, as many as one operation may fill; the nodes it makes
    /// dirty; where to go on.
    fn holes(&self, inode: &Inode, range: Range<u64>) -> Result<(Vec<u64>, u32, u64)> {
        let state = inode.state.read();
        let mut map = MapReader::new(self);
        let mut holes = Vec::new();
        // The inode, and room in the log for the notes about 256 blocks.
        let mut nodes = 1 + 4;
        let mut from = range.start;
        for _ in 0..STEP_GRANULES {
            if from >= range.end || holes.len() >= STEP_SLOTS {
                break;
            }
            let end = range.end.min(from + granule_rest(from));
            nodes += 1 + map.missing_nodes(&state.record, from)?;
            for page in from..end {
                if holes.len() < STEP_SLOTS && map.slot(&state.record, page)?.is_hole() {
                    holes.push(page);
                }
            }
            from = match holes.last() {
                Some(&hole) if holes.len() == STEP_SLOTS => hole + 1,
                _ => end,
            };
        }
        Ok((holes, nodes, from))
    }

    fn fill_holes(&self, inode: &Inode, holes: &[u64], nodes: u32) -> Result<()> {
        let core = self.partition();
        let count = u32::try_from(holes.len()).expect("at most STEP_SLOTS");
        self.reserve_blocks(core, count, OpClass::Normal)?;
        let filled = self.alloc_unwritten(core, holes.len()).and_then(|blocks| {
            let logged = self.log_unwritten(inode, holes, &blocks, nodes);
            if logged.is_err() {
                self.release_blocks(&blocks);
            }
            logged
        });
        if filled.is_err() {
            self.unreserve(core, count);
        }
        filled
    }

    fn log_unwritten(
        &self,
        inode: &Inode,
        holes: &[u64],
        blocks: &[BlockNo],
        nodes: u32,
    ) -> Result<()> {
        let mut op = self.op(OpKind::Allocate, OpClass::Normal, nodes)?;
        let mut state = inode.state.write();
        let mut record = state.record;
        let mut edit = MapEdit::new(self, &mut op, inode, &mut record);
        for (&page, &block) in holes.iter().zip(blocks) {
            edit.set(page, Slot::unwritten(block))?;
        }
        edit.end();
        state.file.note_mark(op.finish());
        state.record = record;
        state.file.map_changes += 1;
        Ok(())
    }
}
