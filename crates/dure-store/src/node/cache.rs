//! The node cache: nid to node, in shards; bounded, CLOCK eviction of clean, unused nodes.

use std::collections::BTreeMap;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CachePadded, CoreId, Mutex, PerCore, PerCoreRwLock, Weak};

use super::{Lock, Node, NodeRef, NodeRole};
use crate::backlog::{Backlog, Fill};
use crate::ranks::{DIRTY_NODES, NODE_SHARD};
use crate::units::{Nid, nth_core, to_usize};

/// Shards, at least and at most: an insert locks one exclusively while tens of cores look nodes up.
const SHARDS: (usize, usize) = (64, 16 * 1024);

/// Where there are more than the least, each has room for so many nodes.
const SHARD_NODES: usize = 16;

/// Nodes looked at by one insert into a full shard.
const SWEEP_NODES: usize = 16;

/// One shard.
#[derive(Debug, Default)]
struct Nodes {
    nodes: BTreeMap<u64, Arc<Node>>,
    /// CLOCK's hand: where the next sweep begins.
    hand: u64,
}

type Shard = PerCoreRwLock<NODE_SHARD, Nodes>;

impl Nodes {
    /// Puts a node in; returns the freed node of the same nid, if it was still there.
    fn insert(&mut self, node: &NodeRef) -> Option<Arc<Node>> {
        node.enter_cache();
        let before = self.nodes.insert(node.nid.0, Arc::clone(node.node()));
        if let Some(before) = &before {
            before.leave_cache();
        }
        before
    }
}

/// All nodes in memory, and the lists of those that wait for a checkpoint.
#[derive(Debug)]
pub struct NodeCache {
    shards: Vec<CachePadded<Shard>>,
    /// Most nodes one shard keeps before it evicts.
    shard_nodes_max: usize,
    /// Per core: nodes that became dirty there. [DIRTY_NODES]
    dirty: PerCore<Mutex<DIRTY_NODES, Vec<NodeRef>>>,
    /// How many there are on them: half of all nodes at most, about.
    backlog: Backlog,
    /// The last node that was inserted found its shard full of nodes that are dirty or in use.
    /// Relaxed: a hint. On a line of its own, since all cores read the fields above, and written
    /// only when it changes.
    overfull: CachePadded<AtomicBool>,
}

impl NodeCache {
    /// A cache that holds about `nodes_max` nodes, with dirty lists for `cores` cores.
    pub(crate) fn new(nodes_max: usize, cores: usize) -> NodeCache {
        // A power of two, for `shard`.
        let shards = 1 << (nodes_max / SHARD_NODES).clamp(SHARDS.0, SHARDS.1).ilog2();
        let shard_nodes_max = (nodes_max / shards).max(8);
        NodeCache {
            shards: (0..shards)
                .map(|_| CachePadded::new(PerCoreRwLock::new(Nodes::default())))
                .collect(),
            shard_nodes_max,
            dirty: PerCore::new(cores, |_| Mutex::new(Vec::new())),
            backlog: Backlog::new(cores, shards * shard_nodes_max / 2),
            overfull: CachePadded::new(AtomicBool::new(false)),
        }
    }

    /// Bound on nodes in memory.
    pub fn nodes_max(&self) -> usize {
        self.shard_nodes_max * self.shards.len()
    }

    fn shard(&self, nid: Nid) -> &Shard {
        let spread = nid.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[to_usize(spread) & (self.shards.len() - 1)]
    }

    /// The node, if it is in memory.
    pub fn get(&self, nid: Nid) -> Option<NodeRef> {
        let shard = self.shard(nid).read();
        let node = shard.nodes.get(&nid.0)?;
        node.touch();
        Some(NodeRef::of(node))
    }

    /// Copies bytes of granule `index` of a node in this role, as they are at one moment; false: it
    /// is not in memory. With `node_lock=optimistic` this writes nothing that another reader sees:
    /// the shared lock of the shard keeps the node in memory, so no reference is counted.
    #[inline]
    pub(crate) fn load(
        &self,
        nid: Nid,
        role: NodeRole,
        (index, at): (u8, usize),
        out: &mut [u8],
    ) -> bool {
        let shard = self.shard(nid).read();
        let node = shard.nodes.get(&nid.0).filter(|node| node.role() == role);
        let Some(node) = node else {
            return false;
        };
        node.touch();
        if let Lock::Optimistic(granules) = &node.lock {
            granules.load(index, at, out);
            return true;
        }
        // Not under the shard's lock: a task that waits for the node must not keep others from the
        // shard.
        let node = NodeRef::of(node);
        drop(shard);
        node.lock.load(index, at, out);
        true
    }

