//! Data blocks whose content is in a log and not yet in the block.
//!
//! **Problem.** A small synchronous write that goes to its block and to the log costs two device
//! writes. One will do when the log carries the data itself (note [`crate::format::note::DATA`]):
//! the log is written anyway.
//!
//! **Structure.** The operation gives the page a block as always, the slot names it with its CRC,
//! and the bytes join the journal with the slot. Until the next checkpoint this table has them, by
//! block; a reader of a data block asks here first. A checkpoint writes all of them to their
//! blocks, sorted, before its first flush; a block that is freed before that is never written.
//!
//! # Invariants
//! * An entry is made before its handle joins. *Crash scenario:* a checkpoint whose cut holds the
//!   handle would find no entry, let the tail pass it, and the data would be nowhere.
//! * An entry is removed when its block is free, before the block can be allocated again. *Crash
//!   scenario:* the block holds another file's data, and the next checkpoint writes the old content
//!   over it.
//! * A block that is freed while its entry is being written stays allocated until that write is
//!   over: the same scenario, with the write already under way.
//! * A checkpoint removes an entry only when its block was written, or could not be written and no
//!   longer belongs to a page; so a reader that finds none here finds the data on the device.
//! * Memory: at most `pages_max` pages, fewer while they do not pay (`admission`); a writer that
//!   finds no room writes the block itself. Cores keep a small stock of room, so that pages that
//!   come and go (logged, overwritten, freed) touch no line of another core.
//!
//! **On a crash** recovery takes from the logs the data of every slot that survives, still names
//! the block and has the CRC; it counts as if it lay in the block, and is written there before the
//! logs are emptied.

mod admission;

use std::collections::BTreeMap;

use dure_journal::Effects;
use dure_sync::atomic::{AtomicBool, AtomicI64, Ordering};
use dure_sync::{Arc, CachePadded, CoreId, Counter, Mutex, PerCore};

use crate::error::Error;
use crate::frames::{Frame, FramePool};
use crate::ranks::LOGGED;
use crate::space::{Effect, Owned, Space};
use crate::units::{BLOCK_BYTES, BlockNo, Run, SlotRef, to_u64, to_usize};
use admission::Admission;

/// Locks of the table. A core allocates from a segment of its own, so neighbours share a lock.
const SHARDS: usize = 64;
/// Blocks that share a lock.
const NEIGHBOURS: u64 = 512;
/// Most pages of the table, unless the cache is small: 4 MiB. More would pay only where pages are
/// rewritten before a checkpoint writes them, and each makes that checkpoint longer: 64 threads
/// that overwrite 64 MiB at random were slower than 2 with 16 MiB.
const PAGES_MAX: u64 = 1024;
/// Pages that a core takes from the common room at once, and gives back.
const STOCK: i64 = 32;
/// One part of the page cache in this many is for the table.
const CACHE_SHARE: u64 = 16;

#[derive(Debug)]
struct Entry {
    frame: Frame,
    /// A checkpoint is writing the block.
    writing: bool,
    /// It was freed meanwhile; it is free once the write is over.
    freed: bool,
}

type Shard = BTreeMap<BlockNo, Entry>;

/// The table. See the module's documentation.
#[derive(Debug)]
pub struct DataLog {
    /// By block number / [`NEIGHBOURS`]. [LOGGED]
    shards: Box<[CachePadded<Mutex<LOGGED, Shard>>]>,
    /// Whether anything was ever here. Read by every lookup, to skip a table that is not used.
    used: CachePadded<AtomicBool>,
    /// Pages there is room for, without those in `stocks`. Below 0 when some went beyond the bound.
    rest: CachePadded<AtomicI64>,
    /// Pages that a core may take without touching `rest`.
    stocks: PerCore<AtomicI64>,
    pages_max: u64,
    admission: Admission,
    frames: Arc<FramePool>,
    /// Pages that went to the log.
    pub logged: Counter,
    /// Pages that went to the log and were freed before they were written to their block.
    pub spared: Counter,
}

/// Blocks that could not be written. They stay in the table, as being written, until
/// [`DataLog::end_unplaced`].
#[derive(Debug)]
pub(crate) struct Unplaced {
    /// Which.
    pub(crate) blocks: Vec<BlockNo>,
    /// The error of the first.
    pub(crate) error: Error,
}

/// Room for some entries. What is left of it when it is dropped goes back.
#[derive(Debug)]
pub struct Room<'t> {
    table: &'t DataLog,
    core: CoreId,
    pages: i64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.table.give_room(self.core, self.pages);
    }
}

/// Takes `pages` if there are as many.
fn take(from: &AtomicI64, pages: i64) -> bool {
    // Relaxed, as everything about room: a bound on memory, which orders nothing.
    let enough = |there: i64| (there >= pages).then_some(there - pages);
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough)
        .is_ok()
}

fn signed(pages: usize) -> i64 {
    i64::try_from(pages).expect("pages fit in memory")
}

