//! Pages that come to a file beside those who use its other parts.
//!
//! **Problem.** An append, or a write into a hole, changes which pages there are, and perhaps the
//! size. If it had the inode alone for that, it would keep out all who read or overwrite other
//! pages, or change attributes. **Structure.** Once tasks share a file, who has its range shares
//! the inode, and puts new dirty pages and the new size in [`Added`], beside the state
//! ([`super::add`]). There they wait until somebody has the inode alone: that moves them into the
//! state before anybody looks (`StateLock::taken_alone`). So who has the inode alone (write-back,
//! truncate, eviction, ..) need not know of this. The size in the state is then a settled lower
//! bound; the present one is in the [`Outline`](super::Outline), on a line of its own.
//!
//! | who shares the inode | looks at |
//! |---|---|
//! | read, overwrite of a page that the state has, up to the settled size | nothing of this |
//! | the same past the settled size | the present size |
//! | the same of a page that the state does not have | the word of `places` for it; if its bit is set, the pages, shared |
//! | seek or stat that has to look | the pages, shared, until it has put in what it found |
//! | append, write that needs new pages, truncate to a greater size | the pages, alone, once its own are filled |
//!
//! **Invariants.** It is made by who has the inode alone and stays as long as the inode is in
//! memory: who shares it and finds none need not fear one. A page is here or in the state, not in
//! both; here all are dirty, with a reserved block and credit for memory, and the inode is on both
//! lists of the page cache. A page comes, filled, before the size that covers it; the size grows
//! only by who has the range of everything from the end on. **On a crash** it is gone, as dirty
//! pages are.

use std::ops::Range;

use dure_store::units::to_usize;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CachePadded, RwLockWriteGuard, SpreadLock, SpreadReadGuard};

use super::map::NodeRoom;
use super::page::PageStore;
use super::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::ranks::ADDED;

/// Words that say where pages may be: neighbours are in different ones.
const PLACES: u64 = 8;

/// What waits for somebody who has the inode alone.
#[derive(Debug, Default)]
pub(crate) struct AddedPages {
    pub(super) pages: PageStore,
    /// Blocks for the map nodes that they need.
    pub(super) room: NodeRoom,
    /// Of the file, if it has grown.
    pub(super) size: Option<u64>,
}

impl AddedPages {
    /// Pages that wait for write-back.
    pub(crate) fn pending(&self) -> u64 {
        self.pages.unclean()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Added {
    lock: CachePadded<SpreadLock<ADDED, AddedPages>>,
    /// Bit `page / 8 % 64` of word `page % 8`: the page may be here. Set with `lock` held alone,
    /// before the page is put in; cleared by who has the inode alone. Relaxed: a page of which
    /// nobody has been told yet may be missed, and the inode's lock orders the rest.
    places: [CachePadded<AtomicU64>; to_usize(PLACES)],
    /// There is something. Set with `lock` held alone, cleared by who has the inode alone. Relaxed,
    /// as `places`.
    waiting: CachePadded<AtomicBool>,
}

/// Word and bit of a page.
fn place(page: u64) -> (usize, u64) {
    (to_usize(page % PLACES), 1 << (page / PLACES % 64))
}

/// Who may write to pages beside a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    Concurrent,
    None,
}

impl Added {
    /// Whether the state lacks something.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Moves it into the state, which the caller has alone.
    #[cold]
    pub(crate) fn move_into(&self, file: &mut FileState) {
        let mut held = self
            .lock
            .try_write()
            .expect("whoever has it shares the inode");
        let AddedPages { pages, room, size } = std::mem::take(&mut *held);
        drop(held);
        for place in &self.places {
            place.store(0, Ordering::Relaxed);
        }
        self.waiting.store(false, Ordering::Relaxed);
        file.settle(pages, room, size);
    }

    /// Whether the page may be here.
    #[inline]
    pub(super) fn may_have(&self, page: u64) -> bool {
        let (word, bit) = place(page);
        self.places[word].load(Ordering::Relaxed) & bit != 0
    }

    /// What is here. The caller shares the inode, and keeps out who adds.
    pub(crate) fn share(&self) -> SpreadReadGuard<'_, ADDED, AddedPages> {
        self.lock.read()
    }

    /// The same, to add to it: all users of what is here are kept out.
    pub(super) fn take(&self) -> RwLockWriteGuard<'_, ADDED, AddedPages> {
        self.lock.write()
    }

    /// Says that these pages may be here from now on.
    pub(super) fn announce(&self, _held: &AddedPages, pages: impl Iterator<Item = u64>) {
        for page in pages {
            let (word, bit) = place(page);
            // Load first: the line stays shared.
            if self.places[word].load(Ordering::Relaxed) & bit == 0 {
                self.places[word].fetch_or(bit, Ordering::Relaxed);
            }
        }
        if !self.is_waiting() {
            self.waiting.store(true, Ordering::Relaxed);
        }
    }

    /// Copies bytes out of a page. `None`: it is not here. False: others wrote to it all the time.
    #[cold]
    pub(super) fn load(
        &self,
        page: u64,
        at: usize,
        out: &mut [u8],
        writers: Writers,
    ) -> Option<bool> {
        if !self.may_have(page) {
            return None;
        }
        let held = self.share();
        let cached = held.pages.get(page)?;
        match writers {
            Writers::Concurrent => Some(cached.load_versioned(at, out)),
            Writers::None => {
                cached.load(at, out);
                Some(true)
            }
        }
    }

    /// The first page of the range that is here.
    pub(super) fn first_in(&self, pages: Range<u64>) -> Option<u64> {
        if !pages.clone().any(|page| self.may_have(page)) {
            return None;
        }
        self.share().pages.next_present(pages)
    }
}

impl Inode {
    /// The size of the file, as far as it matters to a call that goes no further than `end`: who
    /// stays in front of the settled end reads no line that writes behind it change.
    #[inline]
    pub(super) fn size_up_to(&self, shared: &InodeState, end: u64) -> u64 {
        let settled = shared.file.size();
        if end <= settled {
            settled
        } else {
            self.outline.size()
        }
    }
}