    /// Puts a node loaded from the medium in, unless another task has already or `still_right` says
    /// that its image has moved meanwhile. Returns the node that is in the cache afterwards, `None`
    /// to try again.
    pub(crate) fn insert_loaded(
        &self,
        node: NodeRef,
        still_right: impl FnOnce() -> bool,
    ) -> Option<NodeRef> {
        let mut shard = self.shard(node.nid).write();
        if let Some(there) = shard.nodes.get(&node.nid.0) {
            return Some(NodeRef::of(there));
        }
        // The NAT entry is read again under the shard lock: between the read of the image and now
        // the node may have been loaded, changed, checkpointed elsewhere and evicted by others.
        if !still_right() {
            return None;
        }
        self.make_room(&mut shard);
        shard.insert(&node);
        Some(node)
    }

    /// Puts a new node in, in the place of a freed one of its nid.
    pub(crate) fn insert_new(&self, node: &NodeRef) {
        let mut shard = self.shard(node.nid).write();
        self.make_room(&mut shard);
        if let Some(before) = shard.insert(node) {
            assert!(
                before.freed().is_some(),
                "a nid is used again only once its node is freed"
            );
        }
    }

    /// Evicts nodes of a full shard before an insert, and notes whether that was enough.
    fn make_room(&self, shard: &mut Nodes) {
        evict(shard, self.shard_nodes_max);
        let overfull = shard.nodes.len() >= self.shard_nodes_max;
        if self.is_overfull() != overfull {
            self.overfull.store(overfull, Ordering::Relaxed);
        }
    }

    /// Whether nodes that are dirty or in use exceed the cache's bound: callers that hold
    /// references for long should drop some.
    #[inline]
    pub fn is_overfull(&self) -> bool {
        self.overfull.load(Ordering::Relaxed)
    }

    /// Drops a freed node, now that the NAT has its tombstone. Until then it stays: a task that
    /// asks for it, such as a cleaner that follows a stale summary, would load the image of the
    /// node that was freed.
    pub(crate) fn remove_freed(&self, node: &NodeRef) {
        assert!(node.freed().is_some());
        let mut shard = self.shard(node.nid).write();
        let there = shard.nodes.get(&node.nid.0);
        if there.is_some_and(|there| node.is(there)) {
            shard.nodes.remove(&node.nid.0);
            node.leave_cache();
        }
    }

    /// Puts a node on the core's dirty list unless it is on one; true when it was not.
    ///
    /// The flag is set under the lock of the list. A task that sees it set may join a handle
    /// without more ado: a checkpoint whose cut contains that handle locks the list after its cut,
    /// so it waits for the push. With the flag first and the list later the node could be on no
    /// list at that moment, and the tail would pass a change that no image holds
    /// (docs/testing/races.md).
    pub fn make_dirty(&self, core: CoreId, node: &NodeRef) -> bool {
        if node.is_dirty() {
            return false;
        }
        let mut list = self.dirty.get(core).lock();
        if !node.set_dirty() {
            return false;
        }
        list.push(node.clone());
        self.backlog.add(core, 1);
        true
    }

    /// Takes the lists of dirty nodes of all cores. The caller clears the flag of each node, then
    /// copies it. A task that still sees the flag holds a lock of the node from before that until
    /// it has stored its change, so the copy has the change.
    pub(crate) fn take_dirty(&self) -> Vec<Vec<NodeRef>> {
        let take = |core| {
            let core = nth_core(core, self.dirty.len());
            let mut list = self.dirty.get(core).lock();
            self.backlog.end(core);
            std::mem::take(&mut *list)
        };
        (0..self.dirty.len()).map(take).collect()
    }

    /// About how many nodes wait for a checkpoint.
    pub fn dirty_count(&self) -> usize {
        self.backlog.sum()
    }

    /// Whether so many nodes are dirty that a checkpoint should make room, soon or before others
    /// become so.
    #[inline]
    pub(crate) fn crowding(&self, core: CoreId) -> Fill {
        self.backlog.fill(core)
    }

    /// Nodes in memory, for tests. The weak references do not keep them there.
    #[doc(hidden)]
    pub fn in_memory(&self) -> Vec<Weak<Node>> {
        let shards = self.shards.iter().map(|shard| shard.read());
        let nodes = shards.map(|shard| shard.nodes.values().map(Arc::downgrade).collect());
        nodes.collect::<Vec<Vec<_>>>().concat()
    }
}

impl Drop for NodeCache {
    fn drop(&mut self) {
        // An open slot holds a reference to its own node, which would never be freed.
        for shard in &self.shards {
            let nodes = &shard.write().nodes;
            nodes.values().for_each(|node| node.leave_cache());
        }
    }
}

