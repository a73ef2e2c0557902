//! Free blocks that are not reserved.
//!
//! **Problem.** A buffered write must know at once whether its blocks will exist at write-back, and
//! a global count of free blocks would be written by every core.
//!
//! **Structure.** The available blocks are split into a *stash* per core, one *pool*, and two
//! counts for some: the *kept* blocks, for operations that free as many blocks as they take once
//! they are valid and checkpointed (deletions, rewrites of pages and nodes that exist, the cleaner,
//! the checkpoint), and the *promised* blocks, for writes that were accepted before they came here
//! (the kernel's cache of a mount). A core takes from its stash with one atomic read-modify-write;
//! an empty stash is refilled in batches from the pool, then from the other stashes, under a lock,
//! so that a refusal is exact. What comes back fills the kept blocks first, then the promised ones,
//! then the stash, then the pool.
//!
//! # Invariants
//! Counts never go below zero. Sum of all counts + reservations held = blocks that are not
//! allocated. So a holder of a reservation finds a block.
//!
//! **Crash.** Counted anew from the SIT at mount.

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, CoreId, Mutex, PerCore};

use crate::ranks::PARTITION;

/// Blocks a core takes from the pool beyond its present need.
const BATCH: u64 = 256;

/// What an operation is for; decides whether it may use the kept blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpClass {
    /// Anything that adds.
    Normal,
    /// A dirty page whose slot has a block already. Half of the kept blocks, so that the operations
    /// that write such pages back find the other half.
    Rewrite,
    /// Deletions, write-back of nodes that exist, and the checkpoint: they must be possible on a
    /// full volume.
    Delete,
    /// Writes for which blocks were promised ([`Space::promise`](super::Space::promise)): those of
    /// any class first, then the promised ones.
    Promised,
}

/// Blocks that are not for every caller. A count is below its goal only while the volume is full,
/// so that usually the line is only read.
#[derive(Debug)]
struct Aside {
    /// For operations that free as many as they take.
    kept: AtomicU64,
    kept_goal: u64,
    /// For writes of class `Promised`.
    promised: AtomicU64,
    promised_goal: AtomicU64,
}

/// The available blocks.
#[derive(Debug)]
pub(crate) struct Available {
    /// Written by the core of the slot and by cores that run out; only counts blocks, publishes
    /// nothing, hence Relaxed everywhere.
    stashes: PerCore<AtomicU64>,
    /// Blocks for all cores; counted like `stashes`.
    pool: CachePadded<AtomicU64>,
    aside: CachePadded<Aside>,
    /// Blocks a stash is filled up to; twice as many overflow into the pool.
    batch: u64,
    /// Held by a task that collects from several counts, so that two collectors do not refuse each
    /// other with what both hold in hand.
    collecting: Mutex<PARTITION, ()>,
}

impl Available {
    /// `free` available blocks of a main area of `main_blocks`, for `cores` cores.
    pub(crate) fn new(cores: usize, main_blocks: u64, free: u64) -> Available {
        let kept_goal = (main_blocks / 100).max(64).min(main_blocks / 16);
        let kept = kept_goal.min(free);
        let cores_u64 = u64::try_from(cores).expect("usize has 64 bits");
        Available {
            stashes: PerCore::new(cores, |_| AtomicU64::new(0)),
            pool: CachePadded::new(AtomicU64::new(free - kept)),
            aside: CachePadded::new(Aside {
                kept: AtomicU64::new(kept),
                kept_goal,
                promised: AtomicU64::new(0),
                promised_goal: AtomicU64::new(0),
            }),
            batch: BATCH.min(main_blocks / (16 * cores_u64)),
            collecting: Mutex::new(()),
        }
    }

    /// Takes `blocks`; `false` if there are not as many for this class.
    pub(crate) fn take(&self, core: CoreId, blocks: u64, class: OpClass) -> bool {
        if try_take(self.stashes.get(core), blocks) {
            return true;
        }
        // Refill: the need and a batch, in one go, without the lock.
        let found = take_up_to(&self.pool, blocks + self.batch, blocks);
        if found >= blocks {
            self.stashes
                .get(core)
                .fetch_add(found - blocks, Ordering::Relaxed);
            return true;
        }
        self.collect(blocks, class)
    }

    /// Gives `blocks` back, or adds blocks that became free.
    pub(crate) fn give(&self, core: CoreId, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let rest = blocks - self.put_aside(blocks);
        let stash = self.stashes.get(core);
        let before = stash.fetch_add(rest, Ordering::Relaxed);
        if before + rest > 2 * self.batch {
            let excess = take_up_to(stash, before + rest - self.batch, 1);
            self.pool.fetch_add(excess, Ordering::Relaxed);
        }
    }

    /// Takes blocks that were found to be in use after the counts were made.
    pub(crate) fn withdraw(&self, blocks: u64) {
        let taken = self.collect(blocks, OpClass::Delete);
        assert!(
            taken,
            "{blocks} blocks turned out to be in use, more than were free"
        );
    }

