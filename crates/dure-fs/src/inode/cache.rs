//! The inode cache: number to inode, in shards; bounded, CLOCK eviction of clean inodes nobody
//! pins.
//!
//! A shard belongs to a partition, so that a core which works on its own inodes shares no shard's
//! lock with others. Inodes of one node, and of many nodes side by side, are in different shards:
//! whoever uses one of them is another one's neighbour only on the medium, and looks it up beside
//! the other's end. What an inode refers to is counted per shard too: whoever makes or ends an
//! inode writes lines of its shard only.

use std::collections::BTreeMap;
use std::mem;

use dure_store::error::{Error, Result};
use dure_store::format::fields::impossible_fields;
use dure_store::format::inode::InodeRecord;
use dure_store::format::nat;
use dure_store::format::node::NodeKind;
use dure_store::units::{Ino, to_u64, to_usize};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, CachePadded, Counter, OnceLock, PerCore, SpreadLock};
use zerocopy::FromBytes;

use super::{Home, Inode, InodeRef, InodeState};
use crate::file::PendingMarks;
use crate::ranks::INODE_SHARD;
use crate::volume::Volume;

/// Shards of one partition, at least and at most: inodes of one node, and of as many nodes side by
/// side as there is room for, are in different ones.
const SHARDS: (usize, usize) = (8, 1024);

/// Shards of all partitions, if each has at least its least.
const SHARDS_ALL: usize = 2048;

/// Shards of one partition, if each has room for [`SHARD_INODES_MIN`].
const SHARDS_SMALL: usize = 64;

/// Inodes that each shard has room for, at least.
const SHARD_INODES_MIN: usize = 4;

/// Where there are more, each has room for so many inodes.
const SHARD_INODES: usize = 8;

/// Inodes an insert into a full shard looks at to make room.
const SWEEP: usize = 32;

/// Inodes written back at once when nothing can leave a shard.
const RELIEVED: usize = 16;

/// A shard and what its inodes refer to.
#[derive(Debug, Default)]
struct Place {
    shard: SpreadLock<INODE_SHARD, Shard>,
    /// Set at the mount. Its references are counted here alone.
    home: OnceLock<Arc<Home>>,
}

#[derive(Debug, Default)]
struct Shard {
    inodes: BTreeMap<u64, Arc<Inode>>,
    /// Where the next sweep begins.
    hand: u64,
    /// The last inode that was made here, or 0. It goes when the next one is made, unless it was
    /// used again.
    newest: u64,
    /// The last operations of files that went before these were valid. Who is loaded may be one of
    /// them.
    left: PendingMarks,
}

/// Whether an inode without a name may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlinked {
    /// Only by the mount, to finish its deletion.
    Allowed,
    /// It is as good as gone.
    Refused,
}

