//! Where pages are to go, and what the operation that names them needs.
//!
//! **Problem.** Blocks, room in the log and new nodes of the map must be there before an operation
//! begins, and only the map says how many. **Structure.** [`Plan`]: a target for each page, made
//! from its present slot, and the nodes that become dirty. **Invariants.** The caller holds the
//! write-back mutex from the plan until the operation has finished, so the map stays as it is, but
//! that the cleaner and a checkpoint may name another block for a page. **On a crash** it is gone.

use dure_store::error::Result;
use dure_store::format::slot::{DIRECT_SLOTS, Slot};
use dure_store::placement::Target;

use super::map::path::node_start;
use super::map::room::extend;
use super::map::{MapReader, NodePlaces};
use crate::file::Files;
use crate::inode::Inode;

/// Log bytes a page may take besides its slot: two notes about blocks.
const NOTE_BYTES: usize = 56;
/// Log bytes an operation is given per node.
const NODE_RECORD_BYTES: usize = 4400;

/// Where pages go.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) targets: Vec<Target>,
    pub(super) needs: Needs,
}

/// Nodes that the operation makes dirty, at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Those that exist: their images come back with the next checkpoint.
    pub(super) rewritten: u32,
    /// Those it makes.
    pub(super) new: u32,
}

impl Needs {
    pub(super) fn all(self) -> u32 {
        self.rewritten + self.new
    }
}

impl Files {
    /// Finds the slots of these pages, which ascend, and the nodes that an operation on them makes
    /// dirty. `crc` is asked for the checksum of what a page is to hold, and told its present slot.
    /// The caller holds the inode.
    pub(super) fn plan(
        &self,
        inode: &Inode,
        pages: impl ExactSizeIterator<Item = u64>,
        mut crc: impl FnMut(u64, Slot) -> Result<u32>,
    ) -> Result<Plan> {
        let mut map = MapReader::new(self, inode);
        let mut rewritten = 1;
        let mut new = NodePlaces::new();
        let mut leaf = 0;
        let notes = pages.len() * NOTE_BYTES / NODE_RECORD_BYTES;
        let mut targets = Vec::with_capacity(pages.len());
        for page in pages {
            let slot = map.slot(page)?;
            targets.push(Target::new(page, slot, crc(page, slot)?));
            if page >= DIRECT_SLOTS && node_start(page, 1) != leaf {
                leaf = node_start(page, 1);
                // A leaf that exists, or new nodes and the index (or inode) they hang on.
                rewritten += 1;
                extend(&mut new, map.missing_nodes(leaf)?);
            }
        }
        let count = |count: usize| u32::try_from(count).expect("a batch has few pages");
        let needs = Needs {
            rewritten: rewritten + count(notes),
            new: count(new.len()),
        };
        Ok(Plan { targets, needs })
    }
}
