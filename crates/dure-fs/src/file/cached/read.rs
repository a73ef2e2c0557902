//! Reading.
//!
//! **Structure.** Pages in memory are copied out under the shared inode lock: one lock, one lookup
//! and one copy per page, and, if the file has a range lock, a check of the page's sequence count
//! before and after. A reader whose copies are torn again and again takes the range shared, or, if
//! that is taken, the inode exclusively. Where a page is missing, [`Volume::read_missing`] reads a
//! run of pages whose blocks are contiguous, checks each page against the CRC in its slot, copies
//! the caller's part out and puts the pages in the cache. Holes and unwritten slots read as zeroes
//! and take no memory.
//!
//! # Invariants
//! Blocks are read under the shared inode lock: the map cannot change meanwhile, so no block is
//! reused under the reader. A page is put in the cache only if the map has not changed since: in a
//! file that tasks share it is put with the pending pages under the same lock. Pages with errors
//! fail, and no others.
//!
//! **On a crash** nothing is lost by a reader.

use std::ops::Range;

use dure_block::BlockBuf;
use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::frames::Fill;
use dure_store::placement::contiguous;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, PerCoreReadGuard};

use super::cache::Grant;
use super::page::PageStore;
use super::pending_pages::Writers;
use crate::file::bytes::split;
use crate::file::map::MapReader;
use crate::file::ranges::Range as HeldRange;
use crate::file::read::ReadMode;
use crate::inode::{Inode, InodeState};
use crate::ranks::INODE;
use crate::volume::{RangeRule, Volume};

/// Pages read ahead when a file is read in order.
const AHEAD_PAGES: u64 = 32;
/// Pages one device request reads at most.
const RUN_PAGES_MAX: u64 = 256;

type Shared<'i> = PerCoreReadGuard<'i, INODE, InodeState>;

/// The page from which the next read that misses comes if reading is sequential. A hint: Relaxed.
#[derive(Debug, Default)]
pub(crate) struct NextRead(AtomicU64);

impl NextRead {
    /// Notes a read that missed, up to page `end`; true when it began where the last one ended.
    fn is_sequential(&self, page: u64, end: u64) -> bool {
        // Two readers may confuse each other; that costs a read-ahead.
        let next = self.0.load(Ordering::Relaxed);
        // Load first: repeated reads of one hole leave the line shared.
        if next != end {
            self.0.store(end, Ordering::Relaxed);
        }
        page == next
    }
}

/// Copies from pages in memory until one is missing; returns how many bytes. `None`: every copy of
/// a page was torn by concurrent writers.
#[inline]
fn copy_hits(
    inode: &Inode,
    state: &InodeState,
    offset: u64,
    buf: &mut [u8],
    writers: Writers,
) -> Option<usize> {
    let mut done = 0;
    while done < buf.len() {
        let (page, within) = split(offset + to_u64(done));
        let len = (BLOCK_BYTES - within).min(buf.len() - done);
        let part = &mut buf[done..done + len];
        match (state.file().pages.get(page), writers) {
            (Some(cached), Writers::None) => cached.load(within, part),
            (Some(cached), Writers::Concurrent) if cached.load_versioned(within, part) => {}
            (Some(_), Writers::Concurrent) => return None,
            (None, _) => {
                let pending_pages = inode.state().pending_pages();
                match pending_pages
                    .and_then(|pending_pages| pending_pages.load(page, within, part, writers))
                {
                    Some(true) => {}
                    Some(false) => return None,
                    None => break,
                }
            }
        }
        done += len;
    }
    Some(done)
}

/// Neighbouring pages that are not in memory.
enum Gap {
    /// They read as zeroes, so many of them.
    Zero(u64),
    /// Their slots; blocks are contiguous.
    Run(Vec<Slot>),
}

/// Pages that were read.
#[derive(Clone, Copy)]
struct Read<'b> {
    first: u64,
    bytes: &'b [u8],
    /// From where a read costs little.
    cheap: bool,
}

impl Volume {
    /// [`Body::read`](crate::file::body::Body::read).
    #[inline]
    pub(in crate::file) fn read_cached(
        &self,
        inode: &Arc<Inode>,
        (offset, buf): (u64, &mut [u8]),
        mode: ReadMode,
    ) -> Result<usize> {
        let range = match self.options.ranges_queue() {
            true => self.share_range(inode, offset, buf.len()),
            false => None,
        };
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(to_u64(done));
            let rest = &mut buf[done..];
            let (len, hit) = match &range {
                None => self.read_in_memory(inode, at, rest),
                Some(range) => self.read_held(inode, range, at, rest),
            };
            if len == 0 {
                break;
            }
            done += hit;
            if hit == len {
                break;
            }
            match self.read_missing(inode, at + to_u64(hit), &mut rest[hit..len], mode) {
                // The end of the file stays where it was first seen: a page that a later size
                // covers might be read half at one moment, half at another.
                Ok(read) if hit + read == len => {
                    done += read;
                    break;
                }
                Ok(read) => done += read,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The bytes of a read, shared, for all of the call: where tasks queue for ranges.
    #[inline(never)]
    fn share_range<'i>(&self, inode: &'i Inode, offset: u64, len: usize) -> Option<HeldRange<'i>> {
        match self.options.volume_rules.ranges {
            RangeRule::Unchecked(_) => None,
            _ => inode.ranges_in(self).share(offset, len),
        }
    }

