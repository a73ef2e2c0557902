//! The guards of an [`RwLock`].
//!
//! **Problem.** Access must end on every path. **Structure.** A guard per kind of access, released
//! when dropped. **Invariants.** A guard exists exactly while its access is counted in the word
//! of the lock. **Crash.** Nothing is kept.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::RwLock;
use crate::rank::Held;

/// Shared access to the data of an [`RwLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockReadGuard<'a, const RANK: u8, T> {
    lock: &'a RwLock<RANK, T>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

/// Exclusive access to the data of an [`RwLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard<'a, const RANK: u8, T> {
    lock: &'a RwLock<RANK, T>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<const RANK: u8, T: Sync> Sync for RwLockReadGuard<'_, RANK, T> {}
// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<const RANK: u8, T: Sync> Sync for RwLockWriteGuard<'_, RANK, T> {}

impl<'a, const RANK: u8, T> RwLockReadGuard<'a, RANK, T> {
    /// The caller has just taken this access.
    #[inline]
    pub(super) fn new(lock: &'a RwLock<RANK, T>) -> Self {
        Self {
            lock,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }

    /// Evidence that a lock of this rank is held (shared).
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }
}

impl<'a, const RANK: u8, T> RwLockWriteGuard<'a, RANK, T> {
    /// The caller has just taken this access.
    #[inline]
    pub(super) fn new(lock: &'a RwLock<RANK, T>) -> Self {
        Self {
            lock,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }

    /// Evidence that a lock of this rank is held (exclusive).
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }
}

impl<'a, const RANK: u8, T> RwLockWriteGuard<'a, RANK, T> {
    /// Downgrades an exclusive guard to a shared one; no other task has exclusive access in
    /// between. Not a method, which could hide one of `T`.
    #[inline]
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, RANK, T> {
        let lock = guard.lock;
        // The access goes over to the new guard.
        std::mem::forget(guard);
        lock.downgrade();
        RwLockReadGuard::new(lock)
    }
}

impl<const RANK: u8, T> Deref for RwLockReadGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is counted as a reader, so no task writes while it lives.
        unsafe { &*self.lock.data.get() }
    }
}

impl<const RANK: u8, T> Deref for RwLockWriteGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard proves exclusive access, and the borrow of the guard limits it.
        unsafe { &*self.lock.data.get() }
    }
}

impl<const RANK: u8, T> DerefMut for RwLockWriteGuard<'_, RANK, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard proves exclusive access, and the borrow of the guard limits it.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<const RANK: u8, T> Drop for RwLockReadGuard<'_, RANK, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock_read();
    }
}

impl<const RANK: u8, T> Drop for RwLockWriteGuard<'_, RANK, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock_write();
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLockReadGuard").field(&**self).finish()
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLockWriteGuard").field(&**self).finish()
    }
}
