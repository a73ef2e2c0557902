//! The inode cache: number to inode, in shards; bounded, with CLOCK eviction of clean inodes
//! without pins.
//!
//! A shard belongs to a partition, so that a core which works on its own inodes shares no shard's
//! lock with others. Inodes of one node, and of many adjacent nodes, are in different shards: tasks
//! that use such inodes are neighbours on the medium only, and one looks up its inode while another
//! one drops its own. What an inode refers to is reference-counted per shard too: making or
//! dropping an inode writes lines of its shard only.

mod load;

use std::collections::BTreeMap;
use std::mem;

use dure_store::error::Result;
use dure_store::format::nat;
use dure_store::units::{Ino, to_u64, to_usize};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, CachePadded, Counter, OnceLock, PerCore, PerCoreRwLock};

use super::{Above, Home, Inode, InodeRef, InodeState, Inodes};
use crate::file::PendingMarks;
use crate::ranks::INODE_SHARD;

/// Minimum and maximum number of shards of one partition: inodes of one node, and of as many
/// adjacent nodes as there is room for, are in different ones.
const SHARDS: (usize, usize) = (8, 1024);

/// Shards of all partitions, unless the minimum of each makes them more. So many that a core that
/// puts its new inodes into its shards seldom meets the one of a directory that all cores walk
/// through: it would visit the count of each of them.
const SHARDS_ALL: usize = 32 * 1024;

/// Shards of one partition, if each has room for [`SHARD_INODES_MIN`].
const SHARDS_SMALL: usize = 64;

/// Minimum number of inodes that each shard has room for.
const SHARD_INODES_MIN: usize = 4;

/// While the node cache is overfull, loading an inode evicts idle ones from a shard that holds at
/// least its maximum divided by this.
const OVERFULL_PART: usize = 4;

/// Inodes that each shard has room for where a partition has more than `SHARDS_SMALL` shards.
const SHARD_INODES: usize = 8;

/// Inodes that an insert into a full shard examines to make room.
const SWEEP: usize = 32;

/// A shard and what its inodes refer to.
#[derive(Debug, Default)]
struct Place {
    shard: PerCoreRwLock<INODE_SHARD, Shard>,
    /// Set at the mount. Only inodes of this shard count in this `Arc`.
    home: OnceLock<Arc<Home>>,
}

#[derive(Debug, Default)]
struct Shard {
    inodes: BTreeMap<u64, Arc<Inode>>,
    /// Where the next sweep begins.
    hand: u64,
    /// The last inode that was created here, or 0. The next creation evicts it, unless it was used
    /// again.
    newest: u64,
    /// The last operations of files that were evicted before these were valid. An inode that is
    /// loaded may be one of these files.
    left: PendingMarks,
}

/// Whether an inode without a name may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlinked {
    /// Only by the mount, to finish its deletion.
    Allowed,
    /// It is treated as deleted.
    Refused,
}

/// All inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    partitions: u64,
    /// Shards of each partition.
    partition_shards: u64,
    places: Vec<CachePadded<Place>>,
    /// Number of inodes from which on a shard evicts.
    shard_inodes_max: usize,
    /// Per core: the last inode that was put into a shard in which nothing could make room; 0:
    /// none. Relaxed: a hint.
    crowded: PerCore<AtomicU64>,
    /// Inodes in memory without a name: in use, or being deleted.
    nameless: Counter,
}

impl InodeCache {
    /// A cache of about `inodes_max` inodes for a volume with `partitions` partitions.
    pub(crate) fn new(inodes_max: usize, partitions: usize) -> InodeCache {
        let inodes = inodes_max / partitions;
        let small = SHARDS_SMALL.min(inodes / SHARD_INODES_MIN);
        let roomy = (inodes / SHARD_INODES).max(small);
        let partition_shards = (SHARDS_ALL / partitions)
            .min(roomy)
            .clamp(SHARDS.0, SHARDS.1);
        let shards = partitions * partition_shards;
        InodeCache {
            partitions: to_u64(partitions),
            partition_shards: to_u64(partition_shards),
            places: (0..shards)
                .map(|_| CachePadded::new(Place::default()))
                .collect(),
            shard_inodes_max: (inodes_max / shards).max(SHARD_INODES_MIN),
            crowded: PerCore::new(dure_sync::core_count(), |_| AtomicU64::new(0)),
            nameless: Counter::new(),
        }
    }

