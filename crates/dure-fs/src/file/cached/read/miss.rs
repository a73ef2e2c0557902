//! Reads of pages that are not in memory.
//!
//! **Problem.** A device takes microseconds to milliseconds. A reader that held the inode meanwhile
//! would make each writer wait for it, and each later reader for that writer.
//!
//! **Structure.** A reader looks its slots up under the shared inode lock and lets go of it. It
//! reads a run of pages whose blocks are contiguous with no lock held, and compares each page with
//! the CRC in its slot. Then it looks again, under the inode lock: the pages that count are put in
//! memory, and the caller gets its part of them. Holes and unwritten slots read as zeroes and take
//! no memory.
//!
//! # Invariants
//! What was read counts only if, at the second look, the slot is the one of the first look and the
//! page is not in memory; else the caller looks again. Its content is then right whatever happened
//! between: it has the CRC that the slot has now. A wrong CRC or an error of the device is one only
//! if the slot still counts. Pages with errors fail, and no others. What does not count is cleared
//! in the caller's memory: it may be of another file.
//!
//! | step | reader of page 7 | other task |
//! |---|---|---|
//! | 1 | finds block 40 in the slot, unlocks | |
//! | 2 | | overwrites page 7; write-back stores block 90 in the slot |
//! | 3 | | block 40 is free, and gets data of another file |
//! | 4 | reads block 40: a wrong CRC | |
//! | 5 | finds block 90 in the slot: begins again | |
//!
//! **On a crash** nothing is lost by a reader.

use std::ops::Range;

use dure_block::BlockBuf;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::frames::Fill;
use dure_store::placement::contiguous;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::Arc;

use super::ahead::LONG_PAGES;
use crate::file::Files;
use crate::file::bytes::split;
use crate::file::cached::cache::Grant;
use crate::file::cached::page::{Origin, PageStore};
use crate::file::map::MapReader;
use crate::file::read::ReadMode;
use crate::inode::{Inode, InodeState};

/// Pages one device request reads at most.
pub(super) const RUN_PAGES_MAX: u64 = 256;

/// Neighbouring pages that are not in memory.
pub(super) enum Gap {
    /// They read as zeroes, so many of them.
    Zero(u64),
    /// Their slots; blocks are contiguous.
    Run(Vec<Slot>),
}

/// Pages of a run, from `first` on, and what their slots were before they were read.
#[derive(Clone, Copy)]
pub(super) struct Run<'r> {
    pub(super) first: u64,
    pub(super) slots: &'r [Slot],
}

impl Run<'_> {
    fn pages(&self) -> impl Iterator<Item = u64> {
        self.first..self.first + to_u64(self.slots.len())
    }
}

/// Bytes that a caller wants of a file: at least one, and it has them all.
struct Wanted<'b> {
    offset: u64,
    buf: &'b mut [u8],
}

impl Wanted<'_> {
    fn end(&self) -> u64 {
        self.offset + to_u64(self.buf.len())
    }

    /// Copies its part out of good pages from its first one on.
    fn copy_from(self, pages: &[u8]) -> usize {
        let (_, within) = split(self.offset);
        let part = pages.get(within..).unwrap_or_default();
        let len = part.len().min(self.buf.len());
        self.buf[..len].copy_from_slice(&part[..len]);
        len
    }
}

