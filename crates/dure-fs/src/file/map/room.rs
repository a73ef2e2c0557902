//! Blocks for the map nodes that write-back is going to make.
//!
//! **Problem.** A page in a hole needs a block when it is written back, and so does every node of
//! the map that does not exist yet on the way to its slot. Both must be there when the write is
//! accepted: an fsync that finds no room cannot undo the write.
//!
//! **Structure.** A task that makes a page dirty asks which nodes on its path neither exist nor are
//! reserved, and reserves a block for each ([`NodeRoom`]). The operation that makes the nodes takes
//! the blocks over.
//!
//! # Invariants
//! `held` covers every node that a dirty page of the file lacks. Nodes on the left edge are
//! reserved with each page that makes the tree higher, since pages before it may be written back
//! first. Owner: [inode.state], or [`crate::file::Growth`].
//!
//! **On a crash** it is gone, as the dirty pages are.

use std::collections::BTreeSet;

use dure_store::format::slot::{DIRECT_SLOTS, LEAF_SLOTS};
use smallvec::SmallVec;

use super::path::{height_for, node_start};

/// A node of a map: its height, and the first page below it.
pub(crate) type NodePlace = (u32, u64);

/// A few of them, each once.
pub(crate) type NodePlaces = SmallVec<[NodePlace; 4]>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeRoom {
    nodes: BTreeSet<NodePlace>,
    /// Reserved blocks, at least as many as `nodes` that do not exist yet.
    held: u32,
    /// First page of a leaf that exists; 0: none is known.
    exists: u64,
}

impl NodeRoom {
    /// Whether the nodes down to the leaf that starts here exist, or are reserved.
    #[inline]
    pub(crate) fn covers(&self, leaf: u64) -> bool {
        self.exists == leaf || (self.held > 0 && self.nodes.contains(&(1, leaf)))
    }

    /// A leaf starts here.
    pub(crate) fn note_leaf(&mut self, leaf: u64) {
        self.exists = leaf;
    }

    /// How many of these are not reserved.
    pub(crate) fn lacks(&self, places: &NodePlaces) -> u32 {
        let new = places.iter().filter(|place| !self.nodes.contains(place));
        u32::try_from(new.count()).expect("a step needs few nodes")
    }

    /// Takes over `blocks` reserved blocks for these.
    pub(crate) fn add(&mut self, places: &NodePlaces, blocks: u32) {
        self.nodes.extend(places);
        self.held += blocks;
    }

    /// Takes over what was reserved elsewhere for the same file.
    pub(crate) fn absorb(&mut self, other: NodeRoom) {
        self.nodes.extend(other.nodes);
        self.held += other.held;
    }

    /// Hands up to `most` reserved blocks over to an operation that makes nodes.
    pub(crate) fn take(&mut self, most: u32) -> u32 {
        let taken = self.held.min(most);
        self.held -= taken;
        taken
    }

    /// Takes them back: the operation did not happen.
    pub(crate) fn give(&mut self, blocks: u32) {
        self.held += blocks;
    }

    /// Nodes may have been freed: what is reserved stays, what is known goes.
    pub(crate) fn forget(&mut self) {
        self.nodes.clear();
        self.exists = 0;
    }

    /// No page is dirty: returns the blocks that are held for nothing.
    pub(crate) fn clear(&mut self) -> u32 {
        self.nodes.clear();
        std::mem::take(&mut self.held)
    }
}

/// First pages of the leaves of a range of pages.
pub(crate) fn leaves(pages: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    let first = pages.start.max(DIRECT_SLOTS);
    let start = (first < pages.end).then(|| node_start(first, 1));
    std::iter::successors(start, |leaf| Some(leaf + LEAF_SLOTS))
        .take_while(move |leaf| *leaf < pages.end)
}

/// Adds places that are not there yet.
pub(crate) fn extend(places: &mut NodePlaces, more: impl IntoIterator<Item = NodePlace>) {
    for place in more {
        if !places.contains(&place) {
            places.push(place);
        }
    }
}

/// Every node between the top of a tree of `height` and the leaf that starts at `leaf`, and those
/// that make the tree as high as it must be.
pub(crate) fn whole_path(height: u32, leaf: u64) -> NodePlaces {
    let needed = height_for(leaf);
    let mut places = NodePlaces::new();
    extend(
        &mut places,
        (1..=needed).map(|level| (level, node_start(leaf, level))),
    );
    // With no tree yet, a page before this one may make a low one first.
    let grown = height.max(1) + 1..=needed;
    extend(&mut places, grown.map(|level| (level, DIRECT_SLOTS)));
    places
}
