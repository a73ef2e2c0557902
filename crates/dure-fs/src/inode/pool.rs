//! Free inode numbers, per partition.
//!
//! # Invariants
//! A pool holds free numbers of *adopted* nodes only, each at most once. A node is adopted before
//! the first of its inodes is freed or handed out in this mount, at a moment when the granules with
//! mode 0 are exactly its free inodes; from then on numbers come and go one by one.
//!
//! * A freed number belongs to the pool of the partition that its node's NAT entry is in. A core of
//!   another partition that frees it collects some before it moves them there (*away*), so that it
//!   shares no line with cores that create inodes there.
//! * All numbers of a new node go to the core that made it, wherever its node id came from: they
//!   were in no pool before.
//! * A core whose partition has no numbers and is running out of node ids takes numbers of other
//!   partitions, so that one core can use all inodes of the volume.

use std::collections::BTreeMap;
use std::mem;

use dure_store::alloc::AllocPolicy;
use dure_store::error::Result;
use dure_store::format::inode::InodeLife;
use dure_store::format::nat;
use dure_store::format::node::NodeKind;
use dure_store::node::{Node, NodeRef};
use dure_store::op::Op;
use dure_store::units::{Ino, Nid, is_zero, to_u64, to_usize};
use dure_sync::{CoreId, Mutex, PerCore};
use zerocopy::FromBytes;

use crate::inode::Inodes;
use crate::ranks::INODE_POOL;

#[derive(Debug, Default)]
struct Pool {
    /// A stack: the granule of the number on top was used last and is in the cache.
    free: Vec<Ino>,
    /// Freed here, but numbers of other partitions.
    away: Vec<Ino>,
    adopted: NidSet,
    /// The node of the number that was placed last: most that follow are in it.
    last: Option<NodeRef>,
}

/// A set of nids: one bit each, by the NAT pair that they are in. A million inodes are in 125
/// thousand nodes.
#[derive(Debug, Default)]
struct NidSet(BTreeMap<u64, [u64; PAIR_WORDS]>);

/// Words with a bit for each nid of a pair.
const PAIR_WORDS: usize = to_usize(nat::ENTRIES.div_ceil(64));

impl NidSet {
    /// Adds the nid. Returns whether it was not in the set.
    fn insert(&mut self, nid: Nid) -> bool {
        let (pair, within) = nat::place_of(nid);
        let word = &mut self.0.entry(pair).or_default()[within / 64];
        let bit = 1 << (within % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn remove(&mut self, nid: Nid) {
        let (pair, within) = nat::place_of(nid);
        if let Some(words) = self.0.get_mut(&pair) {
            words[within / 64] &= !(1 << (within % 64));
        }
    }
}

/// Numbers that a core takes from another partition in one go.
const STOLEN: usize = 64;

/// Numbers of other partitions that a core collects before it moves them.
const AWAY_MAX: usize = 64;

/// While other partitions have free inodes, a partition makes no inode nodes from its last node
/// ids: so many stay.
const SPARE_NIDS: usize = 64;

/// The free inode numbers of a volume.
#[derive(Debug)]
pub(crate) struct InodePools {
    pools: PerCore<Mutex<INODE_POOL, Pool>>,
    alloc: AllocPolicy,
}

/// A number taken from a pool; goes back when dropped unless it is used.
#[derive(Debug)]
pub(crate) struct FreeIno<'v> {
    pools: &'v InodePools,
    /// The partition it was taken for.
    core: CoreId,
    /// `None` once used.
    ino: Option<Ino>,
    /// Its node, if it is known.
    node: Option<NodeRef>,
    /// Whether the operation makes the node.
    born: bool,
}

impl InodePools {
    /// Empty pools for `partitions` partitions.
    pub(crate) fn new(partitions: usize, alloc: AllocPolicy) -> InodePools {
        InodePools {
            alloc,
            pools: PerCore::new(partitions, |_| Mutex::new(Pool::default())),
        }
    }

    /// The partition whose pool the numbers of a node belong to.
    fn home(&self, nid: Nid) -> CoreId {
        let (pair, _) = nat::place_of(nid);
        let partition = pair % to_u64(self.pools.len());
        let own =
            CoreId::new(u16::try_from(partition).expect("a inodes has at most 1000 partitions"));
        self.alloc.partition(own)
    }

    fn pool(&self, nid: Nid) -> &Mutex<INODE_POOL, Pool> {
        self.pools.get(self.home(nid))
    }

    fn pop(&self, core: CoreId) -> Option<FreeIno<'_>> {
        let mut pool = self.pools.get(core).lock();
        let ino = pool.free.pop()?;
        let node = pool.last.as_ref().filter(|last| last.nid == ino.nid());
        Some(FreeIno {
            pools: self,
            core,
            ino: Some(ino),
            node: node.cloned(),
            born: false,
        })
    }