impl DataLog {
    /// The pages of a cache of `cache_bytes` bytes that the table may take.
    pub fn share_of(cache_bytes: u64) -> u64 {
        (cache_bytes / to_u64(BLOCK_BYTES) / CACHE_SHARE).min(PAGES_MAX)
    }

    /// An empty table for at most `pages_max` pages, used from `cores` cores, whose memory comes
    /// from `frames`.
    pub(crate) fn new(pages_max: u64, cores: usize, frames: Arc<FramePool>) -> DataLog {
        let shard = |_| CachePadded::new(Mutex::default());
        DataLog {
            shards: (0..SHARDS).map(shard).collect(),
            used: CachePadded::new(AtomicBool::new(false)),
            rest: CachePadded::new(AtomicI64::new(signed(to_usize(pages_max)))),
            stocks: PerCore::new(cores, |_| AtomicI64::new(0)),
            pages_max,
            admission: Admission::new(signed(to_usize(pages_max))),
            frames,
            logged: Counter::default(),
            spared: Counter::default(),
        }
    }

    fn shard(&self, block: BlockNo) -> &Mutex<LOGGED, Shard> {
        &self.shards[to_usize(block.0 / NEIGHBOURS % to_u64(SHARDS))]
    }

    fn give_room(&self, core: CoreId, pages: i64) {
        if pages == 0 {
            return;
        }
        let stock = self.stocks.get(core);
        let there = stock.fetch_add(pages, Ordering::Relaxed) + pages;
        if there > 2 * STOCK && take(stock, there - STOCK) {
            self.rest.fetch_add(there - STOCK, Ordering::Relaxed);
        }
    }

    /// No block that the caller can know of is here. The entries of slots it reads under their
    /// inode's lock, and its own, were made after `used` was set and before the caller got that
    /// lock, so Relaxed will do.
    pub(crate) fn is_unused(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    /// Most pages the table takes.
    pub fn pages_max(&self) -> u64 {
        self.pages_max
    }

    /// Room for `pages` pages, if there is; other cores' stocks do not count.
    pub(crate) fn room(&self, core: CoreId, pages: usize) -> Option<Room<'_>> {
        let pages = signed(pages);
        let stock = self.stocks.get(core);
        let mut found = take(stock, pages);
        if !found && take(&self.rest, pages + STOCK) {
            stock.fetch_add(STOCK, Ordering::Relaxed);
            found = true;
        }
        let found = found || take(&self.rest, pages);
        found.then(|| Room {
            table: self,
            core,
            pages,
        })
    }

