//! The write-back lock of an inode: held over write-back, truncate, allocation, and a write without
//! a page cache.
//!
//! **Problem.** A task that changes the map looks at it, copies data, and then names it, so it
//! excludes the others from its first look to its last change. Overwrites of different pages of one
//! file need not exclude each other. **Structure.** A mutex; once the file is contended, and for
//! overwrites without a page cache, also a reader/writer lock: they share it and take no mutex, all
//! others take both.
//!
//! **Invariants.** The second lock is made by a holder of the mutex, which changes nothing after
//! that. Before it is made, a holder of the mutex excludes overwrites too: they have no lock to share.
//! **On a crash** nothing remains.

use dure_sync::{MutexGuard, PerCoreReadGuard, RwLockWriteGuard};

use super::Inode;
use crate::ranks::{OVERWRITES, WRITEBACK};

/// The write-back lock of an inode, held.
#[derive(Debug)]
pub(crate) struct HeldWriteback<'i> {
    _overwrites: Option<RwLockWriteGuard<'i, OVERWRITES, ()>>,
    mutex: MutexGuard<'i, WRITEBACK, ()>,
}

impl HeldWriteback<'_> {
    /// Whether tasks may be sleeping until it comes free.
    pub(crate) fn is_awaited(&self) -> bool {
        MutexGuard::is_awaited(&self.mutex)
    }
}

impl Inode {
    /// Locks out all that changes the map.
    pub(crate) fn lock_writeback(&self) -> HeldWriteback<'_> {
        let mutex = self.state().writeback().lock();
        let overwrites = self.overwrites();
        HeldWriteback {
            _overwrites: overwrites.map(|overwrites| overwrites.lock.write()),
            mutex,
        }
    }

    /// Like `lock_writeback`, if that needs no waiting.
    pub(crate) fn try_lock_writeback(&self) -> Option<HeldWriteback<'_>> {
        let mutex = self.state().writeback().try_lock()?;
        let _overwrites = match self.overwrites() {
            Some(overwrites) => Some(overwrites.lock.try_write()?),
            None => None,
        };
        Some(HeldWriteback { _overwrites, mutex })
    }

    /// Locks out all that changes the map, but for other overwrites without a page cache. `None`:
    /// the file is not contended.
    #[inline]
    pub(crate) fn share_writeback(&self) -> Option<PerCoreReadGuard<'_, OVERWRITES, ()>> {
        self.overwrites().map(|overwrites| overwrites.lock.read())
    }
}
