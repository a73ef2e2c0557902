//! Blocks that several slots name: what the lists of the volume say, and what the passes find.
//!
//! **Structure.** Owners are collected of blocks that a list has, and of those that a first run of the
//! passes has found to have several. **Invariants.** Memory is bounded by the lists,
//! which lie on the volume, and by the slots of the volume.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::units::{BlockNo, SlotRef};

use crate::owner::BlockUse;

/// The slots of a shared block.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    /// As the lists have them.
    pub(super) listed: BTreeSet<SlotRef>,
    /// As the passes found them, with their checksums.
    pub(super) found: Vec<(SlotRef, u32)>,
    /// The second with the content of the first.
    pub(super) second: Option<BlockUse>,
    /// Not all owners are slots with the same content: this is no clone.
    pub(super) mixed: bool,
    /// The checksum of its content, which is not that of the first.
    pub(super) bad: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SharedBlocks {
    pub(super) blocks: BTreeMap<BlockNo, Sharers>,
    /// Blocks with several slots of which no list says so.
    pub(super) unlisted: BTreeSet<BlockNo>,
    /// Where the lists lie.
    pub(super) own: Vec<BlockNo>,
}

impl SharedBlocks {
    /// The passes run again, and collect the owners of unlisted blocks too.
    pub(super) fn run_again(&mut self) {
        for sharers in self.blocks.values_mut() {
            sharers.found.clear();
            (sharers.second, sharers.mixed, sharers.bad) = (None, false, None);
        }
        for block in std::mem::take(&mut self.unlisted) {
            self.blocks.entry(block).or_default();
        }
    }
}
