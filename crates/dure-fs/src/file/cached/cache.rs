//! The page cache of a volume: the bound on memory, and the lists of inodes that have pages.
//!
//! **Problem.** Memory is bounded and shared; finding a page to give up must not make every read
//! write a shared list.
//!
//! **Structure.** Inodes, not pages, are listed, per core: those with pages (for CLOCK) and those
//! with dirty pages (for write-back). An inode goes on a list when it gets its first page, or
//! becomes dirty, and leaves it when a sweep finds that it has none, or when it is dropped.
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

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use dure_block::BlockBuf;
use dure_store::error::{Error, Result};
use dure_store::frames::{Fill, Frame, FramePool};
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES_U64, nth_core, to_u64, to_usize};
use dure_sync::{Arc, CoreId, Counter, Mutex, PerCore};

use super::dirty_limit::DirtyPages;
use super::page::CacheBudget;
use super::writeback::BATCH_PAGES;
use crate::file::map::{NodePlaces, NodeRoom};
use crate::file::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::ranks::{CACHED_LIST, DIRTY_LIST, SCRATCH};
use crate::volume::Volume;

/// Bytes of a page in memory: with the file's store and chunk if it is the only page, its sequence
/// count if the file is contended, and what slabs keep unused of theirs (one part in
/// [`SLAB_SPARE`]).
pub(crate) const PAGE_BYTES: u64 = BLOCK_BYTES_U64 + BLOCK_BYTES_U64 / SLAB_SPARE + 240;
/// Slabs may have one page unused for so many in use, so that a free one is soon found.
const SLAB_SPARE: u64 = 16;
/// Unused frames a core keeps, unless the cache is small.
const STACK_FRAMES_MAX: u64 = 64;
/// Rounds of evicting and writing back before a write gives up getting memory.
const IDLE_ROUNDS_MAX: u32 = 8000;
/// Pause between two later rounds: together about ten seconds.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// Pages written back at least when memory runs out.
const WRITE_BACK_PAGES: u64 = 256;