impl Files {
    /// Reads at `offset`, whose page was missing a moment ago. `buf` is not empty and ends within
    /// the file. Returns how many bytes; none if the caller has to look again.
    pub(super) fn read_missing(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize> {
        let (page, within) = split(offset);
        let want = to_u64(within + buf.len())
            .div_ceil(BLOCK_BYTES_U64)
            .min(RUN_PAGES_MAX);
        let waits = self.store.reads_wait();
        let is_long = mode == ReadMode::Bypass && want >= LONG_PAGES && waits;
        // Of a medium in memory nothing is read ahead.
        if (mode == ReadMode::Cached && waits || is_long)
            && let Some(window) = self.read_ahead.find(inode.ino, page)
        {
            self.end_window(inode, &window, page);
            return Ok(0);
        }
        if is_long && self.read_ahead.goes_on(inode.ino, page, want) {
            self.begin_windows(inode, page + want);
        }
        if mode == ReadMode::Cached {
            let pages = self.read_in_order(inode, page, want).min(RUN_PAGES_MAX);
            let pages = self.pages.step_pages(pages);
            let frames = u32::try_from(pages).expect("a run has at most RUN_PAGES_MAX pages");
            let miss = Arc::default();
            // A medium in memory is not worth it, and a range must not be held while one waits.
            let _turn = match waits && !self.options.ranges_queue {
                true => self.misses.begin(inode.ino, page..page + pages, &miss),
                false => None,
            };
            if let Some(grant) = self.grant_to_read(frames) {
                return self.read_gap(inode, Wanted { offset, buf }, pages, Some(grant));
            }
        }
        self.read_gap(inode, Wanted { offset, buf }, want, None)
    }

    /// Puts a page in memory that a write to a part of it is about to need, if it is on the device.
    /// The write then reads nothing while it holds the inode, unless the page is gone again; it
    /// finds errors again, and returns them.
    pub(in crate::file::cached) fn fetch_page(&self, inode: &Arc<Inode>, page: u64) {
        let mut byte = [0];
        let wanted = Wanted {
            offset: page * BLOCK_BYTES_U64,
            buf: &mut byte,
        };
        if let Some(grant) = self.grant_to_read(1) {
            let _found_again = self.read_gap(inode, wanted, 1, Some(grant));
        }
    }

    /// Reads at most `pages` pages, into memory if there is a grant for them.
    fn read_gap(
        &self,
        inode: &Arc<Inode>,
        wanted: Wanted<'_>,
        pages: u64,
        into: Option<Grant<'_>>,
    ) -> Result<usize> {
        let (first, within) = split(wanted.offset);
        let slots = match self.find_gap(inode, &wanted, first..first + pages)? {
            None => return Ok(0),
            Some(Gap::Zero(pages)) => {
                let len = to_usize(pages * BLOCK_BYTES_U64 - to_u64(within)).min(wanted.buf.len());
                wanted.buf[..len].fill(0);
                return Ok(len);
            }
            Some(Gap::Run(slots)) => slots,
        };
        // Straight into the caller's memory, if all of it goes there.
        let bytes = slots.len() * BLOCK_BYTES;
        let is_whole = within == 0 && bytes <= wanted.buf.len();
        let end = wanted.end();
        let mut own = None;
        let data = match is_whole {
            true => &mut wanted.buf[..bytes],
            false => own.insert(BlockBuf::zeroed(slots.len())).as_mut_slice(),
        };
        let read = self.read_run(inode, first, &slots, data);
        let good = *read.as_ref().unwrap_or(&1);
        let run = Run {
            first,
            slots: &slots[..good],
        };
        let into = into.filter(|_| !self.passes_dram_by(run));
        let kept = match (read, into) {
            (Err(error), _) => self.unless_stale(inode, run, end, error),
            (Ok(_), Some(mut grant)) => self.keep(inode, run, (data, end), &mut grant),
            (Ok(_), None) => self.pass_by(inode, run, end),
        };
        // What does not count may be of another file, and the caller need not read there again.
        data[*kept.as_ref().unwrap_or(&0) * BLOCK_BYTES..].fill(0);
        let kept = kept?;
        Ok(match own {
            None => kept * BLOCK_BYTES,
            Some(own) => wanted.copy_from(&own.as_slice()[..kept * BLOCK_BYTES]),
        })
    }

    /// Whether pages that are in persistent memory are not put in DRAM when they are read.
    pub(super) fn passes_dram_by(&self, run: Run<'_>) -> bool {
        let first = run.slots.first();
        self.options.absorbed_leaves_dram
            && first.is_some_and(|slot| self.store.layout.is_in_nvm(slot.block()))
    }

    /// What is to be read. `None`: the caller has to look again.
    fn find_gap(
        &self,
        inode: &Inode,
        wanted: &Wanted<'_>,
        pages: Range<u64>,
    ) -> Result<Option<Gap>> {
        let state = inode.state().read();
        let size = inode.size_up_to(&state, wanted.end());
        if size < wanted.end() || state.file().pages.contains(pages.start) {
            // Truncated, or put in memory by another task meanwhile.
            return Ok(None);
        }
        self.gap(inode, &state, size, pages).map(Some)
    }

    /// How many pages of a run, from the first on, still are what was read: none if the file does
    /// not reach `end` any more. The caller holds the inode.
    fn count_current(
        &self,
        inode: &Inode,
        state: &InodeState,
        run: Run<'_>,
        end: u64,
    ) -> Result<usize> {
        if !self.options.rules.slots_looked_at_again.holds() {
            return Ok(run.slots.len());
        }
        if inode.size_up_to(state, end) < end {
            return Ok(0);
        }
        let mut map = MapReader::new(self, inode);
        for (n, (page, slot)) in run.pages().zip(run.slots).enumerate() {
            let is_stale = state.file().pages.contains(page)
                || state.file().is_cut(page)
                || map.slot(page)? != *slot;
            if is_stale {
                return Ok(n);
            }
        }
        Ok(run.slots.len())
    }

    /// The error of reading a page, if that still is what was to be read; else the caller has to
    /// look again.
    fn unless_stale(&self, inode: &Inode, run: Run<'_>, end: u64, error: Error) -> Result<usize> {
        let state = inode.state().read();
        match self.count_current(inode, &state, run, end)? {
            0 => Ok(0),
            _ => Err(error),
        }
    }

    /// Puts pages that were read in memory, as far as they count. Returns how many count, from the
    /// first on.
    pub(super) fn keep(
        &self,
        inode: &Arc<Inode>,
        run: Run<'_>,
        (data, end): (&[u8], u64),
        grant: &mut Grant<'_>,
    ) -> Result<usize> {
        {
            let state = inode.state().read();
            let pages = &state.file().pages;
            // Only a holder of the exclusive inode lock may list the inode, and make places.
            if state.file().cached_on.is_some() && run.pages().all(|page| pages.has_place(page)) {
                let kept = self.count_current(inode, &state, run, end)?;
                self.insert(pages, run, &data[..kept * BLOCK_BYTES], grant);
                return Ok(kept);
            }
        }
        let mut state = inode.state().write_keep_cached();
        let kept = self.count_current(inode, &state, run, end)?;
        let file = state.file_mut();
        run.pages().for_each(|page| file.pages.make_place(page));
        self.insert(&file.pages, run, &data[..kept * BLOCK_BYTES], grant);
        self.pages.note_cached(grant.core(), inode, file);
        Ok(kept)
    }

    /// Puts pages into a store, unless they have come to it meanwhile. The caller holds the inode.
    fn insert(&self, pages: &PageStore, run: Run<'_>, bytes: &[u8], grant: &mut Grant<'_>) {
        let absorbs = self.store.absorb().is_some();
        let cheap = absorbs && self.store.layout.is_in_nvm(run.slots[0].block());
        for (page, bytes) in run.pages().zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if pages.contains(page) {
                continue;
            }
            let mut frame = grant.frame(Fill::Any);
            frame.bytes_mut().copy_from_slice(bytes);
            if let Err(frame) = pages.insert(page, frame, Origin::Block) {
                grant.give_back(frame);
            }
            if absorbs {
                pages.set_cheap(page, cheap);
            }
        }
        let count = i64::try_from(bytes.len() / BLOCK_BYTES);
        let count = count.expect("a run has at most RUN_PAGES_MAX pages");
        self.pages.counters.loaded.add(count);
    }

