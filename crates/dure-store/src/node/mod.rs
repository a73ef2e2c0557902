//! Nodes in memory (nCache) and the node address table.
//!
//! **Problem.** Metadata of many files shares 4 KiB nodes; two cores must contend only where they
//! really change the same inode, bucket or slots.
//!
//! **Structure.** A [`Node`] is an array of granules, each with a version and the mark of its last
//! writer, behind what the policy has for a lock (`lock`). The `cache::NodeCache` maps a nid to its
//! node in shards; the [`nat::Nat`] knows where images lie.
//!
//! **Invariants.** A granule's payload, version and last writer change together, under its lock,
//! only in `Op::finish` (and in recovery). A node on a dirty list is never evicted. A clean node's
//! writers are all valid.
//!
//! **On a crash** everything here is rebuilt from images and logs.

pub(crate) mod cache;
mod lock;
pub mod nat;
mod reference;

use std::ops::Range;

use crate::format::inode::{AttributesRecord, DataHead, INODE_BODY, InodeData, InodeRecord};
use crate::format::node::{NodeImage, NodeKind};
use crate::ranks::BUCKET;
use crate::units::{Ino, Mark, Nid, is_zero};
use dure_journal::Hold;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CachePadded, Mutex, MutexGuard, PerCoreRefs, thread};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) use lock::{Granules, HeldNode};
pub use lock::{HeldGranule, NodeLock};
pub use reference::NodeRef;

use lock::{Granule, Head, Lock};

/// What a reference leads to: a node of this kind, which belongs to this inode until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRole {
    pub(crate) kind: NodeKind,
    /// `Ino(0)`: to none, as nodes of inodes and of orphan slots.
    pub(crate) owner: Ino,
}

impl NodeKind {
    /// A node of this kind that belongs to inode `owner`.
    pub fn of(self, owner: Ino) -> NodeRole {
        NodeRole { kind: self, owner }
    }

    /// A node of this kind that belongs to no inode.
    pub fn of_none(self) -> NodeRole {
        self.of(Ino(0))
    }
}

/// Bytes of a node in memory: granules with their locks, buckets' locks, its place in the cache.
pub const NODE_BYTES: usize = 6144;

/// Tries for a bucket that another task holds, before sleeping for it, and turns of spinning
/// between them: some microseconds, about one operation.
const BUCKET_TRIES: u32 = 16;
const BUCKET_SPINS: u32 = 16;

/// A node in memory.
#[derive(Debug)]
pub struct Node {
    /// Which node.
    pub nid: Nid,
    /// What it holds.
    pub kind: NodeKind,
    /// The inode it belongs to; `Ino(0)`: none.
    pub owner: Ino,
    lock: Lock,
    /// The locks of a bucket node: held by a task that is about to change the entries of a bucket
    /// while it holds the directory shared. On lines of their own: cores that use different buckets
    /// do not contend.
    buckets: Box<[CachePadded<Mutex<BUCKET, ()>>]>,
    /// On a dirty list. Set under the lock of that list (and by `Op::finish` while it holds a
    /// granule lock), cleared by the checkpoint before it copies the granules.
    dirty: AtomicBool,
    /// Version of the tombstone once the node has been freed, else 0. Written once, in
    /// `Op::finish`.
    freed: AtomicU64,
    /// Which transaction has it (compound transactions).
    pub(crate) hold: Hold,
    /// Whether `InodePools` has this node of inodes. Set under the lock of the pool, once.
    adopted: AtomicBool,
    /// CLOCK reference bit.
    referenced: AtomicBool,
    /// Written under the exclusive lock of the shard; read before a per-core slot is opened.
    cached: AtomicBool,
    /// Per-core reference counts, once cores contend.
    per_core: PerCoreRefs<Node>,
}

impl Node {
    /// Its kind and owner, which whatever points to it expects.
    pub fn role(&self) -> NodeRole {
        self.kind.of(self.owner)
    }

