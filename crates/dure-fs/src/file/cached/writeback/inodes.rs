//! Write-back of many inodes, and of those that are to leave memory.

use dure_store::error::{Error, Result};
use dure_store::serve;
use dure_store::units::nth_core;
use dure_sync::{Arc, CoreId};

use super::{BATCH_PAGES, Extent, Way};
use crate::file::Files;
use crate::inode::Inode;

/// Inodes that are looked at together, at most: as many as a round can have pages.
const ROUND_INODES: usize = BATCH_PAGES;
/// Inodes that are settled one by one, and in rounds.
const SETTLED: (usize, usize) = (16, 128);

impl Files {
    /// Writes back inodes, those of this task's partition first, until `pages` pages were written,
    /// or each was visited once. Skips inodes whose write-back is under way. Returns how many pages.
    ///
    /// # Errors
    /// The last failure, when nothing could be written.
    pub(in crate::file) fn write_back_some(&self, pages: u64) -> Result<u64> {
        let own = self.store.partition().index();
        let lists = self.pages.lists();
        let mut written = 0;
        let mut failed = None;
        for n in 0..lists {
            let core = nth_core(own + n, lists);
            let left = pages - written;
            written += serve(core, || self.write_back_some_of(core, left, &mut failed));
            if written >= pages {
                return Ok(written);
            }
        }
        match failed {
            Some(error) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }

    /// Like [`Files::write_back_some`], for the inodes on the list of `core`, which the caller
    /// serves. Sets `failed` to the last failure.
    pub(in crate::file::cached) fn write_back_some_of(
        &self,
        core: CoreId,
        pages: u64,
        failed: &mut Option<Error>,
    ) -> u64 {
        let mut written = 0;
        let mut left = self.pages.dirty_inode_count(core);
        while written < pages && left > 0 {
            let next = (0..left.min(ROUND_INODES)).map_while(|_| self.pages.next_dirty(core));
            let inodes: Vec<_> = next.collect();
            if inodes.is_empty() {
                break;
            }
            left -= inodes.len();
            let mut rest = &inodes[..];
            while written < pages && !rest.is_empty() {
                let (visited, in_round) = self.write_round(rest);
                written += in_round;
                let (done, after) = rest.split_at(visited);
                rest = after;
                for inode in done {
                    let Some(_held) = inode.try_lock_writeback() else {
                        continue;
                    };
                    match self.write_back_held(inode, Way::Blocks, Extent::All) {
                        Ok(done) => written += done.pages,
                        Err(error) => *failed = Some(error),
                    }
                    self.unlist_clean(inode);
                }
            }
        }
        written
    }

    /// Writes back everything that was dirty when this began.
    ///
    /// # Errors
    /// The first failure; the other inodes are written back all the same.
    pub(in crate::file) fn write_back_all(&self) -> Result<()> {
        let mut result = Ok(());
        for n in 0..self.pages.lists() {
            let core = nth_core(n, self.pages.lists());
            result = result.and(serve(core, || self.write_back_list(core, &mut 0)));
        }
        result
    }

    /// Like [`Files::write_back_all`], for the inodes on the list of `core`, which the caller
    /// serves. Adds the pages written to `pages`.
    ///
    /// # Errors
    /// Those of [`Files::write_back_all`].
    pub(in crate::file) fn write_back_list(&self, core: CoreId, pages: &mut u64) -> Result<()> {
        let mut result = Ok(());
        self.pages.dirty_pages.begin(core);
        let inodes = self.pages.dirty_inodes(core);
        let mut rest = &inodes[..];
        while !rest.is_empty() {
            let (visited, in_round) = self.write_round(rest);
            *pages += in_round;
            let (done, after) = rest.split_at(visited);
            rest = after;
            for inode in done {
                let written = self.write_back(inode);
                self.unlist_clean(inode);
                result = result.and(written.map(|written| *pages += written));
            }
        }
        self.pages.dirty_pages.end(core);
        result
    }

    /// Writes inodes back and drops their pages, so that they can leave memory; passes over those
    /// whose write-back is under way. What fails stays, and is reported by an fsync.
    pub(in crate::file) fn settle_files(&self, inodes: &[Arc<Inode>]) {
        if !self.settles_in_rounds() {
            return inodes.iter().for_each(|inode| self.settle_file(inode));
        }
        let mut rest = inodes;
        while !rest.is_empty() {
            let (visited, _) = self.write_round(rest);
            let (done, after) = rest.split_at(visited);
            rest = after;
            done.iter().for_each(|inode| self.settle_file(inode));
        }
    }

    /// How many inodes to settle together.
    pub(in crate::file) fn settled_together(&self) -> usize {
        match self.settles_in_rounds() {
            true => SETTLED.1,
            false => SETTLED.0,
        }
    }

    /// Any number of tasks settle inodes at once: a small cache has no room for copies of theirs.
    fn settles_in_rounds(&self) -> bool {
        self.pages.batches_max() > 1
    }

    /// Like [`Files::settle_files`], for one inode.
    pub(in crate::file) fn settle_file(&self, inode: &Arc<Inode>) {
        let Some(_held) = inode.try_lock_writeback() else {
            return;
        };
        let written = self.write_back_held(inode, Way::Blocks, Extent::All);
        self.unlist_clean(inode);
        if written.is_ok() {
            self.leave_memory(inode);
        }
    }

    fn unlist_clean(&self, inode: &Inode) {
        let mut state = inode.state().write_keep_cached();
        let state = &mut *state;
        if state.file().is_clean() {
            self.pages.unlist(inode, state.file_mut(), true);
        }
    }
}