    /// Tells the inodes what they belong to, and what is above them.
    pub(crate) fn attach(&self, inodes: &Inodes, above: &Arc<dyn Above>) {
        for place in &self.places {
            let home = Arc::new(Home::new(inodes, Arc::clone(above)));
            assert!(
                place.home.set(home).is_ok(),
                "the inode cache is attached to a second volume"
            );
        }
    }

    /// What a new inode with this number refers to.
    pub(crate) fn home(&self, ino: Ino) -> Arc<Home> {
        let home = self.place(ino).home.get();
        home.expect("the mount attaches the inode cache").clone()
    }

    fn place(&self, ino: Ino) -> &Place {
        let (pair, _) = nat::place_of(ino.nid());
        let place = pair % self.partitions * self.partition_shards + ino.0 % self.partition_shards;
        &self.places[to_usize(place)]
    }

    fn shard(&self, ino: Ino) -> &PerCoreRwLock<INODE_SHARD, Shard> {
        &self.place(ino).shard
    }

    /// Pins the inode if it is in memory. `NotFound` when it is being deleted.
    fn get(&self, ino: Ino) -> Result<Option<InodeRef>> {
        let shard = self.shard(ino).read();
        shard.inodes.get(&ino.0).map(Inode::pin).transpose()
    }

    /// Inserts the inode of a free number, made with one pin, which an operation is about to
    /// allocate.
    pub(crate) fn insert_new(&self, inode: &Arc<Inode>) -> InodeRef {
        let mut evicted = Vec::new();
        let mut shard = self.shard(inode.ino).write();
        self.make_room(&mut shard, inode.ino, &mut evicted);
        let newest = shard.remove_newest(inode.ino);
        let before = shard.inodes.insert(inode.ino.0, inode.clone());
        assert!(before.is_none(), "inode {} is in memory already", inode.ino);
        self.count_nameless(inode);
        drop(shard);
        // Their pages go back to the budget outside the lock.
        drop((evicted, newest));
        InodeRef::from_pinned(inode.clone())
    }

    /// Inserts an inode that was made with one pin; if the cache has the inode already, pins that
    /// one.
    pub(crate) fn insert(&self, inode: Inode) -> Result<InodeRef> {
        let mut evicted = Vec::new();
        let mut shard = self.shard(inode.ino).write();
        if let Some(there) = shard.inodes.get(&inode.ino.0) {
            return Inode::pin(there);
        }
        self.make_room(&mut shard, inode.ino, &mut evicted);
        let inode = Arc::new(inode);
        shard.inodes.insert(inode.ino.0, inode.clone());
        self.count_nameless(&inode);
        drop(shard);
        // Their pages go back to the budget outside the lock.
        drop(evicted);
        Ok(InodeRef::from_pinned(inode))
    }

    /// Claims the inode for deletion if it has no more than `pins` pins (the caller's). After a
    /// claim no task can pin it, and the caller must free it.
    pub(crate) fn claim(&self, inode: &Inode, pins: u32) -> bool {
        let _shard = self.shard(inode.ino).write();
        // The shard's lock keeps new pins away.
        if inode.has_more_pins(pins) || inode.pins.dying.load(Ordering::Acquire) {
            return false;
        }
        // Release: a task that sees it must not touch the inode.
        inode.pins.dying.store(true, Ordering::Release);
        true
    }