    /// A node as read from its image, or fresh.
    pub(crate) fn new(nid: Nid, image: NodeImage, policy: NodeLock) -> Node {
        let granules = image.versions().zip(image.payloads());
        let granules = granules.map(|(version, payload)| {
            let last_writer = Mark::NONE;
            let head = Head {
                version,
                last_writer,
            };
            let payload = payload.into();
            Granule { head, payload }
        });
        let buckets = match image.kind {
            NodeKind::Bucket => NodeKind::Bucket.granules(),
            _ => 0,
        };
        Node {
            nid,
            buckets: (0..buckets)
                .map(|_| CachePadded::new(Mutex::new(())))
                .collect(),
            kind: image.kind,
            owner: image.owner,
            lock: Lock::new(policy, granules),
            dirty: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            hold: Hold::new(),
            adopted: AtomicBool::new(false),
            referenced: AtomicBool::new(true),
            cached: AtomicBool::new(false),
            per_core: PerCoreRefs::default(),
        }
    }

    /// Passes `look` the bytes of granule `index` as they are at one moment; nothing of rank
    /// GRANULE may be held.
    #[inline]
    pub fn look<R>(&self, index: u8, look: impl FnOnce(&[u8]) -> R) -> R {
        self.lock.look(index, 0..self.payload_bytes(index), look)
    }

    /// Like [`Node::look`], of some bytes.
    #[inline]
    pub fn look_at<R>(&self, index: u8, bytes: Range<usize>, look: impl FnOnce(&[u8]) -> R) -> R {
        self.lock.look(index, bytes, look)
    }

    /// Copies bytes of a granule, from a place in it on, as they are at one moment.
    pub(crate) fn load(&self, (index, at): (u8, usize), out: &mut [u8]) {
        self.lock.load(index, at, out);
    }

    /// A copy of the bytes of granule `index`.
    pub(crate) fn copy_of(&self, index: u8) -> Box<[u8]> {
        let mut copy = vec![0; self.payload_bytes(index)].into_boxed_slice();
        self.lock.load(index, 0, &mut copy);
        copy
    }

    /// The attributes of inode `ino` of a node of inodes.
    #[inline]
    pub fn attributes(&self, ino: Ino) -> AttributesRecord {
        let mut attributes = AttributesRecord::new_zeroed();
        self.load((ino.index(), 0), attributes.as_mut_bytes());
        attributes
    }

    /// The data of inode `ino` of a node of inodes, if any was stored.
    pub fn data(&self, ino: Ino) -> Option<InodeData> {
        let mut data = InodeData::new_zeroed();
        self.load((ino.data_index(), 0), data.as_mut_bytes());
        (data.ino.get() != 0).then_some(data)
    }

    /// The head of the data, as [`Node::data`].
    pub fn data_head(&self, ino: Ino) -> Option<DataHead> {
        let mut head = DataHead::new_zeroed();
        self.load((ino.data_index(), 0), head.as_mut_bytes());
        (head.ino.get() != 0).then_some(head)
    }

    /// Copies bytes of the body of the data, from its byte `at` on: zeroes as long as nothing was
    /// stored.
    pub fn load_body(&self, ino: Ino, at: usize, out: &mut [u8]) {
        self.load((ino.data_index(), INODE_BODY + at), out);
    }

    /// The inode `ino` of a node of inodes. Its granules are read one after the other: the caller
    /// keeps it from changing, or checks.
    pub fn inode(&self, ino: Ino) -> InodeRecord {
        let attributes = self.attributes(ino);
        let mut data = InodeData::new_zeroed();
        self.load((ino.data_index(), 0), data.as_mut_bytes());
        InodeRecord::of_granules(attributes, data)
    }

    /// Whether the granules of inode `ino` hold `record`.
    pub fn still_has(&self, ino: Ino, record: &InodeRecord) -> bool {
        let same = self.look(ino.index(), |now| *now == *record.attributes.as_bytes());
        let birth = record.attributes.btime;
        let born = || record.data == InodeData::of_birth(ino, birth);
        let same_data = |now: &[u8]| *now == *record.data.as_bytes() || (is_zero(now) && born());
        same && self.look(ino.data_index(), same_data)
    }

