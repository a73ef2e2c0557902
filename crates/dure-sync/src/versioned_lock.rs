//! A reader/writer lock around a value and some bytes, which can also be copied without the lock.
//!
//! **Problem.** What many cores look up and few change should not cost its readers a shared line,
//! and yet those who change it, or rely on it for longer, need a lock. **Structure.** An [`RwLock`]
//! around the value; the bytes beside it with a [`Version`]. [`VersionedLock::load`] copies bytes
//! between two looks at the version, and takes the lock shared if that fails a few times.
//! **Invariants.** Bytes change only through a write guard, which moves the version. **Crash.**
//! Nothing is kept.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::shared_bytes::SharedSlice;
use crate::version::Version;
use crate::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock of rank `RANK` around a `T` and some bytes; see the module.
pub struct VersionedLock<const RANK: u8, T> {
    lock: RwLock<RANK, T>,
    version: Version,
    bytes: SharedSlice,
}

/// Shared access to a [`VersionedLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
#[derive(Debug)]
pub struct VersionedReadGuard<'a, const RANK: u8, T: fmt::Debug> {
    value: RwLockReadGuard<'a, RANK, T>,
    bytes: &'a SharedSlice,
}

/// Exclusive access to a [`VersionedLock`], but for those who copy its bytes; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
#[derive(Debug)]
pub struct VersionedWriteGuard<'a, const RANK: u8, T: fmt::Debug> {
    value: RwLockWriteGuard<'a, RANK, T>,
    version: &'a Version,
    bytes: &'a SharedSlice,
}

impl<const RANK: u8, T: fmt::Debug> VersionedLock<RANK, T> {
    /// A free lock around `value` and `bytes`.
    #[must_use]
    pub fn new(value: T, bytes: Box<[u8]>) -> Self {
        Self {
            lock: RwLock::new(value),
            version: Version::new(),
            bytes: SharedSlice::from(bytes),
        }
    }

    /// Takes shared access, sleeping while a writer has or awaits the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    pub fn read(&self) -> VersionedReadGuard<'_, RANK, T> {
        VersionedReadGuard {
            value: self.lock.read(),
            bytes: &self.bytes,
        }
    }

    /// Takes exclusive access although locks of the same rank may be held: the caller promises
    /// that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    pub fn write_ordered(&self) -> VersionedWriteGuard<'_, RANK, T> {
        VersionedWriteGuard {
            value: self.lock.write_ordered(),
            version: &self.version,
            bytes: &self.bytes,
        }
    }

    /// Copies the bytes from `at` on into `out`, as they are at one moment. Writes nothing that
    /// others see, unless changes follow each other so fast that it takes the lock.
    ///
    /// # Panics
    /// If `out` reaches past the end; as [`VersionedLock::read`].
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

    /// As [`VersionedLock::load`] without looking at the version, to show what that is for.
    #[doc(hidden)]
    pub fn load_carelessly(&self, at: usize, out: &mut [u8]) {
        self.bytes.load(at, out);
    }
}

impl<const RANK: u8, T: fmt::Debug> VersionedReadGuard<'_, RANK, T> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: bytes change only through a write guard, and there is none beside this one, which
        // the slice borrows.
        unsafe { self.bytes.as_slice() }
    }
}

impl<const RANK: u8, T: fmt::Debug> VersionedWriteGuard<'_, RANK, T> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: bytes change only through a write guard. This is the only one, and `store` needs
        // it for itself, so not while the slice borrows it.
        unsafe { self.bytes.as_slice() }
    }

    /// Changes the bytes from `at` on. Others see all of it or nothing.
    ///
    /// # Panics
    /// If they reach past the end.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        self.version.change(|| self.bytes.store(at, bytes));
    }
}

impl<const RANK: u8, T: fmt::Debug> Deref for VersionedReadGuard<'_, RANK, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> Deref for VersionedWriteGuard<'_, RANK, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> DerefMut for VersionedWriteGuard<'_, RANK, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for VersionedLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedLock")
            .field("lock", &self.lock)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests;