    /// What the file has from the first page of `wanted` on, which is not in memory: at most as
    /// many pages as wanted, and only up to the next page in memory. The file has at least `size`
    /// bytes.
    pub(super) fn gap(
        &self,
        inode: &Inode,
        state: &InodeState,
        size: u64,
        wanted: Range<u64>,
    ) -> Result<Gap> {
        let file = state.file();
        let page = wanted.start;
        // No further than wanted: other cores change what pages there are. And not the first one: it
        // was missing a moment ago, and the read is of that moment.
        let limit = wanted.end.min(size.div_ceil(BLOCK_BYTES_U64));
        let next_in = |to: u64| file.pages.next_present(page + 1..to).unwrap_or(to);
        if file.is_cut(page) {
            return Ok(Gap::Zero(next_in(limit) - page));
        }
        let mut map = MapReader::new(self, inode);
        let slot = map.slot(page)?;
        if slot.is_unwritten() {
            return Ok(Gap::Zero(1));
        }
        if slot.is_hole() {
            let end = next_in(limit.min(file.map_end().max(page + 1)));
            let mapped = map.next_mapped(page, end)?;
            return Ok(Gap::Zero(mapped.map_or(end, |(next, _)| next) - page));
        }
        let mut slots = vec![slot];
        for next in page + 1..next_in(limit) {
            let slot = map.slot(next)?;
            let in_a_row = contiguous([slots[slots.len() - 1].block(), slot.block()], 2) == 2;
            if !slot.is_written() || !in_a_row {
                break;
            }
            slots.push(slot);
        }
        Ok(Gap::Run(slots))
    }

    /// Reads a run of pages into `data` and checks them; returns how many from the first on are
    /// good.
    ///
    /// # Errors
    /// When the first page is not good.
    fn read_run(&self, inode: &Inode, page: u64, slots: &[Slot], data: &mut [u8]) -> Result<usize> {
        let what = || format!("checksum of page {page} of inode {}", inode.ino);
        self.store.placement.read_run(slots, data, what)
    }

    /// How many pages that were read past the cache count.
    fn pass_by(&self, inode: &Inode, run: Run<'_>, end: u64) -> Result<usize> {
        let current = self.count_current(inode, &inode.state().read(), run, end)?;
        let count = i64::try_from(current).expect("a run has at most RUN_PAGES_MAX pages");
        self.pages.counters.bypassed.add(count);
        Ok(current)
    }

    /// Reads one page as its slot has it. The caller holds the inode or its write-back mutex.
    ///
    /// # Errors
    /// `Corrupt`, errors of the device.
    pub(in crate::file) fn read_page(
        &self,
        inode: &Inode,
        page: u64,
        slot: &Slot,
        bytes: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        if !slot.is_written() {
            bytes.fill(0);
            return Ok(());
        }
        self.read_run(inode, page, std::slice::from_ref(slot), bytes)
            .map(|_| ())
    }
}
