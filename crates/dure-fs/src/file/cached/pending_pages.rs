//! New pages of a contended file, while its inode is held shared.
//!
//! **Problem.** An append, a write into a hole, or a read from the device changes which pages there
//! are, and perhaps the size. With the inode held exclusively for that it would keep out all tasks
//! that read or overwrite other pages, or change attributes.
//!
//! **Structure.** Once a file is contended and has a range lock, a writer that holds its range
//! exclusively holds the inode shared, and puts new dirty pages and the new size in
//! [`PendingPages`], next to the state ([`super::write_shared`]); and a reader that holds the inode
//! shared puts pages there that it has read. There they wait until a task
//! takes the exclusive inode lock, which moves them into the state before that task looks
//! (`StateLock::take_over`). So tasks that hold the inode exclusively (write-back, truncate,
//! eviction, ..) need not know of this. The size in the state is then a settled lower bound; the
//! present one is in the [`SeekHint`](crate::file::SeekHint), on a line of its own.
//!
//! | holder of the shared inode lock | looks at (*these*: the pending pages) |
//! |---|---|
//! | read, overwrite of a page in the state, up to the settled size | nothing of this |
//! | the same past the settled size | the present size |
//! | the same of a page that the state lacks | its bit in `places`; if set, these, shared |
//! | seek or stat that has to look | these, shared, until it has stored what it found |
//! | append, write to new pages, growing truncate | these, exclusively, once its own are filled |
//! | read of a page from the device | these, exclusively, once it is read and checked |
//!
//! # Invariants
//! It is made under the exclusive inode lock and stays as long as the inode is in memory: a holder
//! of the shared inode lock that finds none need not fear one. A page is here or in the state, not
//! in both; here all have credit for memory, the dirty ones a reserved block too, and the inode is
//! on both lists of the page cache. A page comes, filled, before the size that covers it; only the
//! holder of the range of everything from the end on makes the size grow.
//!
//! **On a crash** it is gone, as dirty pages are.

use std::ops::Range;

use dure_store::units::to_usize;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CachePadded, PerCoreReadGuard, PerCoreRwLock, RwLockWriteGuard};

use super::page::PageStore;
use crate::file::map::NodeRoom;
use crate::file::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::ranks::PENDING_PAGES;

/// Words that say where pages may be: neighbours are in different ones.
const PLACES: u64 = 8;

/// What waits for the next holder of the exclusive inode lock.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(super) pages: PageStore,
    /// Blocks for the map nodes that they need.
    pub(super) room: NodeRoom,
    /// The size of the file, if it has grown.
    pub(super) size: Option<u64>,
}

/// Most pages that may be pending: moving them into the state must not keep others out for long.
const PENDING_MAX: u64 = 4096;

impl Pending {
    /// Whether no more pages may come before a task has moved these into the state.
    pub(super) fn is_full(&self) -> bool {
        self.pages.present() >= PENDING_MAX
    }

    /// Pages that wait for write-back.
    pub(crate) fn pending(&self) -> u64 {
        self.pages.unclean()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PendingPages {
    lock: CachePadded<PerCoreRwLock<PENDING_PAGES, Pending>>,
    /// Bit `page / 8 % 64` of word `page % 8`: the page may be here. Set with `lock` held
    /// exclusively, before the page is put in; cleared under the exclusive inode lock. Relaxed: a
    /// page that no other task can know of yet may be missed, and the inode's lock orders the rest.
    places: [CachePadded<AtomicU64>; to_usize(PLACES)],
    /// There is something. Set with `lock` held exclusively, cleared under the exclusive inode
    /// lock. Relaxed, as `places`.
    waiting: CachePadded<AtomicBool>,
}

/// Word and bit of a page.
fn place(page: u64) -> (usize, u64) {
    (to_usize(page % PLACES), 1 << (page / PLACES % 64))
}

/// Whether others may write to pages concurrently with a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    Concurrent,
    None,
}

impl PendingPages {
    /// Whether the state lacks something.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Moves it into the state. The caller holds the inode exclusively.
    #[cold]
    pub(crate) fn move_into(&self, file: &mut FileState) {
        let mut held = self
            .lock
            .try_write()
            .expect("users of pending pages hold the inode shared");
        let Pending { pages, room, size } = std::mem::take(&mut *held);
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

    /// The pending pages, shared: no writer adds any meanwhile. The caller holds the inode shared.
    pub(crate) fn share(&self) -> PerCoreReadGuard<'_, PENDING_PAGES, Pending> {
        self.lock.read()
    }

    /// The pending pages, exclusively, to add to them: all their users are kept out.
    pub(super) fn take(&self) -> RwLockWriteGuard<'_, PENDING_PAGES, Pending> {
        self.lock.write()
    }

    /// Says that these pages may be here from now on.
    pub(super) fn announce(&self, _held: &Pending, pages: impl Iterator<Item = u64>) {
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

    /// Copies bytes out of a page. `None`: it is not here. False: every copy was torn by concurrent
    /// writers.
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
    /// The size of the file, as far as it matters to a call that goes no further than `end`: calls
    /// within the settled size do not read the line that appends change.
    #[inline]
    pub(super) fn size_up_to(&self, shared: &InodeState, end: u64) -> u64 {
        let settled = shared.file().size();
        if end <= settled {
            settled
        } else {
            self.state().seek_hint().size()
        }
    }
}