    /// Like `room`, for pages that can be written to their blocks as well.
    pub fn room_that_pays(&self, core: CoreId, pages: usize) -> Option<Room<'_>> {
        let room = self.room(core, pages);
        if room.is_none() {
            self.admission.refused.add(signed(pages));
        }
        room
    }

    /// Room as `DataLog::room`, counting other cores' stocks as well.
    pub fn room_of_all(&self, core: CoreId, pages: usize) -> Option<Room<'_>> {
        self.room(core, pages).or_else(|| {
            self.collect_stocks();
            self.room(core, pages)
        })
    }

    fn collect_stocks(&self) {
        for stock in self.stocks.iter() {
            let there = stock.swap(0, Ordering::Relaxed);
            self.rest.fetch_add(there, Ordering::Relaxed);
        }
    }

    /// After a checkpoint that wrote `placed` pages: takes more from now on, or fewer. The caller
    /// holds the checkpoint lock.
    pub(crate) fn learn(&self, placed: usize) {
        let more = self.admission.learn(self.spared.sum(), signed(placed));
        if more < 0 {
            self.collect_stocks();
        }
        self.rest.fetch_add(more, Ordering::Relaxed);
    }

    /// Room beyond the bound: for data that recovery found and may not write (a read-only mount),
    /// and for a batch that has to go into the log and found no room after several checkpoints.
    pub fn room_beyond(&self, core: CoreId, pages: usize) -> Room<'_> {
        let pages = signed(pages);
        self.rest.fetch_sub(pages, Ordering::Relaxed);
        Room {
            table: self,
            core,
            pages,
        }
    }

    /// Keeps the content of a block whose data joins the log next.
    pub fn insert(&self, room: &mut Room<'_>, block: BlockNo, frame: Frame) {
        assert!(room.pages > 0, "the caller has room for the page");
        let entry = Entry {
            frame,
            writing: false,
            freed: false,
        };
        if self.is_unused() {
            self.used.store(true, Ordering::Relaxed);
        }
        let before = self.shard(block).lock().insert(block, entry);
        assert!(
            before.is_none(),
            "block {} was allocated while its last content was here",
            block.0
        );
        room.pages -= 1;
        self.logged.add(1);
    }

    /// Copies the content of `block` if it is here. The caller holds a lock that keeps the block
    /// from being freed. If it is not here, the device has it.
    pub fn read(&self, block: BlockNo, out: &mut [u8]) -> bool {
        if self.is_unused() {
            return false;
        }
        let shard = self.shard(block).lock();
        let Some(entry) = shard.get(&block) else {
            return false;
        };
        out.copy_from_slice(entry.frame.bytes());
        true
    }

    /// Whether the content of `block` is here.
    pub fn holds(&self, block: BlockNo) -> bool {
        !self.is_unused() && self.shard(block).lock().contains_key(&block)
    }

    /// The effects of valid handles on their way to the space map: entries of freed blocks are
    /// removed. Blocks that are just being written are left out of the effects; they are freed when
    /// that write is over.
    pub(crate) fn pass(&self, core: CoreId, effects: Effects<Effect>) -> Effects<Effect> {
        if self.is_unused() {
            return effects;
        }
        let mut passed = Effects::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Free(run) => self.pass_free(core, run, &mut passed),
                Effect::FreeOf(owned) => self.pass_free_of(core, owned.parts(), &mut passed),
                other => passed.push(other),
            }
        }
        passed
    }

    fn pass_free(&self, core: CoreId, run: Run, passed: &mut Effects<Effect>) {
        let mut free = Run { count: 0, ..run };
        for n in 0..u64::from(run.count) {
            let block = BlockNo(run.first.0 + n);
            if self.forget(core, block) {
                free.count += 1;
                continue;
            }
            passed.extend((free.count > 0).then_some(Effect::Free(free)));
            free = Run {
                first: BlockNo(block.0 + 1),
                count: 0,
            };
        }
        passed.extend((free.count > 0).then_some(Effect::Free(free)));
    }

    /// What is here is named by one slot only: no page in a log is shared.
    fn pass_free_of(
        &self,
        core: CoreId,
        (owner, run): (SlotRef, Run),
        passed: &mut Effects<Effect>,
    ) {
        let blocks = (0..run.count).map(|n| BlockNo(run.first.0 + u64::from(n)));
        if !blocks.clone().any(|block| self.holds(block)) {
            passed.push(Effect::FreeOf(Owned::new(owner, run)));
            return;
        }
        for (slot, first) in (owner.slot..).zip(blocks) {
            let run = Run { first, count: 1 };
            match self.holds(first) {
                true => self.pass_free(core, run, passed),
                false => {
                    let owner = SlotRef { slot, ..owner };
                    passed.push(Effect::FreeOf(Owned::new(owner, run)));
                }
            }
        }
    }

    /// Drops the entry of a freed block; false if the block must not be used yet.
    fn forget(&self, core: CoreId, block: BlockNo) -> bool {
        let mut shard = self.shard(block).lock();
        match shard.get_mut(&block) {
            None => return true,
            Some(entry) if entry.writing => {
                entry.freed = true;
                return false;
            }
            Some(_) => {}
        }
        let entry = shard.remove(&block).expect("the entry was found above");
        drop(shard);
        self.spared.add(1);
        self.drop_entry(core, entry);
        true
    }

    fn drop_entry(&self, core: CoreId, entry: Entry) {
        self.frames.give(core, entry.frame);
        self.give_room(core, 1);
    }

    /// The write of these blocks has failed, and what could be done about it was done. Those that
    /// were freed meanwhile belong to no file, and are not used again before the next mount; the
    /// others stay here.
    pub(crate) fn end_unplaced(&self, core: CoreId, space: &Space, unplaced: &Unplaced) {
        for block in &unplaced.blocks {
            let mut shard = self.shard(*block).lock();
            let entry = shard
                .get_mut(block)
                .expect("an entry that is being written stays in the table");
            assert!(entry.writing, "block {} ended twice", block.0);
            entry.writing = false;
            if !entry.freed {
                continue;
            }
            let entry = shard.remove(block).expect("the entry was found above");
            drop(shard);
            space.retire(*block);
            self.drop_entry(core, entry);
        }
    }

    /// Marks all that is here as being written; returns the blocks in order. The caller holds the
    /// checkpoint lock.
    pub(crate) fn begin_writing(&self) -> Vec<BlockNo> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            for (block, entry) in shard.lock().iter_mut() {
                assert!(!entry.writing, "one checkpoint at a time");
                entry.writing = true;
                blocks.push(*block);
            }
        }
        blocks.sort_unstable();
        blocks
    }

    /// Copies the content of these blocks, which are being written.
    pub(crate) fn copy(&self, blocks: &[BlockNo], bytes: &mut [u8]) {
        let pages = bytes.chunks_exact_mut(BLOCK_BYTES);
        for (block, out) in blocks.iter().zip(pages) {
            let shard = self.shard(*block).lock();
            let entry = shard
                .get(block)
                .expect("an entry that is being written stays in the table");
            out.copy_from_slice(entry.frame.bytes());
        }
    }

    /// These blocks are written now. Those that were freed meanwhile are free.
    pub(crate) fn end_writing(
        &self,
        core: CoreId,
        space: &Space,
        blocks: impl IntoIterator<Item = BlockNo>,
    ) {
        for block in blocks {
            let entry = self.shard(block).lock().remove(&block);
            let entry = entry.expect("an entry that is being written stays in the table");
            if entry.freed {
                space.settle([Effect::Free(Run {
                    first: block,
                    count: 1,
                })]);
            }
            self.drop_entry(core, entry);
        }
    }
}

#[cfg(test)]
mod tests;
