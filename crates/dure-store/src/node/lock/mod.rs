//! How readers and writers of a node's granules are kept apart: nCache's lock, and what it is
//! compared with.
//!
//! **Problem.** A walk through a map or a directory reads a few bytes of each node; F2FS locks the
//! node's page exclusively for that, so that readers wait for readers.
//!
//! **Structure.** One policy per source file, chosen at mount (`node_lock=`):
//!
//! | policy | a reader takes | a writer takes |
//! |---|---|---|
//! | `mutex`: F2FS's page lock, the baseline | the node, exclusive | the node, exclusive |
//! | `rwsem`: the lock of hybridF2FS's nCache | the node, shared | the node, exclusive |
//! | `optimistic` (default) | nothing: checks a sequence count | its granules, exclusive |
//!
//! With any policy, a walk never holds the lock of a node while it asks for the next one: it has
//! copied the child's number out of the parent by then. In a map that number stays right because
//! the inode's lock keeps the map from changing (directories have rules of their own); which nodes
//! are in memory can change without it, and is checked again under the exclusive lock of the
//! cache's shard ([`super::cache::NodeCache::insert_loaded`]).
//!
//! # Invariants
//! A granule's bytes, version and last writer change together, through a [`HeldNode`]. Nodes are
//! locked in ascending order of nid.
//!
//! **On a crash** nothing remains.

mod mutex;
mod optimistic;
mod rwsem;

use std::ops::Range;

use crate::units::Mark;

/// How nodes are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeLock {
    /// One lock per node, which readers take exclusively, too (F2FS).
    Mutex,
    /// One reader/writer lock per node (nCache).
    Rwsem,
    /// Readers copy, and check a sequence count; writers lock granules.
    #[default]
    Optimistic,
}

impl NodeLock {
    /// All of them, the baseline first.
    pub const ALL: [NodeLock; 3] = [NodeLock::Mutex, NodeLock::Rwsem, NodeLock::Optimistic];

    /// As the mount option says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeLock::Mutex => "mutex",
            NodeLock::Rwsem => "rwsem",
            NodeLock::Optimistic => "optimistic",
        }
    }
}

/// What a granule has besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// +1 per operation that changes the payload.
    pub(super) version: u64,
    /// The handle that changed it last; `Mark::NONE` for one as loaded.
    pub(super) last_writer: Mark,
}

impl Head {
    pub(crate) fn version(self) -> u64 {
        self.version
    }

    pub(crate) fn last_writer(self) -> Mark {
        self.last_writer
    }

    fn set_version(&mut self, version: u64) {
        assert!(version > self.version, "versions only grow");
        self.version = version;
    }
}

/// A granule of a node that is locked as a whole.
#[derive(Debug)]
pub(crate) struct Granule {
    pub(super) head: Head,
    /// The bytes behind the version in the image.
    pub(super) payload: Box<[u8]>,
}

/// Some granules of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Granules(u16);

impl Granules {
    /// One of them.
    pub(crate) fn one(index: u8) -> Granules {
        assert!(index < 16, "a node has at most 16 granules");
        Granules(1 << index)
    }

    /// The first `count`.
    pub(crate) fn first(count: u8) -> Granules {
        assert!((1..=16).contains(&count), "a node has 1 to 16 granules");
        Granules(u16::MAX >> (16 - count))
    }

    /// These and one more.
    pub(crate) fn with(self, index: u8) -> Granules {
        Granules(self.0 | Granules::one(index).0)
    }

    /// Their numbers, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest =
                u8::try_from(left.trailing_zeros()).expect("a node has at most 16 granules");
            // Takes the lowest bit away.
            left &= left.checked_sub(1)?;
            Some(lowest)
        })
    }
}

/// The granules of a node, behind what the policy has for a lock.
#[derive(Debug)]
pub(super) enum Lock {
    Mutex(mutex::Locked),
    Rwsem(rwsem::Locked),
    Optimistic(optimistic::Locked),
}

impl Lock {
    pub(super) fn new(policy: NodeLock, granules: impl Iterator<Item = Granule>) -> Lock {
        match policy {
            NodeLock::Mutex => Lock::Mutex(mutex::Locked::new(granules.collect())),
            NodeLock::Rwsem => Lock::Rwsem(rwsem::Locked::new(granules.collect())),
            NodeLock::Optimistic => Lock::Optimistic(optimistic::Locked::new(granules)),
        }
    }

    /// Passes `look` bytes of a granule, as they are at one moment. With `optimistic` these are a
    /// copy.
    #[inline]
    pub(super) fn look<R>(
        &self,
        index: u8,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self {
            Lock::Mutex(locked) => look(&locked.lock()[usize::from(index)].payload[range]),
            Lock::Rwsem(locked) => look(&locked.read()[usize::from(index)].payload[range]),
            Lock::Optimistic(locked) => locked.look(index, range, look),
        }
    }

