//! Reading ahead, which no task waits for.
//!
//! **Problem.** While a reader in order compares and copies the device is idle, and while the device
//! works the reader is. **Structure.** A file is cut into *windows* of up to 1 MiB, less in a small
//! cache. A read that misses a page with pages in memory before it is one in order: it reads
//! as many as those, and when they are a whole window, the next windows are submitted before it
//! waits for anything. A reader that misses a page of such a window later ends it: waits, compares,
//! puts its pages in memory, and submits the windows behind it. The pages before are all there is
//! to know of a reader, so any number of readers of a file are told apart. A window's leaf of the
//! map is read together with those that follow it.
//!
//! Reads past the cache leave no pages: a mount makes them, and its kernel keeps what it has read. Of
//! long ones, as the kernel makes them for a reader in order, the last ends are kept in a short list
//! ([`ReadAhead::goes_on`]); the second in a row begins windows.
//!
//! # Invariants
//! What counts of a window is found out when it ends ([`super::readings`]). Tasks that need the same
//! window wait for the one that ends it.
//! **On a crash** nothing is lost.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::units::{BLOCK_BYTES_U64, Ino, Nid, to_u64, to_usize};
use dure_sync::{Arc, CachePadded, Mutex};

use super::miss::RUN_PAGES_MAX;
use super::readings::Readings;
use crate::file::Files;
use crate::file::bytes::pages_up_to;
use crate::file::map::MapReader;
use crate::inode::Inode;
use crate::ranks::{READ_AHEAD, READ_AHEAD_LIST};

/// Fewest and most pages of a window.
const WINDOW_PAGES: (u64, u64) = (8, RUN_PAGES_MAX);
/// Windows that are under way for one reader.
const WINDOWS_AHEAD: u64 = 2;
/// Leaves of the map that are read together.
const LEAVES_AHEAD: u64 = 16;
/// Pages in memory before a read that make it one in order; or all pages before it.
const IN_ORDER_PAGES: u64 = 32;
/// The part of the cache that windows may take, and how many these are at least.
const PART_OF_CACHE: u64 = 4;
const WINDOWS_MIN: u64 = 8;
/// Fewest pages of a read past the cache that may be one in order, how many of them a shard
/// remembers, and how long windows must be to be worth it: in a small cache they are short.
pub(super) const LONG_PAGES: u64 = 16;
const ENDS: usize = 8;
const LONG_WINDOW_PAGES: u64 = 128;
/// Windows that found no room before the oldest is given up.
const PATIENCE: u32 = 32;

/// What is under way of a window; nothing any more when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// [READ_AHEAD]
    readings: Mutex<READ_AHEAD, Readings>,
}

type Key = (Ino, u64);

/// The windows of some files, the oldest first.
#[derive(Debug, Default)]
struct Shard {
    windows: Vec<(Key, Arc<Window>)>,
    refused: u32,
    /// Where long reads past the cache have ended, and the place of the next one.
    ends: [Option<(Ino, u64)>; ENDS],
    next_end: usize,
}

/// The windows of all files.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// [READ_AHEAD_LIST] By file and place.
    shards: Box<[CachePadded<Mutex<READ_AHEAD_LIST, Shard>>]>,
    /// Most windows of each shard.
    windows_max: usize,
    /// Pages of each window; a power of two.
    window_pages: u64,
}

impl ReadAhead {
    /// For a cache of so many pages.
    pub(crate) fn new(cores: usize, cache_pages: u64) -> ReadAhead {
        let (least, most) = WINDOW_PAGES;
        let part = cache_pages / PART_OF_CACHE;
        let window_pages = (part / WINDOWS_MIN).clamp(1, most);
        let window_pages = 1 << window_pages.ilog2();
        let windows = match window_pages < least {
            true => 0,
            false => to_usize(part / window_pages),
        };
        let shards = cores.next_power_of_two().min(windows / 4).max(1);
        ReadAhead {
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
            windows_max: windows / shards,
            window_pages,
        }
    }

    fn shard(&self, (ino, window): Key) -> &Mutex<READ_AHEAD_LIST, Shard> {
        let mixed = (ino.0 ^ window << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[to_usize(mixed >> 32) % self.shards.len()]
    }

    /// The window that has this page, if it is read ahead.
    pub(in crate::file) fn find(&self, ino: Ino, page: u64) -> Option<Arc<Window>> {
        let key = (ino, page / self.window_pages);
        let shard = self.shard(key).lock();
        let mut windows = shard.windows.iter();
        let found = windows.find(|(other, _)| *other == key);
        found.map(|(_, window)| Arc::clone(window))
    }

    /// Whether a long read past the cache goes on where another one has ended, so that what follows is
    /// to be read ahead. Where a read ends is noted in the shard of that place, so readers of one file
    /// write to different lines.
    pub(super) fn goes_on(&self, ino: Ino, page: u64, pages: u64) -> bool {
        if self.window_pages < LONG_WINDOW_PAGES {
            return false;
        }
        let shard = |page| self.shard((ino, page / self.window_pages)).lock();
        let goes_on = {
            let mut ends = shard(page);
            let end = ends.ends.iter_mut().find(|end| **end == Some((ino, page)));
            end.and_then(Option::take).is_some()
        };
        let end = page + pages;
        let mut ends = shard(end);
        let place = ends.next_end;
        ends.ends[place] = Some((ino, end));
        ends.next_end = (place + 1) % ENDS;
        goes_on
    }

    /// Lists a window, if it is not listed and there is room. Returns whether, and one that was
    /// given up for it.
    fn list(&self, key: Key, window: &Arc<Window>) -> (bool, Option<Arc<Window>>) {
        let mut shard = self.shard(key).lock();
        if self.windows_max == 0 || shard.windows.iter().any(|(other, _)| *other == key) {
            return (false, None);
        }
        let mut given_up = None;
        if shard.windows.len() == self.windows_max {
            shard.refused += 1;
            if shard.refused < PATIENCE {
                return (false, None);
            }
            given_up = Some(shard.windows.remove(0).1);
        }
        shard.refused = 0;
        shard.windows.push((key, Arc::clone(window)));
        (true, given_up)
    }

    /// How many windows there are, and of how many pages.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> (usize, u64) {
        let lens = self.shards.iter().map(|shard| shard.lock().windows.len());
        (lens.sum(), self.window_pages)
    }

