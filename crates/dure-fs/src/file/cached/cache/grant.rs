//! Memory for pages, and blocks for those that become dirty, taken before any lock is.
//!
//! **Problem.** A write that finds no memory or no block half way would have to undo what it did, with
//! locks held that eviction and write-back need. **Structure.** A [`Grant`], taken at the begin of a
//! step for all it may [`Want`]; a caller without enough evicts and writes back on the spot.
//! **Invariants.** What is left of a grant goes back when it is dropped. **On a crash** nothing of this
//! remains.

use std::time::Duration;

use dure_store::error::{Error, Result};
use dure_store::frames::{Fill, Frame};
use dure_store::space::OpClass;
use dure_sync::CoreId;

use crate::file::Files;
use crate::file::map::{NodePlaces, NodeRoom};
use crate::file::state::FileState;
use crate::inode::Inode;
use crate::quota::Charged;

/// Rounds of evicting and writing back before a write gives up getting memory.
const IDLE_ROUNDS_MAX: u32 = 8000;
/// Pause between two later rounds: together about ten seconds.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// Pages written back at least when memory runs out.
const WRITE_BACK_PAGES: u64 = 256;

/// What a step of a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in crate::file::cached) struct Want {
    /// Pages that are not in memory.
    pub(in crate::file::cached) frames: u32,
    /// Pages that are not dirty, so hold no reserved block.
    pub(in crate::file::cached) blocks: u32,
    /// Nodes of the map that exist neither on the medium nor as reserved blocks.
    pub(in crate::file::cached) nodes: u32,
    /// Pages in holes, for which the owner is to be charged.
    pub(in crate::file::cached) holes: u32,
}

/// Memory for pages, and blocks for those that become dirty, taken before any lock is. What is left
/// of it when it is dropped goes back.
#[derive(Debug)]
pub(in crate::file::cached) struct Grant<'v> {
    files: &'v Files,
    core: CoreId,
    frames: u32,
    blocks: u32,
    nodes: u32,
    /// `Rewrite`: the blocks are for pages that have a slot.
    pub(in crate::file::cached) class: OpClass,
    /// What its pages in holes are charged for.
    pub(in crate::file::cached) charged: Charged<'v>,
}

impl<'v> Grant<'v> {
    /// Memory for pages to be read into, for which there is credit.
    pub(in crate::file::cached) fn of_credit(files: &'v Files, frames: u32) -> Grant<'v> {
        Grant {
            files,
            core: files.store.partition(),
            frames,
            blocks: 0,
            nodes: 0,
            class: OpClass::Normal,
            charged: Charged::none(),
        }
    }

    /// Leaves the credit for its pages with the caller, which has no blocks granted.
    pub(in crate::file::cached) fn keep_credit(mut self) -> u32 {
        std::mem::take(&mut self.frames)
    }

    /// Whether it is enough for a write to the file.
    pub(in crate::file::cached) fn covers(&self, want: Want, file: &FileState) -> bool {
        let has_room =
            self.frames >= want.frames && self.blocks >= want.blocks && self.nodes >= want.nodes;
        has_room && self.charged.covers(file.charge.as_deref(), want.holes)
    }

    /// Hands reserved blocks over to these nodes, as far as they have none.
    pub(in crate::file::cached) fn use_nodes(&mut self, room: &mut NodeRoom, places: &NodePlaces) {
        let lacks = room.lacks(places);
        assert!(self.nodes >= lacks, "a map node without a reserved block");
        self.nodes -= lacks;
        room.add(places, lacks);
    }

    /// Takes a frame for a page that is put in the cache now.
    pub(in crate::file::cached) fn frame(&mut self, fill: Fill) -> Frame {
        assert!(self.frames > 0, "a page is taken that was not granted");
        self.frames -= 1;
        self.files.pages.frame(self.core, fill)
    }

    /// Takes back a frame whose page is not put in the cache after all.
    pub(in crate::file::cached) fn give_back(&mut self, frame: Frame) {
        self.files.pages.frames.give(self.core, frame);
        self.frames += 1;
    }

    /// Reserved blocks that no page has got yet.
    pub(in crate::file::cached) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Hands the reserved block of a page that becomes dirty over to it.
    pub(in crate::file::cached) fn use_block(&mut self) {
        assert!(self.blocks > 0, "a dirty page without a reserved block");
        self.blocks -= 1;
    }

    pub(in crate::file::cached) fn core(&self) -> CoreId {
        self.core
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.files
            .pages
            .budget
            .give(self.core, u64::from(self.frames));
        self.files.unreserve(self.core, self.blocks + self.nodes);
    }
}

impl Files {
    /// Memory and blocks for a write that adds to the volume, unless it is full. The caller holds
    /// no inode lock.
    ///
    /// # Errors
    /// `NoSpace` of memory that cannot be written back, `Quota`, write-back errors.
    pub(in crate::file::cached) fn grant_at_hand(
        &self,
        inode: &Inode,
        want: Want,
    ) -> Result<Option<Grant<'_>>> {
        let core = self.store.partition();
        self.relieve_inodes();
        let charged = self.charge(inode, want.holes)?;
        if !self
            .store
            .space
            .reserve(core, want.blocks + want.nodes, OpClass::Normal)
        {
            return Ok(None);
        }
        self.grant_reserved(core, (want, charged), OpClass::Normal)
            .map(Some)
    }