    /// As `read_in_memory`, for a holder of the range: writers wait until the read is over.
    fn read_held(
        &self,
        inode: &Inode,
        range: &HeldRange<'_>,
        offset: u64,
        rest: &mut [u8],
    ) -> (usize, usize) {
        debug_assert!(
            range.range().first() <= offset,
            "bytes are read whose range is not held"
        );
        let state = inode.state().read();
        self.read_hits(inode, &state, offset, rest, Writers::None)
            .expect("a shared range keeps writers out, so no copy is torn")
    }

    /// How much of `rest` the file has at `offset`, and how much of that was in memory and is in
    /// `rest` now.
    #[inline]
    fn read_in_memory(&self, inode: &Inode, offset: u64, rest: &mut [u8]) -> (usize, usize) {
        if let Some(found) = self.read_shared(inode, offset, rest) {
            return found;
        }
        // Writers of these pages wait for a copy, for once.
        if let Some(range) = inode.ranges().share(offset, rest.len()) {
            return self.read_held(inode, &range, offset, rest);
        }
        let state = inode.state().write();
        self.read_hits(inode, &state, offset, rest, Writers::None)
            .expect("an exclusive holder races with no writer")
    }

    /// As `read_in_memory`, with no range. `None`: every copy was torn by concurrent writers.
    #[inline]
    fn read_shared(&self, inode: &Inode, offset: u64, rest: &mut [u8]) -> Option<(usize, usize)> {
        let state = inode.state().read();
        // The range lock is made under the exclusive inode lock: if there is none now, no task
        // writes to pages while this one holds the inode shared.
        let writers = match inode.ranges().are_locked() {
            true if !matches!(self.options.volume_rules.ranges, RangeRule::Unchecked(_)) => {
                Writers::Concurrent
            }
            _ => Writers::None,
        };
        self.read_hits(inode, &state, offset, rest, writers)
    }

    #[inline]
    fn read_hits(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        rest: &mut [u8],
        writers: Writers,
    ) -> Option<(usize, usize)> {
        let end = offset.saturating_add(to_u64(rest.len()));
        let left = inode.size_up_to(state, end).saturating_sub(offset);
        let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        inode.note_read(self, state);
        Some((
            len,
            copy_hits(inode, state, offset, &mut rest[..len], writers)?,
        ))
    }

    /// Reads at least one byte at `offset`, whose page was missing a moment ago. `buf` ends within
    /// the file.
    fn read_missing(
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
        let (pages, grant) = match mode {
            ReadMode::Bypass => (want, None),
            ReadMode::Cached => {
                let ahead = inode.next_read().is_sequential(page, page + want);
                let pages = if ahead { want.max(AHEAD_PAGES) } else { want };
                let pages = self.pages.step_pages(pages);
                let frames = u32::try_from(pages).expect("a run has at most RUN_PAGES_MAX pages");
                match self.grant_to_read(frames) {
                    Some(grant) => (pages, Some(grant)),
                    None => (want, None),
                }
            }
        };
        let state = inode.state().read();
        let end = offset + to_u64(buf.len());
        let size = inode.size_up_to(&state, end);
        let pending_pages = inode.state().pending_pages();
        let came = || {
            pending_pages
                .is_some_and(|pending_pages| pending_pages.first_in(page..page + 1).is_some())
        };
        if size < end || state.file().pages.contains(page) || came() {
            // Truncated, or put in memory by another task meanwhile: the caller looks again.
            return Ok(0);
        }
        let slots = match self.gap(inode, &state, size, page..page + pages)? {
            Gap::Zero(pages) => {
                let len = to_usize(pages * BLOCK_BYTES_U64 - to_u64(within)).min(buf.len());
                buf[..len].fill(0);
                return Ok(len);
            }
            Gap::Run(slots) => slots,
        };
        let Some(mut grant) = grant else {
            return self.read_past_cache(inode, &slots, offset, buf);
        };
        let mut data = BlockBuf::zeroed(slots.len());
        let good = self.read_run(inode, page, &slots, data.as_mut_slice())?;
        let bytes = &data.as_slice()[..good * BLOCK_BYTES];
        let len = (bytes.len() - within).min(buf.len());
        buf[..len].copy_from_slice(&bytes[within..within + len]);
        let cheap = self.absorb().is_some() && self.layout.is_in_nvm(slots[0].block());
        let read = Read {
            first: page,
            bytes,
            cheap,
        };
        if !self.keep_shared(inode, &state, read, &mut grant) {
            let changes = state.file().map_changes;
            drop(state);
            self.keep_read(inode, changes, read, &mut grant);
        }
        Ok(len)
    }

