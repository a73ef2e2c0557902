//! Nodes in memory (nCache) and the node address table.
//!
//! **Problem.** Metadata of many files shares 4 KiB nodes; two cores must meet only where they really
//! change the same inode, bucket or slots. **Structure.** A [`Node`] is an array of granules, each
//! behind its own reader/writer lock, with a version and the mark of its last writer. The
//! [`cache::NodeCache`] maps a nid to its node in shards; the [`nat::Nat`] knows where images lie.
//!
//! **Invariants.** A granule's payload, version and last writer change together, under its lock, only in
//! `Op::finish` (and in recovery). A node on a dirty list is never evicted. A clean node's writers are
//! all valid. **On a crash** everything here is rebuilt from images and logs.

pub(crate) mod cache;
pub(crate) mod nat;

use dure_journal::Hold;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::format::node::{NodeImage, NodeKind};
use crate::ranks::GRANULE;
use crate::units::{Ino, Mark, Nid};

/// The unit of locking, versions and journal records.
#[derive(Debug)]
pub(crate) struct Granule {
    /// +1 per operation that changes the payload.
    pub(crate) version: u64,
    /// The handle that changed it last; `Mark::NONE` for one as loaded.
    pub(crate) last_writer: Mark,
    /// The bytes behind the version in the image.
    pub(crate) payload: Box<[u8]>,
}

/// A node in memory.
#[derive(Debug)]
pub(crate) struct Node {
    /// Which node.
    pub(crate) nid: Nid,
    /// What it holds.
    pub(crate) kind: NodeKind,
    /// The inode it belongs to; `Ino(0)`: none.
    pub(crate) owner: Ino,
    granules: Box<[RwLock<GRANULE, Granule>]>,
    /// On a dirty list. Set under the lock of that list (and by `Op::finish` while it holds a granule
    /// lock), cleared by the checkpoint before it copies the granules.
    dirty: AtomicBool,
    /// Version of the tombstone once the node's life has ended, else 0. Written once, in `Op::finish`.
    freed: AtomicU64,
    /// Which transaction has it (`records=image`).
    pub(crate) hold: Hold,
    /// CLOCK reference bit.
    referenced: AtomicBool,
}

impl Node {
    /// A node as read from its image, or fresh.
    pub(crate) fn new(nid: Nid, image: NodeImage) -> Node {
        let granules = image.versions.iter().zip(image.payloads);
        let granules = granules.map(|(&version, payload)| {
            RwLock::new(Granule {
                version,
                last_writer: Mark::NONE,
                payload,
            })
        });
        Node {
            nid,
            kind: image.kind,
            owner: image.owner,
            granules: granules.collect(),
            dirty: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            hold: Hold::new(),
            referenced: AtomicBool::new(true),
        }
    }

    /// Locks granule `index` for reading; nothing else of rank GRANULE may be held.
    pub(crate) fn read(&self, index: u8) -> RwLockReadGuard<'_, GRANULE, Granule> {
        self.granules[usize::from(index)].read()
    }

    /// Locks granule `index` for reading; several only in ascending (nid, index).
    pub(crate) fn read_ordered(&self, index: u8) -> RwLockReadGuard<'_, GRANULE, Granule> {
        self.granules[usize::from(index)].read_ordered()
    }

    /// Locks granule `index` for writing; several only in ascending (nid, index).
    pub(crate) fn write_ordered(&self, index: u8) -> RwLockWriteGuard<'_, GRANULE, Granule> {
        self.granules[usize::from(index)].write_ordered()
    }

    /// The mark of the last writer of granule `index`.
    pub(crate) fn last_writer(&self, index: u8) -> Mark {
        self.read(index).last_writer
    }

    /// Number of granules.
    pub(crate) fn granule_count(&self) -> u8 {
        u8::try_from(self.granules.len()).expect("at most 8")
    }

    /// Puts the node among the dirty; true when it was not. Only `NodeCache::make_dirty` calls it.
    pub(super) fn set_dirty(&self) -> bool {
        // AcqRel: whoever sees the flag up is behind the lock of the list it goes on. The granule
        // lock held by the caller orders the payload.
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

    /// Ends the node's life at `version`.
    pub(crate) fn set_freed(&self, version: u64) {
        assert!(version > 0);
        let before = self.freed.swap(version, Ordering::AcqRel);
        assert_eq!(before, 0, "node {} freed twice", self.nid.0);
    }

    /// The tombstone version of a node whose life has ended.
    pub(crate) fn freed(&self) -> Option<u64> {
        let version = self.freed.load(Ordering::Acquire);
        (version != 0).then_some(version)
    }

    /// As [`Node::freed`], but only once the freeing handle has joined the journal: `Op::finish` holds
    /// all granule locks from before the end of the life is noted until after the join.
    pub(crate) fn freed_and_joined(&self) -> Option<u64> {
        let _joined = self.read(0);
        self.freed()
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

    /// Copies all granules, each under its lock, and the marks of their last writers.
    pub(crate) fn copy(&self) -> NodeImage {
        let mut image = NodeImage {
            kind: self.kind,
            owner: self.owner,
            versions: Vec::new(),
            payloads: Vec::new(),
        };
        for granule in &self.granules {
            let granule = granule.read();
            image.versions.push(granule.version);
            image.payloads.push(granule.payload.clone());
        }
        image
    }
}