    /// Blocks that any class may take: a sum that is exact while no task takes or gives.
    pub(crate) fn normal(&self) -> u64 {
        let stashed: u64 = self
            .stashes
            .iter()
            .map(|stash| stash.load(Ordering::Relaxed))
            .sum();
        stashed + self.pool.load(Ordering::Relaxed)
    }

    /// Blocks that any class may take, without those that cores have taken beyond their need.
    pub(crate) fn pool(&self) -> u64 {
        self.pool.load(Ordering::Relaxed)
    }

    /// Kept blocks.
    pub(crate) fn kept(&self) -> u64 {
        self.aside.kept.load(Ordering::Relaxed)
    }

    /// Promised blocks.
    pub(crate) fn promised(&self) -> u64 {
        self.aside.promised.load(Ordering::Relaxed)
    }

    /// From now on so many blocks are promised, in place of as many as before: those that any class
    /// may take, and those that come back. Returns how many there are now.
    pub(crate) fn promise(&self, blocks: u64) -> u64 {
        let _collecting = self.collecting.lock();
        self.aside.promised_goal.store(blocks, Ordering::Relaxed);
        let found = self.take_from_all(blocks.saturating_sub(self.promised()));
        let excess = self.promised().saturating_sub(blocks);
        self.put_back(found + take_up_to(&self.aside.promised, excess, 1));
        self.promised()
    }

    /// Blocks one caller of class `Rewrite` may take at once: a share, so that several can go on.
    pub(crate) fn rewrites_at_once(&self) -> u64 {
        (self.aside.kept_goal / 8).max(2)
    }

    /// Blocks that the kept and the promised ones lack: what comes back goes there first.
    pub(crate) fn aside_lacks(&self) -> u64 {
        let goal = self.aside.promised_goal.load(Ordering::Relaxed);
        let promised = goal.saturating_sub(self.promised());
        self.aside.kept_goal.saturating_sub(self.kept()) + promised
    }

    /// Takes from all counts, the slow and exact way.
    #[cold]
    fn collect(&self, blocks: u64, class: OpClass) -> bool {
        let _collecting = self.collecting.lock();
        let mut found = self.take_from_all(blocks);
        let Aside {
            kept, kept_goal, ..
        } = &*self.aside;
        let lacking = blocks - found;
        found += match class {
            _ if lacking == 0 => 0,
            OpClass::Normal => 0,
            OpClass::Rewrite => take_above(kept, kept_goal / 2, lacking),
            OpClass::Delete => take_above(kept, 0, lacking),
            OpClass::Promised => take_up_to(&self.aside.promised, lacking, lacking),
        };
        if found == blocks {
            return true;
        }
        self.put_back(found);
        false
    }

    /// Takes up to `blocks` of those that any class may take; returns how many. The caller holds
    /// `collecting`.
    fn take_from_all(&self, blocks: u64) -> u64 {
        let mut found = take_up_to(&self.pool, blocks, 1);
        for stash in self.stashes.iter() {
            if found < blocks {
                found += take_up_to(stash, blocks - found, 1);
            }
        }
        found
    }

    /// Puts blocks where they lack, the rest into the pool.
    fn put_back(&self, blocks: u64) {
        let rest = blocks - self.put_aside(blocks);
        self.pool.fetch_add(rest, Ordering::Relaxed);
    }

    /// Adds up to `blocks` to the kept, then to the promised ones; returns how many.
    fn put_aside(&self, blocks: u64) -> u64 {
        let kept = fill_up(&self.aside.kept, self.aside.kept_goal, blocks);
        let goal = self.aside.promised_goal.load(Ordering::Relaxed);
        kept + fill_up(&self.aside.promised, goal, blocks - kept)
    }
}

/// Adds up to `blocks` to a count below its goal; returns how many.
fn fill_up(count: &AtomicU64, goal: u64, blocks: u64) -> u64 {
    // Usually nothing is missing, and the line is only read.
    let mut have = count.load(Ordering::Relaxed);
    loop {
        let more = blocks.min(goal.saturating_sub(have));
        if more == 0 {
            return 0;
        }
        match count.compare_exchange_weak(have, have + more, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return more,
            Err(now) => have = now,
        }
    }
}

/// Takes exactly `blocks`, if at least `floor` are left then, or nothing; returns how many.
fn take_above(count: &AtomicU64, floor: u64, blocks: u64) -> u64 {
    let take = |have: u64| have.checked_sub(blocks).filter(|&left| left >= floor);
    let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    taken.map_or(0, |_| blocks)
}

/// Takes exactly `blocks` or nothing.
fn try_take(count: &AtomicU64, blocks: u64) -> bool {
    take_up_to(count, blocks, blocks) == blocks
}

/// Takes up to `most`, or nothing if there are not `least`; returns how many.
fn take_up_to(count: &AtomicU64, most: u64, least: u64) -> u64 {
    let mut have = count.load(Ordering::Relaxed);
    loop {
        if have < least || have == 0 {
            return 0;
        }
        let taken = have.min(most);
        match count.compare_exchange_weak(have, have - taken, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => return taken,
            Err(now) => have = now,
        }
    }
}