    /// One of a node that the operation makes.
    fn of_new_node(&self, core: CoreId) -> FreeIno<'_> {
        FreeIno {
            pools: self,
            core,
            ino: None,
            node: None,
            born: false,
        }
    }

    /// Moves numbers to the pool of `core`: free ones of partition `from`, or if there are none,
    /// those in its `away` list.
    fn steal(&self, core: CoreId, from: CoreId) {
        let stolen = {
            let mut pool = self.pools.get(from).lock();
            let free = pool.free.len();
            if from == core || free == 0 {
                mem::take(&mut pool.away)
            } else {
                pool.free.split_off(free.saturating_sub(STOLEN))
            }
        };
        self.pools.get(core).lock().free.extend(stolen);
    }

    /// Makes the free inodes of a node available. Called before one of its inodes is freed.
    pub(crate) fn adopt(&self, node: &Node) {
        if node.is_adopted() {
            return;
        }
        let mut pool = self.pool(node.nid).lock();
        if pool.adopted.insert(node.nid) {
            for ino in Ino::all_of(node.nid).rev() {
                let is_free = node.look_at(ino.index(), InodeLife::BYTES, |bytes| {
                    InodeLife::ref_from_bytes(bytes)
                        .expect("the range has the bytes of an InodeLife")
                        .is_free()
                });
                // Of a damaged image: a new inode with this number would own the old data.
                let is_free = is_free && node.look(ino.data_index(), is_zero);
                if is_free && ino.0 != 0 {
                    pool.free.push(ino);
                }
            }
        }
        node.set_adopted();
    }

    /// An inode of this node was freed by an operation of `core` that has finished.
    pub(crate) fn give(&self, core: CoreId, node: &Node, ino: Ino) {
        assert!(
            ino.nid() == node.nid && node.is_adopted(),
            "adopted before the inode was freed"
        );
        let home = self.home(node.nid);
        let mut pool = self.pools.get(core).lock();
        if home == core {
            pool.free.push(ino);
            return;
        }
        pool.away.push(ino);
        if pool.away.len() >= AWAY_MAX {
            let mut away = mem::take(&mut pool.away);
            drop(pool);
            away.sort_by_key(|ino| self.home(ino.nid()));
            for numbers in away.chunk_by(|one, next| self.home(one.nid()) == self.home(next.nid()))
            {
                self.pool(numbers[0].nid()).lock().free.extend(numbers);
            }
        }
    }
}

impl FreeIno<'_> {
    /// The number and the node that holds it; in a new node made by the operation if the pools were
    /// empty.
    pub(crate) fn place(&mut self, op: &mut Op<'_>, inodes: &Inodes) -> Result<(Ino, NodeRef)> {
        if let Some(ino) = self.ino {
            let node = match self.node.take() {
                Some(node) => node,
                None => {
                    let node = inodes.store.node(ino.nid(), NodeKind::Inode.of_none())?;
                    let last = Some(node.clone());
                    // The one before is dropped without the lock.
                    drop(mem::replace(
                        &mut self.pools.pools.get(self.core).lock().last,
                        last,
                    ));
                    node
                }
            };
            return Ok((ino, node));
        }
        let node = op.new_node(NodeKind::Inode)?;
        let adopted = self.pools.pool(node.nid).lock().adopted.insert(node.nid);
        assert!(adopted, "node {} is adopted twice", node.nid);
        node.set_adopted();
        self.born = true;
        self.ino = Some(Ino::new(node.nid, 0));
        Ok((Ino::new(node.nid, 0), node))
    }

    /// The operation has finished: the number is in use.
    pub(crate) fn used(mut self) {
        let ino = self.ino.take().expect("the number has been placed");
        if self.born {
            let mut pool = self.pools.pools.get(self.core).lock();
            let others = Ino::all_of(ino.nid()).rev().filter(|other| *other != ino);
            pool.free.extend(others);
        }
    }
}

impl Drop for FreeIno<'_> {
    fn drop(&mut self) {
        let Some(ino) = self.ino else {
            return;
        };
        if self.born {
            self.pools.pool(ino.nid()).lock().adopted.remove(ino.nid());
        } else {
            self.pools.pools.get(self.core).lock().free.push(ino);
        }
    }
}

impl Inodes {
    /// A free inode number for the current core's partition: one freed before, or one of a node
    /// that had free inodes at the mount, or (placed by the operation) one of a new node. Where the
    /// partition is running out of node ids, which directories and maps need too, a number of
    /// another partition is preferred to a new node. The caller holds no inode lock.
    pub(crate) fn free_ino(&self) -> Result<FreeIno<'_>> {
        let core = self.store.alloc_partition();
        if let Some(free) = self.known_free_ino(core, core)? {
            return Ok(free);
        }
        if !self.store.nat.has_free(core, SPARE_NIDS)? {
            let partitions = self.pools.pools.len();
            // The own partition once more: its nids have been searched, and some of them may have
            // been nodes with free inodes.
            for step in 0..partitions {
                let number = (core.index() + step) % partitions;
                let from = CoreId::new(
                    u16::try_from(number).expect("a inodes has at most 1000 partitions"),
                );
                if from == core {
                    self.pools.steal(core, core);
                }
                if let Some(free) = self.known_free_ino(core, from)? {
                    return Ok(free);
                }
                while self.store.nat.search_inode_nodes(from)? {
                    if let Some(free) = self.known_free_ino(core, from)? {
                        return Ok(free);
                    }
                }
            }
        }
        Ok(self.pools.of_new_node(core))
    }

    /// A free inode number for `core`, from nodes of the partition `from` that are known to have
    /// some.
    fn known_free_ino(&self, core: CoreId, from: CoreId) -> Result<Option<FreeIno<'_>>> {
        loop {
            if from != core {
                self.pools.steal(core, from);
            }
            if let Some(free) = self.pools.pop(core) {
                return Ok(Some(free));
            }
            let Some(nid) = self.store.nat.pop_inode_node(from) else {
                return Ok(None);
            };
            let node = self.store.node(nid, NodeKind::Inode.of_none())?;
            self.pools.adopt(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_nids_knows_each_of_them() {
        let mut set = NidSet::default();
        let nids = [0, 63, 64, 251, 252, 1 << 40].map(Nid);
        assert!(nids.iter().all(|nid| set.insert(*nid)));
        assert!(!nids.iter().any(|nid| set.insert(*nid)), "they are in");
        set.remove(Nid(64));
        assert!(set.insert(Nid(64)) && !set.insert(Nid(63)));
        set.remove(Nid(1 << 50));
    }
}
