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

mod dedupe;
mod share;

use std::cell::Cell;
use std::ops::Range;

use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use super::body::Body;
use super::bytes::pages_up_to;
use super::cached::{Extent, Way};
use super::map::{FILE_BYTES_MAX, MapReader};
use crate::file::Files;
use crate::inode::{Inode, InodeState};

pub use dedupe::Deduped;

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
    /// Only what the target has already is shared: a deduplication.
    compares: bool,
    /// It was ended by a page that the target has not.
    differs: Cell<bool>,
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

/// What is at the start of a range of a file.
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
            compares: false,
            differs: Cell::new(false),
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
                Ok(Step::Dirty | Step::Done(_)) => Ok(()),
                Ok(Step::Stop) => return Ok(page),
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
            let step = match self.find_slots(clone.source, *page..clone.pages.end)? {
                None => Step::Dirty,
                Some(found) if clone.compares => self.dedupe_step(clone, *page, found)?,
                Some(Found::Hole(end)) => self.clone_hole(clone, *page..end)?,
                Some(Found::Slots(_)) if !self.store.space.may_share() => Step::Unannounced,
                Some(Found::Slots(slots)) => self.clone_slots(clone, *page, &slots)?,
            };
            match step {
                Step::Done(next) => *page = next,
                other => return Ok(other),
            }
            // It reads: others may want the file between two steps.
            if clone.compares {
                break;
            }
        }
        Ok(Step::Done(*page))
    }

    /// What a file has at the start of a range, up to the first page that is in memory only; `None`
    /// if that is the first one.
    fn find_slots(&self, inode: &Inode, range: Range<u64>) -> Result<Option<Found>> {
        let state = inode.state().read();
        let file = state.file();
        let near = range.start..range.end.min(range.start + HOLE_PAGES);
        let near = near.start..file.pages.next_unclean(near.clone()).unwrap_or(near.end);
        let step = near.start..near.end.min(near.start + STEP_PAGES);
        if inode.state().growth_waits() || near.is_empty() {
            return Ok(None);
        }
        let mut map = MapReader::new(self, inode);
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
}
