//! Eviction: which pages leave memory when others need it.
//!
//! **Problem.** Pages that are used often must stay, and neither may a read write a shared list, nor
//! an eviction look at every page. **Structure.** CLOCK over the pages of all inodes of a core's list,
//! one inode after the other: if each inode gave a page in turn, a file that is read once would keep
//! its pages, and one that is in use lose them. Before it, pages that can be had again from persistent
//! memory, with a hand of their own: CLOCK stays with one inode for long, while such pages gather in
//! others. **Invariants.** Only clean pages leave. No inode lock is waited for; inodes that are in use
//! are passed over. **On a crash** nothing of this remains.

use std::ops::Range;

use dure_store::units::{nth_core, to_u64, to_usize};
use dure_sync::CoreId;

use super::PageCache;
use crate::file::Files;
use crate::inode::Inode;

/// Inodes that an eviction asks for pages that are cheap to read again, before it takes others.
const CHEAP_LOOKS: usize = 8;

impl PageCache {
    /// Gives up to `want` clean pages of any inode back to the budget.
    pub(in crate::file) fn evict(&self, core: CoreId, want: u64) -> u64 {
        let mut evicted = self.evict_cheap(core, want);
        if evicted >= want {
            return evicted;
        }
        for n in 0..self.cached.len() {
            let list = self
                .cached
                .get(nth_core(core.index() + n, self.cached.len()));
            // A first look at a page may only find that it was used.
            let looks = 2 * list.lock().inodes.len() + 1;
            for _ in 0..looks {
                let at_hand = list.lock().at_hand();
                let Some(inode) = at_hand else {
                    break;
                };
                let (pages, ended) = self.evict_from(core, &inode, want - evicted);
                evicted += pages;
                if ended {
                    list.lock().hand = inode.ino.0 + 1;
                }
                if evicted >= want {
                    return evicted;
                }
            }
        }
        evicted
    }

    /// Gives up to `want` clean pages back that can be had again from persistent memory, of a few
    /// inodes on the caller's list.
    fn evict_cheap(&self, core: CoreId, want: u64) -> u64 {
        let mut evicted = 0;
        if !self.absorbs {
            return 0;
        }
        let list = self.cached.get(core);
        for _ in 0..CHEAP_LOOKS {
            let at_hand = list.lock().at_cheap_hand();
            let Some(inode) = at_hand else {
                break;
            };
            if let Some(mut state) = inode.state().try_write() {
                let file = state.file_mut();
                let taken = |frame| self.drop_frame(core, frame);
                let pages = file.pages.evict_cheap(to_usize(want - evicted), taken);
                file.pages.tidy();
                self.note_evicted(pages);
                self.unlist(&inode, file, false);
                evicted += to_u64(pages);
            }
            if evicted >= want {
                break;
            }
            list.lock().cheap_hand = inode.ino.0 + 1;
        }
        evicted
    }

    fn note_evicted(&self, pages: usize) {
        let pages = i64::try_from(pages).expect("there are fewer than 2^63 pages in memory");
        self.counters.evicted.add(pages);
    }

    /// Evicts up to `want` pages of one inode. Also returns whether the hand has passed all its
    /// pages.
    fn evict_from(&self, core: CoreId, inode: &Inode, want: u64) -> (u64, bool) {
        let Some(mut state) = inode.state().try_write() else {
            return (0, true);
        };
        let file = state.file_mut();
        let evicted = file
            .pages
            .evict(to_usize(want), |frame| self.drop_frame(core, frame));
        let ended = file.pages.is_swept();
        file.pages.tidy();
        self.note_evicted(evicted);
        self.unlist(inode, file, false);
        (to_u64(evicted), ended)
    }
}

impl Files {
    /// Takes the clean ones of these pages out of memory.
    pub(in crate::file) fn drop_clean_pages(&self, inode: &Inode, pages: Range<u64>) {
        let core = self.store.partition();
        let mut state = inode.state().write_keep_cached();
        let file = state.file_mut();
        let taken = |frame| self.pages.drop_frame(core, frame);
        let dropped = file.pages.remove_clean(pages, taken);
        file.pages.tidy();
        self.pages.note_evicted(dropped);
        self.pages.unlist(inode, file, false);
    }

    /// Takes the clean pages out of memory that are in persistent memory.
    pub(in crate::file) fn drop_absorbed_pages(&self, inode: &Inode) {
        let core = self.store.partition();
        let mut state = inode.state().write_keep_cached();
        let file = state.file_mut();
        let taken = |frame| self.pages.drop_frame(core, frame);
        let dropped = file.pages.remove_cheap(taken);
        file.pages.tidy();
        self.pages.note_evicted(dropped);
        self.pages.unlist(inode, file, false);
    }

    /// Takes the clean pages of an inode that should leave memory, if no other task holds it.
    pub(in crate::file::cached) fn leave_memory(&self, inode: &Inode) {
        let core = self.store.partition();
        // The first look takes the reference bits.
        for _ in 0..2 {
            self.pages.evict_from(core, inode, u64::MAX);
        }
    }
}
