//! A reader/writer lock around a value and some bytes, which can also be copied without the lock.
//!
//! **Problem.** What many cores look up and few change should cost its readers no write to a shared
//! line; yet writers, and readers that rely on it for longer, need a lock. **Structure.** An
//! [`RwLock`] around the value; next to it the bytes with a [`SequenceCount`]. [`SeqLock::load`]
//! copies bytes between two checks of the sequence count, and takes the shared lock if that fails a
//! few times. **Invariants.** Bytes change only through a write guard, which advances the sequence
//! count. **Crash.** Nothing is kept.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::atomic_bytes::AtomicSlice;
use crate::sequence_count::SequenceCount;
use crate::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock of rank `RANK` around a `T` and some bytes; see the module.
pub struct SeqLock<const RANK: u8, T> {
    lock: RwLock<RANK, T>,
    version: SequenceCount,
    bytes: AtomicSlice,
}

/// Shared access to a [`SeqLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
#[derive(Debug)]
pub struct SeqLockReadGuard<'a, const RANK: u8, T: fmt::Debug> {
    value: RwLockReadGuard<'a, RANK, T>,
    bytes: &'a AtomicSlice,
}

/// Exclusive access to a [`SeqLock`], except for readers that copy its bytes; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
#[derive(Debug)]
pub struct SeqLockWriteGuard<'a, const RANK: u8, T: fmt::Debug> {
    value: RwLockWriteGuard<'a, RANK, T>,
    lock: &'a SeqLock<RANK, T>,
}

impl<const RANK: u8, T: fmt::Debug> SeqLock<RANK, T> {
    /// A free lock around `value` and `bytes`.
    #[must_use]
    pub fn new(value: T, bytes: Box<[u8]>) -> Self {
        Self {
            lock: RwLock::new(value),
            version: SequenceCount::new(),
            bytes: AtomicSlice::from(bytes),
        }
    }

    /// Takes shared access, sleeping while a writer holds or awaits the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    pub fn read(&self) -> SeqLockReadGuard<'_, RANK, T> {
        SeqLockReadGuard {
            value: self.lock.read(),
            bytes: &self.bytes,
        }
    }

    /// Takes exclusive access although locks of the same rank may be held: the caller promises
    /// that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    pub fn write_ordered(&self) -> SeqLockWriteGuard<'_, RANK, T> {
        SeqLockWriteGuard {
            value: self.lock.write_ordered(),
            lock: self,
        }
    }

    /// Copies the bytes from `at` on into `out`, as they are at one moment. Writes no shared
    /// memory, unless changes follow each other so fast that it takes the lock.
    ///
    /// # Panics
    /// If `out` reaches past the end; as [`SeqLock::read`].
    #[inline]
    pub fn load(&self, at: usize, out: &mut [u8]) {
        if self.version.read(|| self.bytes.load(at, out)).is_none() {
            self.load_locked(at, out);
        }
    }

    #[cold]
    fn load_locked(&self, at: usize, out: &mut [u8]) {
        let _whole = self.lock.read();
        self.bytes.load(at, out);
    }

    /// Like [`SeqLock::load`] without checking the sequence count, for tests that show what the
    /// check is for.
    #[doc(hidden)]
    pub fn load_carelessly(&self, at: usize, out: &mut [u8]) {
        self.bytes.load(at, out);
    }
}

impl<const RANK: u8, T: fmt::Debug> SeqLockReadGuard<'_, RANK, T> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: bytes change only through a write guard, and none exists while this read guard,
        // which the slice borrows, is held.
        unsafe { self.bytes.as_slice() }
    }
}

impl<const RANK: u8, T: fmt::Debug> SeqLockWriteGuard<'_, RANK, T> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: bytes change only through a write guard. This is the only one, and `store`
        // borrows it mutably, so not while the slice borrows it.
        unsafe { self.lock.bytes.as_slice() }
    }

    /// Changes parts of the bytes, each from a place on. Readers see all of the change or nothing.
    ///
    /// # Panics
    /// If one reaches past the end.
    pub fn store<'b>(&mut self, parts: impl IntoIterator<Item = (usize, &'b [u8])>) {
        let SeqLock { version, bytes, .. } = self.lock;
        version.change(|| {
            for (at, part) in parts {
                bytes.store(at, part);
            }
        });
    }
}

impl<const RANK: u8, T: fmt::Debug> Deref for SeqLockReadGuard<'_, RANK, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> Deref for SeqLockWriteGuard<'_, RANK, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> DerefMut for SeqLockWriteGuard<'_, RANK, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for SeqLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeqLock")
            .field("lock", &self.lock)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests;
