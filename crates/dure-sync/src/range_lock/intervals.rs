//! Claims on intervals, granted in order of arrival where they conflict.
//!
//! **Problem.** A new claim must find, among many, those it has to wait for. **Structure.** A treap
//! ordered by (first unit, arrival), each node knowing the greatest last unit below it, holds both
//! the granted and the waiting claims (the interval tree of hybridF2FS, generation 1). A new claim
//! counts the conflicting claims that are in the tree already and waits until that many have left;
//! a claim that leaves lowers the counts of those that came later.
//!
//! **Invariants.** `blocking` of a node is the number of conflicting nodes that arrived earlier and
//! are still in the tree; it only falls, so conflicting claims are granted FIFO and none starves.
//! Shared claims do not count shared claims. The owner protects the whole with one mutex.
//! **Crash.** Nothing is kept.

use super::Arc;
use super::range::{Claim, Units};
use super::waiter::Waiter;

/// A node in the arena of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeIndex(u32);

/// No node.
const NIL: NodeIndex = NodeIndex(u32::MAX);

#[derive(Debug)]
struct Node {
    claim: Claim,
    /// Order of arrival.
    arrival: u64,
    /// Number of earlier conflicting claims that are still in the tree.
    blocking: u32,
    /// Granted when `blocking` falls to zero.
    waiter: Option<Arc<Waiter>>,
    /// Greater than all priorities below this node.
    priority: u64,
    /// The greatest last unit of this subtree.
    last_max: u64,
    left: NodeIndex,
    right: NodeIndex,
}

impl Node {
    fn key(&self) -> (u64, u64) {
        (self.claim.units.first, self.arrival)
    }
}

/// The outcome of `enter`.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) node: NodeIndex,
    /// `None`: granted at once.
    pub(super) waiter: Option<Arc<Waiter>>,
}

/// Granted and waiting claims; see the module.
#[derive(Debug)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    unused: Vec<NodeIndex>,
    root: NodeIndex,
    arrivals: u64,
}

/// A priority that adversarial arrivals cannot unbalance much, and the same in every run.
fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            unused: Vec::new(),
            root: NIL,
            arrivals: 0,
        }
    }

    /// Number of claims, granted and waiting.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    /// Bytes of the nodes allocated so far.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Enters a claim; it is granted unless there is a waiter.
    pub(super) fn enter(&mut self, claim: Claim) -> Entered {
        let blocking = self.conflicts(claim);
        let waiter = (blocking > 0).then(Waiter::new);
        let node = self.insert(claim, blocking, waiter.clone());
        Entered { node, waiter }
    }

    /// Enters a claim if it is granted at once.
    pub(super) fn try_enter(&mut self, claim: Claim) -> Option<NodeIndex> {
        (self.conflicts(claim) == 0).then(|| self.insert(claim, 0, None))
    }

    /// Removes a granted claim; returns the waiters of claims that this lets be granted.
    #[must_use = "they sleep until told"]
    pub(super) fn leave(&mut self, index: NodeIndex) -> Vec<Arc<Waiter>> {
        let node = self.at(index);
        assert_eq!(node.blocking, 0, "only a granted claim leaves");
        let (claim, arrival, key) = (node.claim, node.arrival, node.key());
        self.root = self.removed(self.root, key);
        self.unused.push(index);
        let mut granted = Vec::new();
        self.visit(self.root, claim.units, &mut |node| {
            if node.arrival > arrival && node.claim.conflicts(claim) {
                node.blocking = node
                    .blocking
                    .checked_sub(1)
                    .expect("a later conflicting claim has counted this one");
                if node.blocking == 0 {
                    granted.extend(node.waiter.take());
                }
            }
        });
        granted
    }

    fn conflicts(&mut self, claim: Claim) -> u32 {
        let mut count = 0;
        self.visit(self.root, claim.units, &mut |node| {
            count += u32::from(node.claim.conflicts(claim));
        });
        count
    }

    fn at(&self, index: NodeIndex) -> &Node {
        &self.nodes[position(index)]
    }

    fn at_mut(&mut self, index: NodeIndex) -> &mut Node {
        &mut self.nodes[position(index)]
    }

    fn insert(&mut self, claim: Claim, blocking: u32, waiter: Option<Arc<Waiter>>) -> NodeIndex {
        self.arrivals += 1;
        let node = Node {
            claim,
            arrival: self.arrivals,
            blocking,
            waiter,
            priority: scramble(self.arrivals),
            last_max: claim.units.last,
            left: NIL,
            right: NIL,
        };
        let key = node.key();
        let index = match self.unused.pop() {
            Some(index) => {
                *self.at_mut(index) = node;
                index
            }
            None => {
                let count = u32::try_from(self.nodes.len()).expect("fewer claims than 2^32");
                self.nodes.push(node);
                NodeIndex(count)
            }
        };
        let (left, right) = self.split(self.root, key);
        let left = self.merge(left, index);
        self.root = self.merge(left, right);
        index
    }

    /// Calls `act` for each node that overlaps `units`.
    fn visit(&mut self, root: NodeIndex, units: Units, act: &mut impl FnMut(&mut Node)) {
        if root == NIL || self.at(root).last_max < units.first {
            return;
        }
        self.visit(self.at(root).left, units, act);
        let node = self.at_mut(root);
        if node.claim.units.first > units.last {
            return;
        }
        if node.claim.units.overlaps(units) {
            act(node);
        }
        self.visit(self.at(root).right, units, act);
    }

    /// The nodes below `key`, and the others.
    fn split(&mut self, root: NodeIndex, key: (u64, u64)) -> (NodeIndex, NodeIndex) {
        if root == NIL {
            return (NIL, NIL);
        }
        if self.at(root).key() < key {
            let (left, right) = self.split(self.at(root).right, key);
            self.at_mut(root).right = left;
            self.measure(root);
            (root, right)
        } else {
            let (left, right) = self.split(self.at(root).left, key);
            self.at_mut(root).left = right;
            self.measure(root);
            (left, root)
        }
    }

    /// Merges two trees; all keys of `left` are below those of `right`.
    fn merge(&mut self, left: NodeIndex, right: NodeIndex) -> NodeIndex {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.at(left).priority > self.at(right).priority {
            let below = self.merge(self.at(left).right, right);
            self.at_mut(left).right = below;
            self.measure(left);
            left
        } else {
            let below = self.merge(left, self.at(right).left);
            self.at_mut(right).left = below;
            self.measure(right);
            right
        }
    }

    /// `root` without the node of `key`.
    fn removed(&mut self, root: NodeIndex, key: (u64, u64)) -> NodeIndex {
        assert_ne!(root, NIL, "a claim that leaves is in the tree");
        let here = self.at(root).key();
        if here == key {
            return self.merge(self.at(root).left, self.at(root).right);
        }
        if key < here {
            let below = self.removed(self.at(root).left, key);
            self.at_mut(root).left = below;
        } else {
            let below = self.removed(self.at(root).right, key);
            self.at_mut(root).right = below;
        }
        self.measure(root);
        root
    }

    /// Recomputes `last_max` from the children.
    fn measure(&mut self, index: NodeIndex) {
        let node = self.at(index);
        let below = [node.left, node.right]
            .into_iter()
            .filter(|child| *child != NIL)
            .map(|child| self.at(child).last_max);
        let last_max = below.fold(node.claim.units.last, u64::max);
        self.at_mut(index).last_max = last_max;
    }
}

fn position(index: NodeIndex) -> usize {
    usize::try_from(index.0).expect("an index of 32 bits")
}