    /// Waits until all tasks that are just pinning the inode have done so.
    pub(super) fn wait_for_pins(&self, inode: &Inode) {
        drop(self.shard(inode.ino).write());
    }

    /// Drops a claimed inode.
    pub(crate) fn remove(&self, inode: &Inode) {
        assert!(
            inode.pins.dying.load(Ordering::Acquire),
            "an inode leaves the cache without a claim"
        );
        let removed = self.shard(inode.ino).write().inodes.remove(&inode.ino.0);
        assert!(
            removed.is_some(),
            "a claimed inode stays in the cache until it is freed"
        );
        if inode.pins.is_unlinked() {
            self.nameless.add(-1);
        }
    }

    fn count_nameless(&self, inode: &Inode) {
        if inode.pins.is_unlinked() {
            self.nameless.add(1);
        }
    }

    /// An inode in memory has lost its last name, or got one.
    pub(super) fn name_changed(&self, unlinked: bool) {
        self.nameless.add(if unlinked { 1 } else { -1 });
    }

    /// Inodes in memory without a name. A sum over the cores: concurrent changes may count or not.
    pub(crate) fn nameless(&self) -> u64 {
        u64::try_from(self.nameless.sum()).unwrap_or(0)
    }

    /// All inodes that satisfy `wanted`, pinned.
    pub(crate) fn collect(&self, wanted: impl Fn(&Inode) -> bool) -> Vec<InodeRef> {
        let mut found = Vec::new();
        for place in &self.places {
            let shard = place.shard.read();
            found.extend(
                shard
                    .inodes
                    .values()
                    .filter(|inode| wanted(inode))
                    .filter_map(|inode| Inode::pin(inode).ok()),
            );
        }
        found
    }

    /// Makes room in a shard for inode `ino`, or notes that the shard is crowded.
    fn make_room(&self, shard: &mut Shard, ino: Ino, evicted: &mut Vec<Arc<Inode>>) {
        // The first sweep may only clear reference bits.
        for _ in 0..2 {
            evict(shard, self.shard_inodes_max, evicted);
            if shard.inodes.len() < self.shard_inodes_max {
                return;
            }
        }
        self.crowded.local().store(ino.0, Ordering::Relaxed);
    }

    /// Whether this core has found a shard in which nothing could make room.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.local().load(Ordering::Relaxed) != 0
    }

    /// Unused inodes that have pages or access times, pinned, of the last such shard found; `most` of
    /// its inodes are looked at.
    pub(crate) fn take_crowded(&self, most: usize) -> Vec<InodeRef> {
        let ino = self.crowded.local().swap(0, Ordering::Relaxed);
        let shard = self.shard(Ino(ino)).read();
        let behind = shard.inodes.range(shard.hand..);
        let round = behind.chain(shard.inodes.range(..shard.hand)).take(most);
        // The lists of inodes with pages refer to them.
        let kept = |inode: &Arc<Inode>| {
            let listed = Arc::strong_count(inode) > 1;
            !inode.has_more_pins(0) && (listed || inode.access_time().is_pending())
        };
        let kept = round.filter(|(_, inode)| kept(inode));
        kept.filter_map(|(_, inode)| Inode::pin(inode).ok())
            .collect()
    }

    /// Evicts all idle inodes.
    #[cfg(test)]
    pub(crate) fn evict_all(&self) {
        for place in &self.places {
            let mut shard = place.shard.write();
            let Shard { inodes, left, .. } = &mut *shard;
            // The first call clears the reference bit.
            inodes.retain(|_, inode| !may_go(inode, left) && !may_go(inode, left));
        }
    }

    /// Inodes in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places
            .iter()
            .map(|place| place.shard.read().inodes.len())
            .sum()
    }
}

impl Drop for InodeCache {
    fn drop(&mut self) {
        // Otherwise the pins that their slots hold would keep these inodes in memory.
        for place in &self.places {
            place
                .shard
                .write()
                .inodes
                .values()
                .for_each(|inode| inode.close_slots());
        }
    }
}