    /// Puts pages that were read into the cache, if the map has not changed since `changes`.
    fn keep_read(&self, inode: &Arc<Inode>, changes: u64, read: Read<'_>, grant: &mut Grant<'_>) {
        let mut state = inode.state().write_keep_cached();
        let file = state.file_mut();
        if file.map_changes == changes {
            insert(&mut file.pages, read, grant);
            self.pages.note_cached(grant.core(), inode, file);
            self.note_loaded(read.bytes);
        }
    }

    /// The same for a caller that has read them under this shared lock, in a file that tasks share:
    /// they are pending until a task holds the inode exclusively. False: nothing was done.
    fn keep_shared(
        &self,
        inode: &Inode,
        state: &Shared<'_>,
        read: Read<'_>,
        grant: &mut Grant<'_>,
    ) -> bool {
        // Only a holder of the exclusive inode lock may list it.
        let is_listed = state.file().cached_on.is_some();
        let Some(pending_pages) = inode.state().pending_pages().filter(|_| is_listed) else {
            return false;
        };
        let pages = read.first..read.first + to_u64(read.bytes.len() / BLOCK_BYTES);
        let mut held = pending_pages.take();
        if held.is_full() {
            return false;
        }
        pending_pages.announce(&held, pages);
        insert(&mut held.pages, read, grant);
        self.note_loaded(read.bytes);
        true
    }

    fn note_loaded(&self, bytes: &[u8]) {
        let pages = i64::try_from(bytes.len() / BLOCK_BYTES);
        self.pages
            .counters
            .loaded
            .add(pages.expect("a run has at most RUN_PAGES_MAX pages"));
    }

    /// What the file has from the first page of `wanted` on, which is not in memory: at most as
    /// many pages as wanted, unless they are zeroes, and only up to the next page in memory. The
    /// file has at least `size` bytes.
    fn gap(&self, inode: &Inode, state: &Shared<'_>, size: u64, wanted: Range<u64>) -> Result<Gap> {
        let file = state.file();
        let (page, pages) = (wanted.start, wanted.end - wanted.start);
        let mut size_pages = size.div_ceil(BLOCK_BYTES_U64);
        if let Some(pending_pages) = inode.state().pending_pages() {
            size_pages = size_pages.min(wanted.end);
            // Not the first one: it was not pending a moment ago, and the read is of that moment.
            size_pages = pending_pages
                .first_in(page + 1..size_pages)
                .unwrap_or(size_pages);
        }
        let limit = size_pages.min(file.map_end().max(page + 1));
        let end = file.pages.next_present(page..limit).unwrap_or(limit);
        let mut map = MapReader::new(self, inode);
        if file.is_cut(page) {
            let end = file
                .pages
                .next_present(page..size_pages)
                .unwrap_or(size_pages);
            return Ok(Gap::Zero(end - page));
        }
        // Far enough for a whole hole to be zeroed in one step, not so far that the walk is long.
        let (next, slot) = match map.next_mapped(page, end.min(page + (1 << 20)))? {
            None => return Ok(Gap::Zero(end.min(page + (1 << 20)) - page)),
            Some((next, _)) if next > page => return Ok(Gap::Zero(next - page)),
            Some(found) => found,
        };
        assert_eq!(next, page);
        if slot.is_unwritten() {
            return Ok(Gap::Zero(1));
        }
        let mut slots = vec![slot];
        for next in page + 1..end.min(page + pages) {
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
    /// good. The caller holds the inode.
    ///
    /// # Errors
    /// When the first page is not good.
    fn read_run(&self, inode: &Inode, page: u64, slots: &[Slot], data: &mut [u8]) -> Result<usize> {
        let what = || format!("checksum of page {page} of inode {}", inode.ino);
        self.placement.read_run(slots, data, what)
    }

    /// Reads a run straight into the caller's memory. The caller holds the inode.
    fn read_past_cache(
        &self,
        inode: &Inode,
        slots: &[Slot],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let (page, within) = split(offset);
        let whole = (buf.len() / BLOCK_BYTES).min(slots.len());
        if within == 0 && whole > 0 {
            let len = whole * BLOCK_BYTES;
            let good = self.read_run(inode, page, &slots[..whole], &mut buf[..len])?;
            self.pages
                .counters
                .bypassed
                .add(i64::try_from(good).expect("a run has at most RUN_PAGES_MAX pages"));
            return Ok(good * BLOCK_BYTES);
        }
        let mut block = BlockBuf::zeroed(1);
        self.read_run(inode, page, &slots[..1], block.as_mut_slice())?;
        let len = (BLOCK_BYTES - within).min(buf.len());
        buf[..len].copy_from_slice(&block.as_slice()[within..within + len]);
        self.pages.counters.bypassed.add(1);
        Ok(len)
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

/// Puts pages that were read into a store, unless they have come to it meanwhile.
fn insert(pages: &mut PageStore, read: Read<'_>, grant: &mut Grant<'_>) {
    for (page, bytes) in (read.first..).zip(read.bytes.chunks_exact(BLOCK_BYTES)) {
        if !pages.contains(page) {
            let mut frame = grant.frame(Fill::Any);
            frame.bytes_mut().copy_from_slice(bytes);
            pages.insert(page, frame);
            pages.set_cheap(page, read.cheap);
        }
    }
}