    /// Locks granule `index` for reading; nothing else of rank GRANULE may be held.
    pub fn read(&self, index: u8) -> HeldGranule<'_> {
        self.lock.read(index)
    }

    /// Locks these granules for writing; those of several nodes only in ascending nid.
    pub(crate) fn hold(&self, granules: Granules) -> HeldNode<'_> {
        self.lock.hold(granules)
    }

    /// Locks all granules for writing; those of several nodes only in ascending nid.
    pub(crate) fn hold_all(&self) -> HeldNode<'_> {
        self.lock.hold(Granules::first(self.granule_count()))
    }

    /// Takes a bucket for a change of its entries; several only in ascending (nid, index). The
    /// caller holds the directory shared.
    pub fn lock_bucket(&self, index: u8) -> MutexGuard<'_, BUCKET, ()> {
        let bucket = &self.buckets[usize::from(index)];
        for _ in 0..BUCKET_TRIES {
            // It is held for the rest of an operation: shorter than a sleep takes to end.
            if let Some(held) = bucket.try_lock() {
                return held;
            }
            (0..BUCKET_SPINS).for_each(|_| thread::spin_hint());
        }
        bucket.lock_ordered()
    }

    /// Like `lock_bucket`, if that needs no waiting.
    pub fn try_lock_bucket(&self, index: u8) -> Option<MutexGuard<'_, BUCKET, ()>> {
        self.buckets[usize::from(index)].try_lock()
    }

    /// The mark of the last writer of granule `index`.
    pub fn last_writer(&self, index: u8) -> Mark {
        self.read(index).last_writer()
    }

    /// Bytes of granule `index`.
    pub(crate) fn payload_bytes(&self, index: u8) -> usize {
        self.kind.payload(usize::from(index))
    }

    /// Number of granules.
    pub fn granule_count(&self) -> u8 {
        u8::try_from(self.kind.granules()).expect("a node has at most 16 granules")
    }

    /// Sets the dirty flag; true when it was clear. Only `NodeCache::make_dirty` calls it.
    pub(super) fn set_dirty(&self) -> bool {
        // AcqRel: a task that sees the flag set is behind the lock of the list the node goes on.
        // The granule lock held by the caller orders the payload.
        !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// The checkpoint takes the node: later changes put it on a list again.
    pub(crate) fn clear_dirty(&self) {
        // Release: pairs with the swap in `set_dirty`; comes before the copy takes granule locks.
        self.dirty.store(false, Ordering::Release);
    }

    /// Whether it waits for a checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Frees the node at `version`.
    pub(crate) fn set_freed(&self, version: u64) {
        assert!(version > 0);
        let before = self.freed.swap(version, Ordering::AcqRel);
        assert_eq!(before, 0, "node {} freed twice", self.nid.0);
    }

    /// The tombstone version of a node that has been freed.
    pub fn freed(&self) -> Option<u64> {
        let version = self.freed.load(Ordering::Acquire);
        (version != 0).then_some(version)
    }

    /// Like [`Node::freed`], but only once the freeing handle has joined the journal: `Op::finish`
    /// holds all granule locks from before the node is marked freed until after the join.
    pub(crate) fn freed_and_joined(&self) -> Option<u64> {
        let _joined = self.read(0);
        self.freed()
    }

    /// Its free inodes are known to the pools.
    pub fn set_adopted(&self) {
        // Release: pairs with the Acquire in `is_adopted`; the caller has found out which inodes
        // are free.
        self.adopted.store(true, Ordering::Release);
    }

    /// Whether the pools know its free inodes; else another task may be finding them right now.
    pub fn is_adopted(&self) -> bool {
        // Acquire: pairs with the Release in `set_adopted`.
        self.adopted.load(Ordering::Acquire)
    }

    /// Notes a use, for CLOCK.
    pub(crate) fn touch(&self) {
        // Relaxed: a hint. Load first, so that a hot node's line stays shared.
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the reference bit; true when the node may go.
    pub(crate) fn expire(&self) -> bool {
        // Relaxed: a hint.
        !self.referenced.swap(false, Ordering::Relaxed)
    }

    /// Copies all granules, each under its lock.
    pub(crate) fn copy(&self) -> NodeImage {
        let mut image = NodeImage::fresh_of(self.kind, 0, self.owner);
        for index in 0..self.granule_count() {
            let granule = self.read(index);
            let at = usize::from(index);
            image.set_version(at, granule.version());
            image.payload_mut(at).copy_from_slice(granule.payload());
        }
        image
    }
}