    /// Copies bytes of a granule, as they are at one moment.
    #[inline]
    pub(super) fn load(&self, index: u8, at: usize, out: &mut [u8]) {
        match self {
            Lock::Optimistic(locked) => locked.load(index, at, out),
            _ => self.look(index, at..at + out.len(), |bytes| {
                out.copy_from_slice(bytes)
            }),
        }
    }

    pub(super) fn read(&self, index: u8) -> HeldGranule<'_> {
        let at = usize::from(index);
        HeldGranule(match self {
            Lock::Mutex(locked) => Shared::Mutex(locked.lock(), at),
            Lock::Rwsem(locked) => Shared::Rwsem(locked.read(), at),
            Lock::Optimistic(locked) => Shared::Optimistic(locked.read(at)),
        })
    }

    pub(super) fn hold(&self, granules: Granules) -> HeldNode<'_> {
        match self {
            Lock::Mutex(locked) => HeldNode::Mutex(locked.lock_ordered()),
            Lock::Rwsem(locked) => HeldNode::Rwsem(locked.write_ordered()),
            Lock::Optimistic(locked) => HeldNode::Optimistic(locked.hold(granules)),
        }
    }
}

/// A granule that no task changes as long as this lives.
#[derive(Debug)]
pub struct HeldGranule<'n>(Shared<'n>);

/// The guard, by policy.
#[derive(Debug)]
enum Shared<'n> {
    Mutex(mutex::Guard<'n>, usize),
    Rwsem(rwsem::Shared<'n>, usize),
    Optimistic(optimistic::Shared<'n>),
}

impl HeldGranule<'_> {
    /// Its bytes.
    pub fn payload(&self) -> &[u8] {
        match &self.0 {
            Shared::Mutex(all, at) => &all[*at].payload,
            Shared::Rwsem(all, at) => &all[*at].payload,
            Shared::Optimistic(one) => one.bytes(),
        }
    }

    fn head(&self) -> &Head {
        match &self.0 {
            Shared::Mutex(all, at) => &all[*at].head,
            Shared::Rwsem(all, at) => &all[*at].head,
            Shared::Optimistic(one) => one,
        }
    }

    /// Its version: each operation that changes the bytes raises it.
    pub fn version(&self) -> u64 {
        self.head().version
    }

    /// The handle that changed it last.
    pub(crate) fn last_writer(&self) -> Mark {
        self.head().last_writer
    }
}

/// Granules of a node, locked exclusively.
#[derive(Debug)]
pub(crate) enum HeldNode<'n> {
    Mutex(mutex::Guard<'n>),
    Rwsem(rwsem::Exclusive<'n>),
    Optimistic(optimistic::Held<'n>),
}

impl HeldNode<'_> {
    fn head_mut(&mut self, index: u8) -> &mut Head {
        match self {
            HeldNode::Mutex(all) => &mut all[usize::from(index)].head,
            HeldNode::Rwsem(all) => &mut all[usize::from(index)].head,
            HeldNode::Optimistic(held) => held.get_mut(index),
        }
    }

    /// What a granule that is held has besides its bytes, and these.
    pub(crate) fn granule(&self, index: u8) -> (Head, &[u8]) {
        let whole = usize::from(index);
        match self {
            HeldNode::Mutex(all) => (all[whole].head, &all[whole].payload),
            HeldNode::Rwsem(all) => (all[whole].head, &all[whole].payload),
            HeldNode::Optimistic(held) => {
                let held = held.get(index);
                (**held, held.bytes())
            }
        }
    }

    /// The version of a granule that is held.
    pub(crate) fn version(&self, index: u8) -> u64 {
        self.granule(index).0.version
    }

    /// The handle that changed a granule that is held last.
    pub(crate) fn last_writer(&self, index: u8) -> Mark {
        self.granule(index).0.last_writer
    }

    /// The bytes of a granule that is held.
    pub(crate) fn payload(&self, index: u8) -> &[u8] {
        self.granule(index).1
    }

    /// Parts of the granule change, each from a place on, and its version with them. Readers see
    /// all of that or nothing.
    pub(crate) fn store<'b>(
        &mut self,
        index: u8,
        version: u64,
        parts: impl IntoIterator<Item = (usize, &'b [u8])>,
    ) {
        let whole = usize::from(index);
        let granule = match self {
            HeldNode::Mutex(all) => &mut all[whole],
            HeldNode::Rwsem(all) => &mut all[whole],
            HeldNode::Optimistic(held) => {
                let held = held.get_mut(index);
                held.set_version(version);
                return held.store(parts);
            }
        };
        granule.head.set_version(version);
        for (at, bytes) in parts {
            granule.payload[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The granule's node is freed at `version`.
    pub(crate) fn end(&mut self, index: u8, version: u64) {
        self.head_mut(index).set_version(version);
    }

    /// The operation `mark` is the last to have changed the granule.
    pub(crate) fn set_last_writer(&mut self, index: u8, mark: Mark) {
        self.head_mut(index).last_writer = mark;
    }
}

#[cfg(test)]
mod tests;
