//! Mutual exclusion on one word.
//!
//! **Problem.** Locks in user space must sleep when the holder is not running, and must not call
//! the kernel otherwise. **Structure.** The word is free, locked, or locked with sleepers. A
//! taker swaps free for locked; on contention it spins a bounded number of turns, then marks the
//! word and sleeps. **Invariants.** Uncontended, `lock` and `unlock` are one read-modify-write
//! each. A sleeper exists only while the word is marked or about to be re-marked by a woken task,
//! so no wake-up is lost. No poisoning: see the crate documentation. **Crash.** Nothing is kept.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::{self, Shadow};
use crate::futex::ANYONE;
use crate::rank::{self, Held, Order};
use crate::waiting::Waiting;

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and tasks may be sleeping.
const CONTENDED: u32 = 2;

/// A mutual-exclusion lock of rank `RANK` around a `T`.
pub struct Mutex<const RANK: u8, T> {
    /// Written by every task that takes or releases the lock. Acquire on taking pairs with Release
    /// on releasing and publishes `data`.
    state: AtomicU32,
    shadow: Shadow,
    /// Owned by the holder of `state`.
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands its data to one thread at a time, which needs no more than `T: Send`.
unsafe impl<const RANK: u8, T: Send> Sync for Mutex<RANK, T> {}
// SAFETY: moving the lock moves its data.
unsafe impl<const RANK: u8, T: Send> Send for Mutex<RANK, T> {}

impl<const RANK: u8, T> Mutex<RANK, T> {
    const_unless_loom! {
        /// A free lock around `data`.
        pub fn new(data: T) -> Self {
            Self { state: AtomicU32::new(FREE), shadow: Shadow::new(), data: UnsafeCell::new(data) }
        }
    }

    /// Takes the lock, sleeping while another task holds it.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, RANK, T> {
        rank::check(RANK, Order::Rising);
        self.lock_unchecked()
    }

    /// Takes the lock although others of the same rank may be held: the caller promises that all
    /// tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn lock_ordered(&self) -> MutexGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        self.lock_unchecked()
    }

    /// Takes the lock if it is free. Never waits, so any rank may be held.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, RANK, T>> {
        // Acquire: pairs with the Release in `unlock`; the data of the last holder is visible.
        self.state
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| self.guard())
    }

    /// The data, for the sole owner of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data; the lock is gone.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    #[inline]
    fn lock_unchecked(&self) -> MutexGuard<'_, RANK, T> {
        // Acquire: pairs with the Release in `unlock`.
        if self
            .state
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_contended();
        }
        self.guard()
    }

    #[cold]
    fn lock_contended(&self) {
        let _waiting = Waiting::on_lock(RANK);
        let mut seen = self.spin();
        if seen == FREE {
            // Acquire: pairs with the Release in `unlock`.
            match self
                .state
                .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        loop {
            // From here on the word is taken as contended: other sleepers may exist, and the
            // release must wake one of them.
            // Acquire: pairs with the Release in `unlock`.
            if seen != CONTENDED && self.state.swap(CONTENDED, Ordering::Acquire) == FREE {
                return;
            }
            backend::futex_wait(&self.state, CONTENDED, ANYONE, None);
            seen = self.spin();
        }
    }

    /// Spins a bounded number of turns while the lock is held and no task sleeps; returns the last
    /// value seen.
    fn spin(&self) -> u32 {
        let mut turns = backend::SPIN_TURNS;
        loop {
            // Relaxed: only a hint, the taking itself is an Acquire.
            let seen = self.state.load(Ordering::Relaxed);
            if seen != LOCKED || turns == 0 {
                return seen;
            }
            backend::spin_hint();
            turns -= 1;
        }
    }

    #[inline]
    fn guard(&self) -> MutexGuard<'_, RANK, T> {
        rank::acquired(RANK);
        self.shadow.write(self.data.get());
        MutexGuard {
            lock: self,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }

    #[inline]
    fn unlock(&self) {
        self.shadow.write(self.data.get());
        rank::released(RANK);
        // Release: pairs with the Acquire of the next taker; publishes the data.
        let before = self.state.swap(FREE, Ordering::Release);
        debug_assert_ne!(before, FREE, "only the holder releases");
        if before == CONTENDED {
            backend::futex_wake(&self.state, 1, ANYONE);
        }
    }
}

impl<const RANK: u8, T: Default> Default for Mutex<RANK, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for Mutex<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        out.field("rank", &RANK);
        match self.try_lock() {
            Some(guard) => out.field("data", &*guard).finish(),
            None => out.field("data", &format_args!("<locked>")).finish(),
        }
    }
}

/// Access to the data of a [`Mutex`]; releases the lock when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct MutexGuard<'a, const RANK: u8, T> {
    lock: &'a Mutex<RANK, T>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<const RANK: u8, T: Sync> Sync for MutexGuard<'_, RANK, T> {}

impl<'a, const RANK: u8, T> MutexGuard<'a, RANK, T> {
    /// Evidence that a lock of this rank is held.
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }

    /// Whether tasks may be sleeping until the lock comes free. Not a method, as below.
    #[inline]
    #[must_use]
    pub fn is_awaited(guard: &Self) -> bool {
        // Relaxed: a hint.
        guard.lock.state.load(Ordering::Relaxed) == CONTENDED
    }

    /// The lock that `guard` holds. Not a method, which could hide one of `T`.
    #[inline]
    pub fn mutex(guard: &Self) -> &'a Mutex<RANK, T> {
        guard.lock
    }
}

impl<const RANK: u8, T> Deref for MutexGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard proves exclusive access, and the borrow of the guard limits it.
        unsafe { &*self.lock.data.get() }
    }
}

impl<const RANK: u8, T> DerefMut for MutexGuard<'_, RANK, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard proves exclusive access, and the borrow of the guard limits it.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<const RANK: u8, T> Drop for MutexGuard<'_, RANK, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for MutexGuard<'_, RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexGuard").field(&**self).finish()
    }
}
