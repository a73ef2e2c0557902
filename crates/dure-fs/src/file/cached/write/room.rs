//! What a write needs before it may make pages dirty: memory, blocks, and nodes of the map.

use dure_store::error::{Error, Result};
use dure_store::format::slot::LEAF_SLOTS;
use dure_store::space::OpClass;
use dure_store::units::BLOCK_BYTES_U64;

use super::super::cache::{Grant, Want};
use super::PageRange;
use crate::file::Files;
use crate::file::map::room::{extend, leaves, whole_path};
use crate::file::map::{MapReader, NodePlaces};
use crate::file::write::Room;
use crate::inode::{Inode, InodeState};

impl Files {
    /// Memory and blocks for a write to these pages. The caller holds no inode lock.
    pub(super) fn grant_for(
        &self,
        inode: &Inode,
        want: Want,
        (pages, room): (PageRange, Room),
    ) -> Result<Grant<'_>> {
        if let Some(grant) = self.grant_at_hand(inode, want)? {
            return Ok(grant);
        }
        // The volume is full. Pages that have a block can be rewritten all the same: the old block
        // is freed.
        if want.nodes > 0 || !self.all_mapped(inode, &inode.state().write(), pages)? {
            return self.grant(inode, want, room.class());
        }
        if u64::from(want.blocks) > self.store.space.rewrites_at_once() {
            return Err(Error::NoSpace {
                what: "blocks to rewrite so many pages at once",
            });
        }
        self.grant(inode, want, OpClass::Rewrite)
    }

    /// Whether a write to these bytes only rewrites pages, each of which finds room by itself.
    pub(in crate::file) fn is_rewrite(&self, inode: &Inode, start: u64, end: u64) -> bool {
        let pages = start / BLOCK_BYTES_U64..end.div_ceil(BLOCK_BYTES_U64);
        let state = inode.state().write();
        self.all_mapped(inode, &state, pages).unwrap_or(false)
    }

    /// Whether every page of the range that is not dirty has a block, which a rewrite gives back.
    pub(super) fn all_mapped(
        &self,
        inode: &Inode,
        state: &InodeState,
        pages: PageRange,
    ) -> Result<bool> {
        let mut map = MapReader::new(self, inode);
        for page in pages {
            let file = state.file();
            if file.pages.get_dirty(page).is_some() {
                continue;
            }
            if file.is_cut(page) {
                return Ok(false);
            }
            // A block that a clone shares is not given back.
            let slot = map.slot(page)?;
            if slot.is_hole() || self.store.space.is_shared(slot.block()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Pages of the range that wait for no block and have none: what the owner of the file is to be
    /// charged for when they become dirty. A page that is being written has one soon. 0 without quotas.
    #[inline]
    pub(in crate::file::cached) fn holes(
        &self,
        inode: &Inode,
        state: &InodeState,
        pages: PageRange,
    ) -> Result<u32> {
        if state.file().charge.is_none() {
            return Ok(0);
        }
        self.count_holes(inode, state, pages)
    }

    /// Out of the way of writes without quotas.
    #[cold]
    fn count_holes(&self, inode: &Inode, state: &InodeState, pages: PageRange) -> Result<u32> {
        let file = state.file();
        let mut map = MapReader::new(self, inode);
        let mut holes = 0;
        for page in pages {
            let waits = file.pages.is_unclean(page);
            holes += u32::from(!waits && (file.is_cut(page) || map.slot(page)?.is_hole()));
        }
        Ok(holes)
    }

    /// The map nodes that pages of the range need, and that neither exist nor have a block.
    pub(super) fn lacking_nodes(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        pages: PageRange,
    ) -> Result<NodePlaces> {
        let file = state.file_mut();
        let mut lacking = NodePlaces::new();
        for leaf in leaves(pages) {
            if file.is_cut(leaf + LEAF_SLOTS - 1) {
                // A truncate that is under way may free what is there.
                extend(&mut lacking, whole_path(0, leaf));
            } else if !file.room.covers(leaf) {
                let missing = MapReader::new(self, inode).missing_nodes(leaf)?;
                if missing.is_empty() {
                    file.room.note_leaf(leaf);
                }
                extend(&mut lacking, missing);
            }
        }
        Ok(lacking)
    }
}
