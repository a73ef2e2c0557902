//! References to a node.
//!
//! **Problem.** Two cores that use two granules of one node, two inodes or two buckets, both write
//! its reference count. **Structure.** A [`NodeRef`] is a counted reference, or, once cores contend
//! for the node, a per-core reference: the core's slot has one counted reference and counts those
//! of its core (`dure_sync::PerCoreRefs`). **Invariants.** A node counts per core only while it is in
//! the cache. A per-core reference or an open slot has a counted reference: a node that has none
//! but the cache's is unused. **On a crash** nothing remains.

use std::ops::Deref;

use dure_sync::atomic::Ordering;
use dure_sync::{Arc, Counted, PerCoreCounted, PerCoreRef, PerCoreRefs};

use super::Node;

/// A reference to a node, which keeps it in memory.
#[derive(Debug)]
pub struct NodeRef(Kept);

/// How it is counted.
#[derive(Debug)]
enum Kept {
    Counted(Arc<Node>),
    PerCore(PerCoreRef<Node>),
}

impl PerCoreCounted for Node {
    fn per_core(&self) -> &PerCoreRefs<Node> {
        &self.per_core
    }

    /// Nothing to do: a task that needs to know whether references are left asks the [`Arc`] for
    /// their number.
    fn ended(_: &Arc<Node>) {}
}

impl NodeRef {
    /// The first one.
    pub(crate) fn new(node: Node) -> NodeRef {
        NodeRef(Kept::Counted(Arc::new(node)))
    }

    /// One more. The caller has one, or holds the lock of the cache's shard, which has one.
    #[inline]
    pub(super) fn of(node: &Arc<Node>) -> NodeRef {
        let slots = &node.per_core;
        let per_core = slots.borrow().or_else(|| {
            // Relaxed: `PerCoreRefs::open_while` orders it.
            let may_open = || node.cached.load(Ordering::Relaxed);
            let open = || slots.open_while(may_open, || Counted::new(Arc::clone(node)));
            slots.is_wanted().then(open).flatten()
        });
        NodeRef(match per_core {
            Some(reference) => Kept::PerCore(reference),
            None => Kept::Counted(Arc::clone(node)),
        })
    }

    /// What the references count.
    #[inline]
    pub(super) fn node(&self) -> &Arc<Node> {
        match &self.0 {
            Kept::Counted(node) => node,
            Kept::PerCore(node) => node,
        }
    }

    /// Whether it is a reference to this node.
    pub(crate) fn is(&self, node: &Node) -> bool {
        std::ptr::eq(Arc::as_ptr(self.node()), node)
    }
}

impl Deref for NodeRef {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        self.node()
    }
}

impl Clone for NodeRef {
    #[inline]
    fn clone(&self) -> NodeRef {
        NodeRef::of(self.node())
    }
}

impl Node {
    /// It is in the cache. The caller holds its shard exclusively.
    pub(super) fn enter_cache(&self) {
        // Relaxed: a task that sees it late counts one more reference in the node.
        self.cached.store(true, Ordering::Relaxed);
    }

    /// It is not in the cache any more: no slot stays open, or the node would keep itself in memory
    /// for ever.
    pub(super) fn leave_cache(&self) {
        // Relaxed: `PerCoreRefs::shut` orders it.
        self.cached.store(false, Ordering::Relaxed);
        self.per_core.shut(drop);
    }

    /// Closes the slots of a node that has not been used for a while, so that its count tells
    /// whether it is in use. The caller holds its shard exclusively.
    pub(super) fn close_slots(&self) {
        if self.per_core.has_open_slots() && self.expire() {
            self.per_core.close(drop);
        }
    }
}