/// Inodes that an eviction asks for pages that are cheap to read again, before it takes others.
const CHEAP_LOOKS: usize = 8;

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
        self.from(self.hand)
    }

    /// The same of the hand for cheap pages.
    fn at_cheap_hand(&self) -> Option<Arc<Inode>> {
        self.from(self.cheap_hand)
    }

    fn from(&self, hand: u64) -> Option<Arc<Inode>> {
        let mut behind = self.inodes.range(hand..);
        let next = behind.next().or_else(|| self.inodes.iter().next());
        next.map(|(_, inode)| inode.clone())
    }

    /// Moves the hand behind this inode.
    fn pass(&mut self, inode: &Inode) {
        self.hand = inode.ino.0 + 1;
    }

    /// The inode at the hand, which moves on.
    fn next(&mut self) -> Option<Arc<Inode>> {
        let next = self.at_hand()?;
        self.pass(&next);
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
    /// Whether pages may lie in persistent memory beside a block device.
    absorbs: bool,
    pub(super) frames: Arc<FramePool>,
    /// Inodes with pages. [CACHED_LIST]
    cached: PerCore<Mutex<CACHED_LIST, InodeList>>,
    /// Inodes with something to write back. [DIRTY_LIST]
    dirty: PerCore<Mutex<DIRTY_LIST, InodeList>>,
    /// Per core one buffer for private copies, unless one is in use. [SCRATCH]
    scratch: PerCore<Mutex<SCRATCH, Option<BlockBuf>>>,
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

    /// The same of a volume whose pages may lie in persistent memory beside a block device.
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

    /// Most pages one step of a call takes credit for: a part of a small cache, so that several
    /// callers can go on.
    pub(super) fn step_pages(&self, pages_max: u64) -> u64 {
        (self.budget.pages_max() / 4).clamp(1, pages_max)
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
        if file.pages.present() == 0
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

    /// Memory for the private copies of one batch of write-back.
    pub(super) fn take_scratch(&self, core: CoreId) -> BlockBuf {
        let recycled = self.scratch.get(core).lock().take();
        recycled.unwrap_or_else(|| BlockBuf::zeroed(BATCH_PAGES))
    }

    /// Gives it back.
    pub(super) fn give_scratch(&self, core: CoreId, buf: BlockBuf) {
        *self.scratch.get(core).lock() = Some(buf);
    }

    /// Number of per-core lists.
    pub(super) fn lists(&self) -> usize {
        self.dirty.len()
    }

    /// Gives up to `want` clean pages of any inode back to the budget. Waits for no inode lock;
    /// inodes that are in use are passed over. CLOCK over the pages of all inodes of a list, one inode
    /// after the other: if each inode gave a page in turn, a file that is read once would keep its
    /// pages, and one that is in use lose them.
    pub(in crate::file) fn evict(&self, core: CoreId, want: u64) -> u64 {
        let mut evicted = self.evict_cheap(core, want);
        if evicted >= want {
            return evicted;
        }
        for n in 0..self.cached.len() {
            let list = self
                .cached
                .get(nth_core(core.index() + n, self.cached.len()));
            // A first look at a page may only find that it was used.
            let looks = 2 * list.lock().inodes.len() + 1;
            for _ in 0..looks {
                let at_hand = list.lock().at_hand();
                let Some(inode) = at_hand else {
                    break;
                };
                let (pages, ended) = self.evict_from(core, &inode, want - evicted);
                evicted += pages;
                if ended {
                    list.lock().pass(&inode);
                }
                if evicted >= want {
                    return evicted;
                }
            }
        }
        evicted
    }

    /// Gives up to `want` clean pages back that can be had again from persistent memory, of a few
    /// inodes on the caller's list: a hand of its own, for CLOCK stays with one inode for long, while
    /// such pages gather in others.
    fn evict_cheap(&self, core: CoreId, want: u64) -> u64 {
        let mut evicted = 0;
        if !self.absorbs {
            return 0;
        }
        let list = self.cached.get(core);
        for _ in 0..CHEAP_LOOKS {
            let at_hand = list.lock().at_cheap_hand();
            let Some(inode) = at_hand else {
                break;
            };
            if let Some(mut state) = inode.state().try_write() {
                let file = state.file_mut();
                let taken = |frame| self.drop_frame(core, frame);
                let pages = file.pages.evict_cheap(to_usize(want - evicted), taken);
                file.pages.tidy();
                self.note_evicted(pages);
                self.unlist(&inode, file, false);
                evicted += to_u64(pages);
            }
            if evicted >= want {
                break;
            }
            list.lock().cheap_hand = inode.ino.0 + 1;
        }
        evicted
    }

    fn note_evicted(&self, pages: usize) {
        let pages = i64::try_from(pages).expect("there are fewer than 2^63 pages in memory");
        self.counters.evicted.add(pages);
    }

    /// The same of one inode. Also returns whether the hand has passed all its pages.
    fn evict_from(&self, core: CoreId, inode: &Inode, want: u64) -> (u64, bool) {
        let Some(mut state) = inode.state().try_write() else {
            return (0, true);
        };
        let file = state.file_mut();
        let evicted = file
            .pages
            .evict(to_usize(want), |frame| self.drop_frame(core, frame));
        let ended = file.pages.is_swept();
        file.pages.tidy();
        self.note_evicted(evicted);
        self.unlist(inode, file, false);
        (to_u64(evicted), ended)
    }
}

/// What a step of a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Want {
    /// Pages that are not in memory.
    pub(super) frames: u32,
    /// Pages that are not dirty, so hold no reserved block.
    pub(super) blocks: u32,
    /// Nodes of the map that exist neither on the medium nor as reserved blocks.
    pub(super) nodes: u32,
}

/// Memory for pages, and blocks for those that become dirty, taken before any lock is. What is left
/// of it when it is dropped goes back.
#[derive(Debug)]
pub(super) struct Grant<'v> {
    volume: &'v Volume,
    core: CoreId,
    frames: u32,
    blocks: u32,
    nodes: u32,
    /// `Rewrite`: the blocks are for pages that have a slot.
    pub(super) class: OpClass,
}

