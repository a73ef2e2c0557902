//! References to a node.
//!
//! **Problem.** Two cores that use two granules of one node, two inodes or two buckets, both write
//! its count of references. **Structure.** A [`NodeRef`] is a counted reference, or, from the
//! moment cores have met at the node, a loan of the one that the core's slot has
//! (`dure_sync::Lender`). **Invariants.** A node lends only while it is in the cache. A loan or an
//! open slot has a counted reference: a node that has none but the cache's is used by nobody. **On
//! a crash** nothing remains.

use std::ops::Deref;

use dure_sync::atomic::Ordering;
use dure_sync::{Arc, Counted, Lend, Lender, Loan};

use super::Node;

/// A reference to a node, which keeps it in memory.
#[derive(Debug)]
pub struct NodeRef(Kept);

/// By what.
#[derive(Debug)]
enum Kept {
    Counted(Arc<Node>),
    Lent(Loan<Node>),
}

impl Lend for Node {
    fn lender(&self) -> &Lender<Node> {
        &self.lender
    }

    /// Who wants to know whether references are left asks the [`Arc`] for their number.
    fn ended(_: &Arc<Node>) {}
}

impl NodeRef {
    /// The first one.
    pub(crate) fn new(node: Node) -> NodeRef {
        NodeRef(Kept::Counted(Arc::new(node)))
    }

    /// One more. The caller has one, or holds the shard of the cache that has it.
    #[inline]
    pub(super) fn of(node: &Arc<Node>) -> NodeRef {
        let lender = &node.lender;
        let lent = lender.borrow().or_else(|| {
            // Relaxed: `Lender::open_while` orders it.
            let lends = || node.cached.load(Ordering::Relaxed);
            let open = || lender.open_while(lends, || Counted::new(Arc::clone(node)));
            lender.is_wanted().then(open).flatten()
        });
        NodeRef(match lent {
            Some(loan) => Kept::Lent(loan),
            None => Kept::Counted(Arc::clone(node)),
        })
    }

    /// What the references count.
    #[inline]
    pub(super) fn node(&self) -> &Arc<Node> {
        match &self.0 {
            Kept::Counted(node) => node,
            Kept::Lent(node) => node,
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
    /// It is in the cache. By who has its shard alone.
    pub(super) fn enter_cache(&self) {
        // Relaxed: who sees it late counts one more reference.
        self.cached.store(true, Ordering::Relaxed);
    }

    /// It is not in the cache any more: no slot stays open, or the node would keep itself for ever.
    pub(super) fn leave_cache(&self) {
        // Relaxed: `Lender::shut` orders it.
        self.cached.store(false, Ordering::Relaxed);
        self.lender.shut(drop);
    }

    /// Closes the slots of a node that has not been used for a while, so that its count tells
    /// whether somebody has it. The caller has its shard alone.
    pub(super) fn stop_lending(&self) {
        if self.lender.is_lending() && self.expire() {
            self.lender.close(drop);
        }
    }
}