/// Makes room in a full shard. Examines a bounded number of inodes, so that an insert stays cheap
/// when all are in use; the shard then exceeds its maximum until some are not.
fn evict(shard: &mut Shard, inodes_max: usize, evicted: &mut Vec<Arc<Inode>>) {
    if shard.inodes.len() < inodes_max {
        return;
    }
    let mut seen = 0;
    let mut last = 0;
    let mut victims = Vec::new();
    for (&ino, inode) in shard.inodes.range(shard.hand..).take(SWEEP) {
        (seen, last) = (seen + 1, ino);
        // Relaxed: a hint.
        if inode.has_open_slots() && !inode.pins.referenced.swap(false, Ordering::Relaxed) {
            inode.close_slots();
        }
        if may_go(inode, &mut shard.left) {
            victims.push(ino);
        }
    }
    shard.hand = if seen == SWEEP { last + 1 } else { 0 };
    evicted.extend(
        victims
            .into_iter()
            .filter_map(|ino| shard.inodes.remove(&ino)),
    );
}

impl Shard {
    /// Evicts the inode that was created before `next`, if it was not used since it was closed, as
    /// most files are not: the new one finds its memory in the caches of the core. An inode with
    /// pages is kept.
    fn remove_newest(&mut self, next: Ino) -> Option<Arc<Inode>> {
        let newest = mem::replace(&mut self.newest, next.0);
        let inode = self.inodes.get(&newest)?;
        // Relaxed: a hint.
        let used = inode.pins.referenced.load(Ordering::Relaxed);
        if used || !may_go(inode, &mut self.left) {
            return None;
        }
        self.inodes.remove(&newest)
    }
}

/// The inode is not pinned, was not used since the last sweep, and all its state is also in its
/// node, except for what an fsync of it has to wait for: that goes to `left`. *Crash scenario:* a
/// file whose operations are not valid is evicted, loaded again and synced; without their marks the
/// fsync would find nothing to do, and a power failure would lose them.
fn may_go(inode: &Arc<Inode>, left: &mut PendingMarks) -> bool {
    // The shard's write lock keeps new pins away.
    let idle = !inode.has_more_pins(0)
        && Arc::strong_count(inode) == 1
        && !inode.pins.dying.load(Ordering::Acquire)
        // Relaxed: a hint.
        && !inode.pins.referenced.swap(false, Ordering::Relaxed);
    if !idle {
        return false;
    }
    let state = inode.state().try_read_whole();
    let Some(state) = state.filter(|state| is_settled(inode, state)) else {
        return false;
    };
    let marks = state.marks.all().iter();
    marks.for_each(|&mark| left.note(mark));
    drop(state);
    // No task can ask for its attributes before it is loaded again, and then they are those of the
    // loaded inode.
    inode.state().forget_all();
    true
}

/// All state is in nodes, except for the operations of a file, which its shard keeps; those of a
/// directory, and overwrites of a contended file, are valid. *Crash scenario:* such a file is
/// overwritten, evicted, loaded again and renamed: without the mark of the overwrite, which is in no
/// granule of the inode, the name would survive and the content might not.
fn is_settled(inode: &Inode, state: &InodeState) -> bool {
    // Asked only where there is a reason: a new reference writes a line that all cores share.
    let store = || inode.state().store();
    let valid = |mark| {
        let store = store();
        let journal = store.as_ref().and_then(|store| store.journal_if_any());
        journal.is_none_or(|journal| journal.is_valid(mark))
    };
    let unwritten = inode.access_time().is_pending()
        && store().is_some_and(|store| store.check_writable().is_ok());
    !inode.pins.is_unlinked()
        && !unwritten
        && state.is_clean()
        && inode.overwrite_marks().all(valid)
        && state
            .if_directory()
            .is_none_or(|directory| directory.marks().all(valid))
}
