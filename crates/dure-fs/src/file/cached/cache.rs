//! The page cache of a volume: the bound on memory, and the lists of inodes that have pages.
//!
//! **Problem.** Memory is bounded and shared; finding a page to give up must not make every read
//! write a shared list.
//!
//! **Structure.** Inodes, not pages, are listed, per core: those with pages (for CLOCK) and those
//! with dirty pages (for write-back). An inode goes on a list when it gets its first page, or
//! becomes dirty, and leaves it when a sweep finds that it has none, or when it is dropped. `evict`
//! says which pages leave memory, `grant` what a call takes before it begins.
//!
//! # Invariants
//! Credit is taken before a page is made, with no lock held, so a caller that lacks it may evict
//! and write back on the spot. `FileState::cached_on` and `dirty_on` say which lists hold the
//! inode; they and its place on the lists change under the inode lock only. A list is locked under
//! inode locks, so a sweep takes an inode from it, unlocks it, and then only tries the inode's
//! lock.
//!
//! **On a crash** nothing of this remains.
//!
//! Policy `dram`: dirty pages live in DRAM until write-back.

mod evict;
mod grant;

use std::collections::BTreeMap;
use std::ops::Range;

use dure_block::BlockBuf;
use dure_store::frames::{Fill, Frame, FramePool};
use dure_store::units::{BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::{Arc, CoreId, Counter, Mutex, PerCore};

use super::dirty_limit::DirtyPages;
use super::page::CacheBudget;
use super::writeback::BATCH_PAGES;
use crate::file::Files;
use crate::file::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::ranks::{CACHED_LIST, DIRTY_LIST, SCRATCH};

pub(super) use grant::{Grant, Want};

/// Bytes of a page in memory: with the file's store and chunk if it is the only page, its sequence
/// count if the file is contended, and what slabs keep unused of theirs (one part in
/// [`SLAB_SPARE`]).
pub(crate) const PAGE_BYTES: u64 = BLOCK_BYTES_U64 + BLOCK_BYTES_U64 / SLAB_SPARE + 240;
/// Slabs may have one page unused for so many in use, so that a free one is soon found.
const SLAB_SPARE: u64 = 16;
/// Pages that are evicted at once, unless the cache is small: a part of it.
const EVICT_PAGES: u64 = 32;
const EVICT_PART: u64 = 256;
/// Shorter buffers for the device are made anew.
const SCRATCH_PAGES_MIN: usize = 16;
/// Most batches of a file at the device together, each with its copies.
const BATCHES_MAX: usize = 3;
/// And at most one for so many batches that the cache has room for.
const CACHE_OF_BATCH: usize = 4;
/// Unused frames a core keeps, unless the cache is small.
const STACK_FRAMES_MAX: u64 = 64;

/// Inodes by number, and where the sweep goes on.
#[derive(Debug, Default)]
struct InodeList {
    inodes: BTreeMap<u64, Arc<Inode>>,
    hand: u64,
    /// The hand of evictions of pages that are cheap to read again.
    cheap_hand: u64,
}

impl InodeList {
    /// The inode at the hand, or the first one behind it, round and round. It stays on the list.
    fn at_hand(&self) -> Option<Arc<Inode>> {
        self.at(self.hand)
    }

    /// The inode at the hand for cheap pages, or the first one behind it. It stays on the list.
    fn at_cheap_hand(&self) -> Option<Arc<Inode>> {
        self.at(self.cheap_hand)
    }

    fn at(&self, hand: u64) -> Option<Arc<Inode>> {
        let mut behind = self.inodes.range(hand..);
        let next = behind.next().or_else(|| self.inodes.iter().next());
        next.map(|(_, inode)| inode.clone())
    }

    /// The inode at the hand, which moves on.
    fn next(&mut self) -> Option<Arc<Inode>> {
        let next = self.at_hand()?;
        self.hand = next.ino.0 + 1;
        Some(next)
    }
}

/// What is counted about pages.
#[derive(Debug, Default)]
pub(crate) struct PageCounters {
    /// Pages read from the device into the cache.
    pub(crate) loaded: Counter,
    /// Pages read from the device past the cache.
    pub(crate) bypassed: Counter,
    /// Clean pages dropped for room.
    pub(crate) evicted: Counter,
    /// Pages written back.
    pub(crate) written_back: Counter,
    /// Steps of writes that slept, for there were many dirty pages.
    pub(crate) pauses: Counter,
}

/// Pages of all files of a volume.
#[derive(Debug)]
pub(crate) struct PageCache {
    pub(super) budget: CacheBudget,
    /// Whether pages may lie in persistent memory, of a volume that has a block device too.
    absorbs: bool,
    pub(super) frames: Arc<FramePool>,
    /// Inodes with pages. [CACHED_LIST]
    cached: PerCore<Mutex<CACHED_LIST, InodeList>>,
    /// Inodes with something to write back. [DIRTY_LIST]
    dirty: PerCore<Mutex<DIRTY_LIST, InodeList>>,
    /// Per core buffers of [`BATCH_PAGES`] that are not in use. [SCRATCH]
    scratch: PerCore<Mutex<SCRATCH, Vec<BlockBuf>>>,
    pub(crate) dirty_pages: DirtyPages,
    pub(crate) counters: PageCounters,
}

impl PageCache {
    /// A cache of `pages` pages for `cores` cores, whose memory has room for `logged_pages` more.
    /// `dirty_max`: pages that may be dirty, `None` if that limits no writer.
    pub(crate) fn new(
        cores: usize,
        pages: u64,
        logged_pages: u64,
        dirty_max: Option<u64>,
    ) -> PageCache {
        let all = pages + logged_pages;
        let slab_pages = all + all / SLAB_SPARE;
        let stack = (pages / (4 * to_u64(cores))).min(STACK_FRAMES_MAX);
        PageCache {
            budget: CacheBudget::new(cores, pages),
            absorbs: false,
            frames: Arc::new(FramePool::new(cores, to_usize(stack), to_usize(slab_pages))),
            cached: PerCore::new(cores, |_| Mutex::default()),
            dirty: PerCore::new(cores, |_| Mutex::default()),
            scratch: PerCore::new(cores, |_| Mutex::default()),
            dirty_pages: DirtyPages::new(cores, dirty_max),
            counters: PageCounters::default(),
        }
    }

    /// Sets whether the volume has a block device and its pages may lie in persistent memory.
    pub(crate) fn absorbing(self, absorbs: bool) -> PageCache {
        PageCache { absorbs, ..self }
    }

    /// The memory of pages that are not in use.
    pub(crate) fn frames(&self) -> Arc<FramePool> {
        self.frames.clone()
    }

    /// Gives memory back that has not been used since the last call.
    pub(crate) fn trim(&self) {
        self.frames.trim();
    }

    /// Pages in memory, or about to be.
    #[cfg(test)]
    pub(crate) fn pages_used(&self) -> u64 {
        self.budget.used()
    }

    /// Most batches of a file that are at the device together.
    pub(super) fn batches_max(&self) -> usize {
        let room = to_usize(self.budget.pages_max()) / BATCH_PAGES;
        (room / CACHE_OF_BATCH).clamp(1, BATCHES_MAX)
    }

    /// Most pages one step of a call takes credit for: a part of a small cache, so that several
    /// callers can go on.
    pub(super) fn step_pages(&self, pages_max: u64) -> u64 {
        (self.budget.pages_max() / 4).clamp(1, pages_max)
    }

    /// Pages that an eviction takes for a caller that wants `pages`: an inode is locked once for
    /// some of them.
    pub(super) fn evict_pages(&self, pages: u64) -> u64 {
        pages
            .max(self.budget.pages_max() / EVICT_PART)
            .min(pages.max(EVICT_PAGES))
    }

    pub(in crate::file) fn frame(&self, core: CoreId, fill: Fill) -> Frame {
        self.frames.take(core, fill)
    }

    /// Takes a frame back that was for no page of a file.
    pub(in crate::file) fn give_frame(&self, core: CoreId, frame: Frame) {
        self.frames.give(core, frame);
    }

    pub(super) fn drop_frame(&self, core: CoreId, frame: Frame) {
        self.frames.give(core, frame);
        self.budget.give(core, 1);
    }

    /// Lists an inode that has got pages. The caller holds the inode.
    pub(super) fn note_cached(&self, core: CoreId, inode: &Arc<Inode>, file: &mut FileState) {
        if file.cached_on.is_none() {
            file.cached_on = Some(core);
            self.cached
                .get(core)
                .lock()
                .inodes
                .insert(inode.ino.0, inode.clone());
        }
    }

    /// Lists an inode that has something to write back. The caller holds the inode.
    pub(in crate::file) fn note_dirty(
        &self,
        core: CoreId,
        inode: &Arc<Inode>,
        file: &mut FileState,
    ) {
        if file.dirty_on.is_none() {
            file.dirty_on = Some(core);
            self.dirty
                .get(core)
                .lock()
                .inodes
                .insert(inode.ino.0, inode.clone());
        }
    }

    /// Takes the inode off the lists it has no business on any more. The caller holds the inode.
    pub(super) fn unlist(&self, inode: &Inode, file: &mut FileState, clean: bool) {
        if file.pages.is_empty()
            && let Some(core) = file.cached_on.take()
        {
            self.cached.get(core).lock().inodes.remove(&inode.ino.0);
        }
        if clean && let Some(core) = file.dirty_on.take() {
            self.dirty.get(core).lock().inodes.remove(&inode.ino.0);
        }
    }

    /// The next inode of `core`'s list of those with something to write back.
    pub(super) fn next_dirty(&self, core: CoreId) -> Option<Arc<Inode>> {
        self.dirty.get(core).lock().next()
    }

    /// The inodes on `core`'s list of those with something to write back.
    pub(super) fn dirty_inodes(&self, core: CoreId) -> Vec<Arc<Inode>> {
        self.dirty
            .get(core)
            .lock()
            .inodes
            .values()
            .cloned()
            .collect()
    }

    /// How many they are.
    pub(super) fn dirty_inode_count(&self, core: CoreId) -> usize {
        self.dirty.get(core).lock().inodes.len()
    }

    /// Memory for `pages` pages on their way from or to the device, of any content.
    pub(super) fn take_scratch(&self, core: CoreId, pages: usize) -> BlockBuf {
        if pages < SCRATCH_PAGES_MIN {
            return BlockBuf::zeroed(pages);
        }
        let recycled = self.scratch.get(core).lock().pop();
        let mut buf = recycled.unwrap_or_else(|| BlockBuf::zeroed(BATCH_PAGES));
        buf.reuse(pages);
        buf
    }

    /// Gives it back. A core keeps one more than it has batches under way.
    pub(super) fn give_scratch(&self, core: CoreId, buf: BlockBuf) {
        let mut scratch = self.scratch.get(core).lock();
        if buf.capacity() >= BATCH_PAGES && scratch.len() <= self.batches_max() {
            scratch.push(buf);
        }
    }

    /// Number of per-core lists.
    pub(super) fn lists(&self) -> usize {
        self.dirty.len()
    }
}

impl Files {
    /// Takes all pages and pending changes from an inode that leaves memory: it was deleted, or is
    /// clean.
    pub(in crate::file) fn forget_file(&self, inode: &Inode, state: &mut InodeState) {
        if let Some(file) = state.if_file_mut() {
            self.drop_pages(file, 0..u64::MAX);
            file.forget_times();
            self.pages.unlist(inode, file, true);
        }
    }

    /// Drops pages without writing them, and gives back what they held. None may be in write-back.
    pub(in crate::file) fn drop_pages(&self, file: &mut FileState, range: Range<u64>) {
        let core = self.store.partition();
        let mut blocks = 0;
        file.pages.remove_range(range, |frame, dirty| {
            self.pages.drop_frame(core, frame);
            blocks += u32::from(dirty);
        });
        self.pages.dirty_pages.release(core, file, blocks);
        file.pages.tidy();
        // Map nodes go with the slots of such pages.
        file.room.forget();
        blocks += file.spare_room();
        self.unreserve(core, blocks);
        self.cap_charge(file);
    }
}
