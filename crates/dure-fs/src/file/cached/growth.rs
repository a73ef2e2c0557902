//! How a contended file grows while its inode is held shared.
//!
//! **Problem.** An append or a write into a hole changes the size, or what is data and what a hole.
//! With the inode held exclusively for that it would keep out all tasks that read or overwrite other
//! pages, or change attributes.
//!
//! **Structure.** Once a file is contended and has a range lock, a writer that holds its range
//! exclusively holds the inode shared, and holds the [`Growth`] exclusively while it puts new dirty
//! pages into the state and the new size here ([`super::write_shared`]). The size waits until a task
//! takes the exclusive inode lock, which moves it into the state before that task looks
//! (`StateLock::take_over`). So tasks that hold the inode exclusively (write-back, truncate,
//! eviction, ..) need not know of this. The size in the state is then a settled lower bound; the
//! present one is in the [`SeekHint`](crate::file::SeekHint), on a line of its own.
//!
//! | holder of the shared inode lock | the growth |
//! |---|---|
//! | read, overwrite of a page, up to the settled size | nothing of it |
//! | the same past the settled size | looks at the present size |
//! | seek or stat that has to look | shared, until it has stored what it found |
//! | append, write to new pages, growing truncate | exclusively, once its own pages are filled |
//! | read of a page from the device | nothing: what is data stays data |
//!
//! # Invariants
//! It is made under the exclusive inode lock and stays as long as the inode is in memory: a holder
//! of the shared inode lock that finds none need not fear one. A page comes, filled, before the size
//! that covers it; only the holder of the range of everything from the end on makes the size grow.
//!
//! **On a crash** it is gone, as dirty pages are.

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{CachePadded, PerCoreReadGuard, PerCoreRwLock, RwLockWriteGuard};

use crate::file::map::NodeRoom;
use crate::file::state::FileState;
use crate::ranks::GROWTH;

/// What waits for the next holder of the exclusive inode lock.
#[derive(Debug, Default)]
pub(crate) struct Grown {
    /// Blocks for the map nodes that new pages need.
    pub(super) room: NodeRoom,
    /// The size of the file, if it has grown.
    pub(super) size: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    lock: CachePadded<PerCoreRwLock<GROWTH, Grown>>,
    /// There is something. Set with `lock` held exclusively, cleared under the exclusive inode
    /// lock. Relaxed: the inode's lock orders it.
    waiting: CachePadded<AtomicBool>,
}

impl Growth {
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
            .expect("users of the growth hold the inode shared");
        let Grown { room, size } = std::mem::take(&mut *held);
        drop(held);
        self.waiting.store(false, Ordering::Relaxed);
        file.settle(room, size);
    }

    /// The growth, shared: no writer adds anything meanwhile. The caller holds the inode shared.
    pub(crate) fn share(&self) -> PerCoreReadGuard<'_, GROWTH, Grown> {
        self.lock.read()
    }

    /// The growth, exclusively, to add to it: all its users are kept out.
    pub(super) fn take(&self) -> RwLockWriteGuard<'_, GROWTH, Grown> {
        let held = self.lock.write();
        // Load first: the line stays shared.
        if !self.is_waiting() {
            self.waiting.store(true, Ordering::Relaxed);
        }
        held
    }
}