impl Grant<'_> {
    /// Whether it is enough.
    pub(super) fn covers(&self, want: Want) -> bool {
        self.frames >= want.frames && self.blocks >= want.blocks && self.nodes >= want.nodes
    }

    /// Hands reserved blocks over to these nodes, as far as they have none.
    pub(super) fn use_nodes(&mut self, room: &mut NodeRoom, places: &NodePlaces) {
        let lacks = room.lacks(places);
        assert!(self.nodes >= lacks, "a map node without a reserved block");
        self.nodes -= lacks;
        room.add(places, lacks);
    }

    /// Takes a frame for a page that is put in the cache now.
    pub(super) fn frame(&mut self, fill: Fill) -> Frame {
        assert!(self.frames > 0, "a page is taken that was not granted");
        self.frames -= 1;
        self.volume.pages.frame(self.core, fill)
    }

    /// Takes back a frame whose page is not put in the cache after all.
    pub(super) fn give_back(&mut self, frame: Frame) {
        self.volume.pages.frames.give(self.core, frame);
        self.frames += 1;
    }

    /// Reserved blocks that no page has got yet.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Hands the reserved block of a page that becomes dirty over to it.
    pub(super) fn use_block(&mut self) {
        assert!(self.blocks > 0, "a dirty page without a reserved block");
        self.blocks -= 1;
    }

    pub(super) fn core(&self) -> CoreId {
        self.core
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.volume
            .pages
            .budget
            .give(self.core, u64::from(self.frames));
        self.volume.unreserve(self.core, self.blocks + self.nodes);
    }
}

impl Volume {
    /// Memory and blocks for a write that adds to the volume, unless it is full. The caller holds
    /// no inode lock.
    ///
    /// # Errors
    /// `NoSpace` of memory that cannot be written back, write-back errors.
    pub(super) fn grant_at_hand(&self, want: Want) -> Result<Option<Grant<'_>>> {
        let core = self.partition();
        self.relieve_inodes();
        if !self
            .space
            .reserve(core, want.blocks + want.nodes, OpClass::Normal)
        {
            return Ok(None);
        }
        self.grant_reserved(core, want, OpClass::Normal).map(Some)
    }

    /// Memory and blocks for a write; makes room before it gives up. The caller holds no inode
    /// lock.
    ///
    /// # Errors
    /// `NoSpace` (of blocks, or of memory that cannot be written back), write-back errors.
    pub(super) fn grant(&self, want: Want, class: OpClass) -> Result<Grant<'_>> {
        let core = self.partition();
        self.reserve_blocks(core, want.blocks + want.nodes, class)?;
        self.grant_reserved(core, want, class)
    }

    /// The blocks are reserved.
    fn grant_reserved(&self, core: CoreId, want: Want, class: OpClass) -> Result<Grant<'_>> {
        let mut grant = Grant {
            volume: self,
            core,
            frames: 0,
            blocks: want.blocks,
            nodes: want.nodes,
            class,
        };
        self.take_memory(core, u64::from(want.frames))?;
        grant.frames = want.frames;
        Ok(grant)
    }

    /// Memory for pages to be read into, if that needs no write-back.
    pub(super) fn grant_to_read(&self, frames: u32) -> Option<Grant<'_>> {
        self.relieve_inodes();
        let core = self.partition();
        let pages = u64::from(frames);
        let take = || self.pages.budget.take(core, pages);
        let got = take() || (self.pages.evict(core, pages) > 0 && take());
        got.then(|| Grant {
            volume: self,
            core,
            frames,
            blocks: 0,
            nodes: 0,
            class: OpClass::Normal,
        })
    }

    /// Credit for `pages` pages, evicting and writing back until it is there. What other callers
    /// hold is waited for: they give it back or make it evictable without waiting for others.
    fn take_memory(&self, core: CoreId, pages: u64) -> Result<()> {
        let mut failed = None;
        let mut idle = 0;
        let possible = pages <= self.pages.budget.pages_max();
        while possible && idle < IDLE_ROUNDS_MAX && failed.is_none() {
            if self.pages.budget.take(core, pages) {
                return Ok(());
            }
            if self.pages.evict(core, pages) > 0 {
                continue;
            }
            match self.write_back_some(pages.max(WRITE_BACK_PAGES)) {
                Ok(0) => {
                    idle += 1;
                    if idle < IDLE_ROUNDS_MAX / 8 {
                        dure_sync::thread::yield_now();
                    } else {
                        dure_sync::thread::sleep(IDLE_PAUSE);
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(Error::NoSpace {
            what: "page cache: all pages are in use",
        }))
    }

    /// Takes the clean pages of an inode that should leave memory.
    pub(super) fn drop_clean_pages(&self, inode: &Inode) {
        let core = self.partition();
        // The first look takes the reference bits.
        for _ in 0..2 {
            self.pages.evict_from(core, inode, u64::MAX);
        }
    }

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
        let core = self.partition();
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
    }
}