    /// Memory and blocks for a write; makes room before it gives up. The caller holds no inode
    /// lock.
    ///
    /// # Errors
    /// `NoSpace` (of blocks, or of memory that cannot be written back), `Quota`, write-back errors.
    pub(in crate::file::cached) fn grant(
        &self,
        inode: &Inode,
        want: Want,
        class: OpClass,
    ) -> Result<Grant<'_>> {
        let core = self.store.partition();
        let charged = self.charge(inode, want.holes)?;
        self.store
            .reserve_blocks(core, want.blocks + want.nodes, class)?;
        self.grant_reserved(core, (want, charged), class)
    }

    /// The blocks are reserved.
    fn grant_reserved<'v>(
        &'v self,
        core: CoreId,
        (want, charged): (Want, Charged<'v>),
        class: OpClass,
    ) -> Result<Grant<'v>> {
        let mut grant = Grant {
            files: self,
            core,
            frames: 0,
            blocks: want.blocks,
            nodes: want.nodes,
            class,
            charged,
        };
        self.take_memory(core, u64::from(want.frames))?;
        grant.frames = want.frames;
        Ok(grant)
    }

    /// Memory for pages to be read into, if that needs no write-back.
    pub(in crate::file::cached) fn grant_to_read(&self, frames: u32) -> Option<Grant<'_>> {
        self.relieve_inodes();
        let core = self.store.partition();
        let pages = u64::from(frames);
        let take = || self.pages.budget.take(core, pages);
        let got = take() || (self.pages.evict(core, self.pages.evict_pages(pages)) > 0 && take());
        got.then(|| Grant::of_credit(self, frames))
    }

    /// Credit for `pages` pages, evicting and writing back until it is there. What other callers
    /// hold is waited for: they give it back or make it evictable without waiting for others.
    fn take_memory(&self, core: CoreId, pages: u64) -> Result<()> {
        let mut failed = None;
        let mut idle = 0;
        let possible = pages <= self.pages.budget.pages_max();
        while possible && idle < IDLE_ROUNDS_MAX && failed.is_none() {
            if self.pages.budget.take(core, pages) {
                return Ok(());
            }
            if self.pages.evict(core, self.pages.evict_pages(pages)) > 0 {
                continue;
            }
            match self.write_back_some(pages.max(WRITE_BACK_PAGES)) {
                Ok(0) => {
                    idle += 1;
                    if idle < IDLE_ROUNDS_MAX / 8 {
                        dure_sync::thread::yield_now();
                    } else {
                        dure_sync::thread::sleep(IDLE_PAUSE);
                    }
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(Error::NoSpace {
            what: "page cache: all pages are in use",
        }))
    }
}