/// Makes room for one more: drops nodes that only the cache references, that are clean and were not
/// used since the last sweep.
fn evict(shard: &mut Nodes, nodes_max: usize) {
    if shard.nodes.len() < nodes_max {
        return;
    }
    let free = |node: &Arc<Node>| Arc::strong_count(node) == 1 && !node.is_dirty();
    // At most a few nodes are looked at, from where the last sweep ended: an insert stays cheap
    // also when everything is dirty or in use.
    let from = shard.hand;
    let behind = shard.nodes.range(from..);
    let all_round = behind.chain(shard.nodes.range(..from)).take(SWEEP_NODES);
    let mut victims = Vec::new();
    for (&nid, node) in all_round {
        shard.hand = nid + 1;
        node.close_slots();
        if free(node) && node.expire() {
            victims.push(nid);
        }
    }
    for nid in victims {
        shard.nodes.remove(&nid);
    }
}

#[cfg(all(test, dure_backend = "sim"))]
mod tests {
    use dure_sync::sim::{Config, seeds, try_run};
    use dure_sync::thread;

    use super::*;
    use crate::format::node::{NodeImage, NodeKind};
    use crate::node::NodeLock;

    /// Plays `body` on so many cores, in many schedules.
    fn each_schedule(cores: usize, body: impl Fn() + Copy + 'static) {
        for seed in seeds(300) {
            if let Err(failure) = try_run(Config::random(cores, seed), body) {
                panic!("{failure}");
            }
        }
    }

    fn fresh(nid: u64) -> NodeRef {
        let image = NodeImage::fresh(NodeKind::Leaf, 1);
        NodeRef::new(Node::new(Nid(nid), image, NodeLock::default()))
    }

    /// Cores use a node that they all reference, while others push nodes out: a task with a
    /// reference finds the node in the cache, unused it is evicted, and when the cache is dropped
    /// nothing of it is left.
    #[test]
    fn sim_nodes_that_are_lent_stay_and_go() {
        each_schedule(3, || {
            let cache = NodeCache::new(64, 3);
            let node = fresh(9);
            let weak: Weak<Node> = Arc::downgrade(node.node());
            cache.insert_new(&node);
            drop(node);
            thread::scope(|scope| {
                for core in 0..2 {
                    let cache = &cache;
                    scope.spawn_on(CoreId::new(core), move || {
                        for _ in 0..6 {
                            let Some(node) = cache.get(Nid(9)) else {
                                return;
                            };
                            let again = node.clone();
                            drop(node);
                            let there = cache.get(Nid(9)).expect("it is in use");
                            assert!(there.is(&again), "one node per nid");
                        }
                    });
                }
                scope.spawn_on(CoreId::new(2), || push_out(&cache, Nid(9)));
            });
            push_out(&cache, Nid(9));
            push_out(&cache, Nid(9));
            assert!(weak.upgrade().is_none(), "nobody uses it");
        });
    }

    /// Puts so many nodes into the shard of `nid` that all unused ones are evicted.
    fn push_out(cache: &NodeCache, nid: Nid) {
        let shard = cache.shard(nid);
        let others = (10..)
            .map(Nid)
            .filter(|&n| std::ptr::eq(cache.shard(n), shard));
        for nid in others.take(40) {
            if cache.get(nid).is_none() {
                cache.insert_new(&fresh(nid.0));
            }
        }
    }

    /// A node that is freed while cores use it counts no more references per core: dropping the
    /// last one frees its memory.
    #[test]
    fn sim_nodes_that_are_freed_lend_no_more() {
        each_schedule(3, || {
            let cache = NodeCache::new(64, 3);
            let node = fresh(9);
            let weak: Weak<Node> = Arc::downgrade(node.node());
            cache.insert_new(&node);
            thread::scope(|scope| {
                for core in 0..2 {
                    let (cache, own) = (&cache, node.clone());
                    scope.spawn_on(CoreId::new(core), move || {
                        for _ in 0..4 {
                            drop((own.clone(), cache.get(Nid(9))));
                        }
                    });
                }
                scope.spawn_on(CoreId::new(2), || {
                    node.set_freed(2);
                    cache.remove_freed(&node);
                });
            });
            assert!(cache.get(Nid(9)).is_none());
            drop(node);
            assert!(weak.upgrade().is_none(), "it keeps itself");
        });
    }

    /// Two cores change different granules of a node. The one that finds it dirty joins; a
    /// checkpoint behind that join must find the node on a list, or its tail passes a change that
    /// no image holds.
    #[test]
    fn sim_race_a_dirty_node_is_on_a_list() {
        each_schedule(2, || {
            let cache = NodeCache::new(64, 2);
            let node = fresh(9);
            thread::scope(|scope| {
                scope.spawn_on(CoreId::new(0), || cache.make_dirty(CoreId::new(0), &node));
                scope.spawn_on(CoreId::new(1), || {
                    if !cache.make_dirty(CoreId::new(1), &node) {
                        assert_eq!(
                            cache.take_dirty().concat().len(),
                            1,
                            "the node is on no list"
                        );
                    }
                });
            });
        });
    }
}