/// All inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    partitions: u64,
    /// Shards of each partition.
    partition_shards: u64,
    places: Vec<CachePadded<Place>>,
    /// Most inodes in a shard before it evicts.
    shard_inodes_max: usize,
    /// Per core: the last inode that came into a shard in which nothing could make room; 0: none.
    /// Relaxed: a hint.
    crowded: PerCore<AtomicU64>,
    /// Inodes in memory without a name: somebody uses them, or they are being deleted.
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

    /// Tells the cache its volume, once it is in its `Arc`.
    pub(crate) fn attach(&self, volume: &Arc<Volume>) {
        for place in &self.places {
            let home = Arc::new(Home::new(volume));
            assert!(place.home.set(home).is_ok(), "a volume is mounted once");
        }
    }

    /// What a new inode with this number refers to.
    pub(crate) fn home(&self, ino: Ino) -> Arc<Home> {
        let home = self.place(ino).home.get();
        home.expect("attached at mount").clone()
    }

    fn place(&self, ino: Ino) -> &Place {
        let (pair, _) = nat::place_of(ino.nid());
        let place = pair % self.partitions * self.partition_shards + ino.0 % self.partition_shards;
        &self.places[to_usize(place)]
    }

    fn shard(&self, ino: Ino) -> &SpreadLock<INODE_SHARD, Shard> {
        &self.place(ino).shard
    }

    /// Pins the inode if it is in memory. `NotFound` when it is being deleted.
    fn get(&self, ino: Ino) -> Result<Option<InodeRef>> {
        let shard = self.shard(ino).read();
        shard.inodes.get(&ino.0).map(Inode::pin).transpose()
    }

    /// Puts in the inode of a free number, made with one pin, which an operation is about to take.
    pub(crate) fn insert_new(&self, inode: &Arc<Inode>) -> InodeRef {
        let mut evicted = Vec::new();
        let mut shard = self.shard(inode.ino).write();
        self.make_room(&mut shard, inode.ino, &mut evicted);
        evicted.extend(shard.remove_newest(inode.ino));
        let before = shard.inodes.insert(inode.ino.0, inode.clone());
        assert!(before.is_none(), "inode {} was free", inode.ino);
        self.count_nameless(inode);
        drop(shard);
        // Their pages go back to the budget outside the lock.
        drop(evicted);
        InodeRef::from_pinned(inode.clone())
    }

    /// Puts in an inode that has been made with one pin; if somebody was faster, theirs is pinned.
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

    /// Claims the inode for deletion if it has no more than `pins` pins (the caller's). Then nobody
    /// can pin it again, and the caller must free it.
    pub(crate) fn claim(&self, inode: &Inode, pins: u32) -> bool {
        let _shard = self.shard(inode.ino).write();
        // The shard's lock keeps new pins away.
        if inode.has_more_pins(pins) || inode.pins.dying.load(Ordering::Acquire) {
            return false;
        }
        // Release: whoever sees it must not touch the inode.
        inode.pins.dying.store(true, Ordering::Release);
        true
    }

    /// Comes after everybody who is just pinning the inode.
    pub(super) fn wait_for_pins(&self, inode: &Inode) {
        drop(self.shard(inode.ino).write());
    }

    /// Drops an inode that was claimed.
    pub(crate) fn remove(&self, inode: &Inode) {
        assert!(inode.pins.dying.load(Ordering::Acquire), "claimed first");
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

    /// Inodes in memory without a name. A sum over the cores: what changes meanwhile counts or not.
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

    /// Makes room in a shard for inode `ino`, or notes that others have to.
    fn make_room(&self, shard: &mut Shard, ino: Ino, evicted: &mut Vec<Arc<Inode>>) {
        // The first sweep may do no more than take reference bits.
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
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.local().load(Ordering::Relaxed) != 0
    }

    /// Inodes of such a shard, the one found last, that nobody uses, but that have pages or access
    /// times, pinned.
    pub(super) fn take_crowded(&self, count: usize) -> Vec<InodeRef> {
        let ino = self.crowded.local().swap(0, Ordering::Relaxed);
        let shard = self.shard(Ino(ino)).read();
        let behind = shard.inodes.range(shard.hand..);
        let round = behind.chain(shard.inodes.range(..shard.hand)).take(SWEEP);
        // The lists of inodes with pages refer to them.
        let kept = |inode: &Arc<Inode>| {
            let listed = Arc::strong_count(inode) > 1;
            !inode.has_more_pins(0) && (listed || inode.access_time.is_pending())
        };
        let kept = round.filter(|(_, inode)| kept(inode));
        kept.filter_map(|(_, inode)| Inode::pin(inode).ok())
            .take(count)
            .collect()
    }

    /// Takes out all inodes that are idle.
    #[cfg(test)]
    pub(crate) fn evict_all(&self) {
        for place in &self.places {
            let mut shard = place.shard.write();
            let Shard { inodes, left, .. } = &mut *shard;
            // The first look takes the reference bit.
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
        // Else these inodes would keep themselves.
        for place in &self.places {
            place
                .shard
                .write()
                .inodes
                .values()
                .for_each(|inode| inode.stop_lending());
        }
    }
}

/// Makes room in a full shard. Looks at a bounded number of inodes, so that an insert stays cheap
/// when all are in use; the shard then grows beyond its bound until some are not.
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
        if inode.is_lending() && !inode.pins.referenced.swap(false, Ordering::Relaxed) {
            inode.stop_lending();
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
    /// Takes out the inode that was made before `next`, if nobody has used it since it was closed:
    /// most files are not. What replaces it finds its memory in the caches of the core. One with
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

/// Nobody uses it, it was not used since the last sweep, and everything it knows is also in its
/// node, but for what an fsync of it has to wait for: that is in `left` then. *Crash scenario:* a
/// file whose operations are not valid leaves memory, is loaded again and synced; without their
/// marks the fsync would find nothing to do, and the power failure would take them.
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
    let state = inode.state.try_read_whole();
    let Some(state) = state.filter(|state| is_settled(inode, state)) else {
        return false;
    };
    state
        .file
        .writers()
        .iter()
        .for_each(|&mark| left.note(mark));
    drop(state);
    // Nobody can ask for its attributes before it is loaded again, and then not behind its back.
    inode.state.forget();
    true
}

/// All it knows is in nodes, but for the operations of a file, which its shard keeps; those of a
/// directory are valid.
fn is_settled(inode: &Inode, state: &InodeState) -> bool {
    let volume = inode.state.volume();
    let journal = volume.as_ref().and_then(|volume| volume.journal_if_any());
    let valid = |mark| journal.is_none_or(|journal| journal.is_valid(mark));
    let unwritten = inode.access_time.is_pending()
        && volume
            .as_ref()
            .is_some_and(|volume| volume.check_writable().is_ok());
    state.orphan.is_none()
        && !unwritten
        && state.file.is_clean(&state.record)
        && state.directory.shared.marks().all(valid)
}

impl Volume {
    /// Writes back some inodes that keep others from memory, so that they can leave it. The caller
    /// holds no lock.
    #[inline]
    pub(crate) fn relieve_inodes(&self) {
        if self.inodes.is_crowded() && self.check_writable().is_ok() {
            for inode in self.inodes.take_crowded(RELIEVED) {
                self.write_access_time(inode.inode());
                self.settle_file(inode.inode());
            }
        }
    }

    /// The inode, pinned.
    ///
    /// # Errors
    /// `NotFound` for a number without an inode, or one without a name.
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRef> {
        self.inode_unless(ino, Unlinked::Refused)
    }

    /// The inode, pinned; on request even one without a name.
    pub(crate) fn inode_unless(&self, ino: Ino, unlinked: Unlinked) -> Result<InodeRef> {
        if let Some(found) = self.inodes.get(ino)? {
            return Ok(found);
        }
        let node = self.node(ino.nid(), NodeKind::Inode.of_none())?;
        let record = node.look(ino.index(), |payload| {
            InodeRecord::read_from_bytes(payload).expect("496 bytes")
        });
        if record.is_free() || (record.nlink.get() == 0 && unlinked == Unlinked::Refused) {
            return Err(Error::NotFound);
        }
        self.check_inode(&node, ino, &record)?;
        self.insert_loaded(node, ino, record)
    }

    /// Refuses a record that no dure writes, before anything follows or counts with its fields.
    fn check_inode(
        &self,
        node: &dure_store::node::Node,
        ino: Ino,
        record: &InodeRecord,
    ) -> Result<()> {
        let number = record.ino.get();
        let blocks = record.blocks.get();
        let wrong = if number != ino.0 {
            Some(("number", ino.0, number))
        } else if blocks > self.layout.total_blocks {
            Some(("blocks", self.layout.total_blocks, blocks))
        } else {
            impossible_fields(ino, record)
                .next()
                .map(|(field, got, _)| (field, 0, got))
        };
        let Some((field, want, got)) = wrong else {
            return Ok(());
        };
        Err(Error::Corrupt {
            what: format!("{field} of inode {ino}"),
            at: self.nat.entry(node.nid)?.block().0,
            want,
            got,
        })
    }

    /// Between the read of the granule and here the inode may have been loaded, changed and evicted
    /// by others, so it is read again under the shard's lock.
    fn insert_loaded(
        &self,
        node: dure_store::node::NodeRef,
        ino: Ino,
        record: InodeRecord,
    ) -> Result<InodeRef> {
        let mut inode = Inode::new(self.inodes.home(ino), node.clone(), record)?;
        let mut evicted = Vec::new();
        let mut shard = self.inodes.shard(ino).write();
        if let Some(there) = shard.inodes.get(&ino.0) {
            return Inode::pin(there);
        }
        let as_read = |now: &[u8]| *now == *zerocopy::IntoBytes::as_bytes(&record);
        if !node.look(ino.index(), as_read) || node.freed().is_some() {
            drop(shard);
            return self.inode(ino);
        }
        self.inodes.make_room(&mut shard, ino, &mut evicted);
        if self.nodes.is_overfull() {
            // Each inode keeps its node in memory, and those that are loaded in no order a node each.
            evict(&mut shard, self.inodes.shard_inodes_max / 4, &mut evicted);
        }
        if let Some(journal) = self.journal_if_any() {
            let left = shard.left.pending(|mark| journal.is_valid(mark));
            let file = &mut inode.state.get_mut().file;
            left.iter().for_each(|&mark| file.note_mark(mark));
        }
        let inode = Arc::new(inode);
        shard.inodes.insert(ino.0, inode.clone());
        drop(shard);
        drop(evicted);
        Ok(InodeRef::from_pinned(inode))
    }
}