    fn unlist(&self, key: Key, window: &Arc<Window>) {
        let mut shard = self.shard(key).lock();
        shard
            .windows
            .retain(|(_, other)| !Arc::ptr_eq(other, window));
    }
}

impl Files {
    /// How many pages a read that misses `page` and wants `want` is to read: more if it is one in
    /// order. What follows is submitted then.
    pub(super) fn read_in_order(&self, inode: &Arc<Inode>, page: u64, want: u64) -> u64 {
        let window = self.read_ahead.window_pages;
        let (before, in_order) = (
            pages_before(inode, page, window),
            window.min(IN_ORDER_PAGES),
        );
        if before < in_order && before < page {
            return want;
        }
        let pages = (2 * before).clamp(in_order, window).max(want);
        if before >= window {
            self.begin_windows(inode, page + pages);
        }
        pages
    }

    /// Submits the windows from `page` on. A medium in memory is not worth it.
    pub(super) fn begin_windows(&self, inode: &Arc<Inode>, page: u64) {
        if !self.store.reads_wait() {
            return;
        }
        let first = page / self.read_ahead.window_pages;
        for number in first..first + WINDOWS_AHEAD {
            // What cannot be read ahead says so to its reader.
            let _is_read_then = self.begin_window(inode, number, page);
        }
    }

    /// Submits the windows of these bytes, as many as there is room for.
    pub(in crate::file) fn read_ahead_of(&self, inode: &Arc<Inode>, bytes: Range<u64>) {
        let window = self.read_ahead.window_pages;
        let first = bytes.start / BLOCK_BYTES_U64;
        let windows = first / window..pages_up_to(bytes.end).div_ceil(window);
        let room = self.read_ahead.windows_max * self.read_ahead.shards.len();
        if bytes.is_empty() || !self.store.reads_wait() {
            return;
        }
        for number in windows.take(room) {
            // What cannot be read ahead says so to its reader.
            let _is_read_then = self.begin_window(inode, number, first);
        }
    }

    /// Submits the pages of a window from `page` on that are not in memory.
    fn begin_window(&self, inode: &Arc<Inode>, number: u64, page: u64) -> Result<()> {
        let (key, window) = ((inode.ino, number), Arc::new(Window::default()));
        // A task that finds it waits until all of it is submitted.
        let mut readings = window.readings.lock();
        let (is_listed, given_up) = self.read_ahead.list(key, &window);
        let begun = match is_listed {
            true => self.submit_window(inode, number, page, &mut readings),
            false => return Ok(()),
        };
        drop(readings);
        if let Some(given_up) = given_up {
            self.give_window_up(&given_up);
        }
        if !matches!(begun, Ok(true)) {
            self.read_ahead.unlist(key, &window);
        }
        begun.map(drop)
    }

    /// Whether there is anything to read.
    fn submit_window(
        &self,
        inode: &Arc<Inode>,
        number: u64,
        page: u64,
        readings: &mut Readings,
    ) -> Result<bool> {
        let window = self.read_ahead.window_pages;
        let (start, end) = (number * window, (number + 1) * window);
        self.store
            .preload(self.leaves_to_read(inode, start.max(page))?);
        let begun = self.begin_readings(inode, start.max(page)..end)?;
        let is_any = begun.is_some();
        *readings = begun.unwrap_or_default();
        Ok(is_any)
    }

    /// Leaves of the map of which that of `page` is one, if it is not in memory.
    fn leaves_to_read(&self, inode: &Inode, page: u64) -> Result<Vec<Nid>> {
        let _state = inode.state().read();
        MapReader::new(self, inode).leaves_to_read(page, LEAVES_AHEAD)
    }

    /// Waits for a window and puts in memory what counts of it, after the windows behind it were
    /// submitted.
    pub(super) fn end_window(&self, inode: &Arc<Inode>, window: &Arc<Window>, page: u64) {
        let pages = self.read_ahead.window_pages;
        let number = page / pages;
        self.begin_windows(inode, (number + 1) * pages);
        let mut readings = window.readings.lock();
        self.end_readings(inode, std::mem::take(&mut *readings));
        drop(readings);
        self.read_ahead.unlist((inode.ino, number), window);
    }

    fn give_window_up(&self, window: &Window) {
        // Else its pages are about to be used.
        if let Some(mut readings) = window.readings.try_lock() {
            self.give_readings_up(std::mem::take(&mut *readings));
        }
    }
}

/// How many pages right before `page` are in memory, at most `most`.
fn pages_before(inode: &Inode, page: u64, most: u64) -> u64 {
    let state = inode.state().read();
    let before = (page.saturating_sub(most)..page).rev();
    let in_memory = before.take_while(|&page| state.file().pages.contains(page));
    to_u64(in_memory.count())
}
