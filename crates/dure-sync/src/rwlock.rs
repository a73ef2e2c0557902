//! Shared and exclusive access on one word.
//!
//! **Problem.** Many readers at once, or one writer; and a waiting writer gets its turn.
//! **Structure.** The word holds the number of readers, a bit for the writer and a bit each for
//! sleeping readers and sleeping writers; both sleep on this word, told apart by a futex mask.
//!
//! # Why no wake-up is lost
//! **Invariants.** No reader enters while the writers' bit is set, and the bit stays set from the
//! release of the lock until a woken writer has taken it, so writers do not starve (readers may,
//! while writers follow each other without a gap). A writer falls asleep only while the lock is
//! taken and the bit is set, a reader only while it is not admitted and its bit is set; bits are
//! cleared only while the lock is free, by a releaser that found no writer to wake and then wakes
//! the readers, or, the readers' bit, by a writer that downgrades: no wake-up is lost. Uncontended,
//! each operation is one read-modify-write. **Crash.** Nothing is kept.

mod guard;

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::{self, Shadow};
use crate::futex::{READERS, WRITERS};
use crate::rank::{self, Order};
use crate::waiting::Waiting;

pub use guard::{RwLockReadGuard, RwLockWriteGuard};

const READER: u32 = 1;
const READERS_MASK: u32 = (1 << 29) - 1;
const READERS_WAIT: u32 = 1 << 29;
const WRITERS_WAIT: u32 = 1 << 30;
const WRITER: u32 = 1 << 31;

const _: () = assert!(READERS_MASK & (READERS_WAIT | WRITERS_WAIT | WRITER) == 0);

fn readers(state: u32) -> u32 {
    state & READERS_MASK
}

fn is_free(state: u32) -> bool {
    state & (READERS_MASK | WRITER) == 0
}

/// Readers are not admitted while a writer holds the lock or sleeps waiting for it.
fn admits_reader(state: u32) -> bool {
    state & (WRITER | WRITERS_WAIT) == 0 && readers(state) < READERS_MASK
}

/// A reader-writer lock of rank `RANK` around a `T`, which lies behind the word.
#[repr(C)]
pub struct RwLock<const RANK: u8, T> {
    /// Written by every task that takes or releases the lock. Acquire on taking pairs with Release
    /// on releasing and publishes `data`.
    state: AtomicU32,
    shadow: Shadow,
    /// Readable while READERS_MASK of `state` is not zero, owned by the setter of WRITER.
    data: UnsafeCell<T>,
}

// SAFETY: readers share `&T`, so `T: Sync`; writers receive the data, so `T: Send`.
unsafe impl<const RANK: u8, T: Send + Sync> Sync for RwLock<RANK, T> {}
// SAFETY: moving the lock moves its data.
unsafe impl<const RANK: u8, T: Send> Send for RwLock<RANK, T> {}

impl<const RANK: u8, T> RwLock<RANK, T> {
    const_unless_loom! {
        /// A free lock around `data`.
        pub fn new(data: T) -> Self {
            Self { state: AtomicU32::new(0), shadow: Shadow::new(), data: UnsafeCell::new(data) }
        }
    }

    /// Takes shared access, sleeping while a writer holds or awaits the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, RANK, T> {
        rank::check(RANK, Order::Rising);
        self.read_unchecked()
    }

    /// Takes shared access although locks of the same rank may be held: the caller promises that
    /// all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn read_ordered(&self) -> RwLockReadGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        self.read_unchecked()
    }

    /// Takes exclusive access, sleeping while other tasks hold the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, RANK, T> {
        rank::check(RANK, Order::Rising);
        self.write_unchecked()
    }

    /// Takes exclusive access although locks of the same rank may be held: the caller promises
    /// that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn write_ordered(&self) -> RwLockWriteGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        self.write_unchecked()
    }

    /// Takes shared access if that needs no waiting.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, RANK, T>> {
        // Relaxed: a first guess, confirmed by the exchange.
        let mut state = self.state.load(Ordering::Relaxed);
        while admits_reader(state) {
            match self.enter(state, state + READER) {
                Ok(()) => return Some(self.read_guard()),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Takes exclusive access if that needs no waiting.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, RANK, T>> {
        self.try_take().then(|| self.write_guard())
    }

    /// Takes the lock exclusively if that needs no waiting; the caller then calls `write_guard` or
    /// `give_up`.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        // Relaxed: a first guess, confirmed by the exchange.
        let mut state = self.state.load(Ordering::Relaxed);
        while is_free(state) {
            match self.enter(state, state | WRITER) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes the lock exclusively; the caller then calls `write_guard`.
    #[inline]
    pub(crate) fn take(&self) {
        if self.enter(0, WRITER).is_err() {
            self.write_contended();
        }
    }

    /// Releases the lock after `try_take`, without a guard.
    pub(crate) fn give_up(&self) {
        self.release_writer();
    }

    /// Like `read`, for a caller that has checked the rank; also returns whether other tasks held
    /// or awaited the lock.
    #[inline]
    pub(crate) fn read_noting(&self) -> (RwLockReadGuard<'_, RANK, T>, bool) {
        // Relaxed: a first guess, confirmed by the exchange.
        let state = self.state.load(Ordering::Relaxed);
        let contended = state != 0;
        if !admits_reader(state) || self.enter(state, state + READER).is_err() {
            self.read_contended();
            return (self.read_guard(), true);
        }
        (self.read_guard(), contended)
    }

    /// A pointer to the data.
    #[inline]
    pub(crate) fn data(&self) -> NonNull<T> {
        NonNull::new(self.data.get()).expect("the data has an address")
    }

    /// Tells the backend that a reader which another lock counts is about to use the data, or has
    /// used it.
    #[inline]
    pub(crate) fn used_shared(&self) {
        self.shadow.read(self.data.get());
    }

    /// The data, for the sole owner of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data; the lock is gone.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }

    /// Tries once to change the word from `from` to `to`; may fail without reason.
    #[inline]
    fn enter(&self, from: u32, to: u32) -> Result<(), u32> {
        // Acquire: pairs with the Release in `unlock_read` and `unlock_write`.
        self.state
            .compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| ())
    }

    #[inline]
    fn read_unchecked(&self) -> RwLockReadGuard<'_, RANK, T> {
        // Relaxed: a first guess, confirmed by the exchange.
        let state = self.state.load(Ordering::Relaxed);
        if !admits_reader(state) || self.enter(state, state + READER).is_err() {
            self.read_contended();
        }
        self.read_guard()
    }

    #[cold]
    fn read_contended(&self) {
        let _waiting = Waiting::on_lock(RANK);
        // Spinning ends early when another reader already sleeps: then the wait is a long one.
        let mut state = self.spin(|state| state & WRITER == 0 || state & READERS_WAIT != 0);
        loop {
            if admits_reader(state) {
                match self.enter(state, state + READER) {
                    Ok(()) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            assert!(
                readers(state) < READERS_MASK,
                "at most 500 million readers share a lock"
            );
            let marked = state | READERS_WAIT;
            if state != marked && !self.mark(&mut state, marked) {
                continue;
            }
            backend::futex_wait(&self.state, marked, READERS, None);
            state = self.spin(|state| state & WRITER == 0 || state & READERS_WAIT != 0);
        }
    }

    #[inline]
    fn write_unchecked(&self) -> RwLockWriteGuard<'_, RANK, T> {
        self.take();
        self.write_guard()
    }

    #[cold]
    fn write_contended(&self) {
        let _waiting = Waiting::on_lock(RANK);
        let mut state = self.spin(|state| is_free(state) || state & WRITERS_WAIT != 0);
        // Once this task has slept, other writers may be asleep whose bit a slow releaser clears
        // after the wake-up: so this task sets the bit again as it takes the lock.
        let mut others_wait = 0;
        loop {
            if is_free(state) {
                match self.enter(state, state | WRITER | others_wait) {
                    Ok(()) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            let marked = state | WRITERS_WAIT;
            if state != marked && !self.mark(&mut state, marked) {
                continue;
            }
            others_wait = WRITERS_WAIT;
            backend::futex_wait(&self.state, marked, WRITERS, None);
            state = self.spin(|state| is_free(state) || state & WRITERS_WAIT != 0);
        }
    }

    /// Changes waiting bits; on failure `state` is the new value.
    fn mark(&self, state: &mut u32, marked: u32) -> bool {
        // Relaxed: the bits publish nothing, and an exchange keeps the chain from the last
        // Release to the next Acquire.
        match self
            .state
            .compare_exchange(*state, marked, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => true,
            Err(now) => {
                *state = now;
                false
            }
        }
    }

    /// Spins a bounded number of turns until `done`; returns the last value seen.
    fn spin(&self, done: impl Fn(u32) -> bool) -> u32 {
        let mut turns = backend::SPIN_TURNS;
        loop {
            // Relaxed: only a hint, the taking itself is an Acquire.
            let seen = self.state.load(Ordering::Relaxed);
            if done(seen) || turns == 0 {
                return seen;
            }
            backend::spin_hint();
            turns -= 1;
        }
    }

    #[inline]
    fn read_guard(&self) -> RwLockReadGuard<'_, RANK, T> {
        rank::acquired(RANK);
        self.shadow.read(self.data.get());
        RwLockReadGuard::new(self)
    }

    /// A guard for the lock, which the caller has taken exclusively.
    #[inline]
    pub(crate) fn write_guard(&self) -> RwLockWriteGuard<'_, RANK, T> {
        rank::acquired(RANK);
        self.shadow.write(self.data.get());
        RwLockWriteGuard::new(self)
    }

    #[inline]
    fn unlock_read(&self) {
        self.shadow.read(self.data.get());
        rank::released(RANK);
        // Release: the next writer, by its Acquire, comes after our reads.
        let state = self.state.fetch_sub(READER, Ordering::Release) - READER;
        debug_assert_eq!(state & WRITER, 0, "readers or a writer, not both");
        if is_free(state) && state & (READERS_WAIT | WRITERS_WAIT) != 0 {
            self.wake(state);
        }
    }

    #[inline]
    fn unlock_write(&self) {
        self.shadow.write(self.data.get());
        rank::released(RANK);
        self.release_writer();
    }

    #[inline]
    fn release_writer(&self) {
        // Release: pairs with the Acquire of the next taker; publishes the data.
        let state = self.state.fetch_and(!WRITER, Ordering::Release) & !WRITER;
        debug_assert_eq!(readers(state), 0, "readers or a writer, not both");
        if state & (READERS_WAIT | WRITERS_WAIT) != 0 {
            self.wake(state);
        }
    }

    /// The writer becomes a reader; no other writer comes in between.
    fn downgrade(&self) {
        self.shadow.write(self.data.get());
        // Release: pairs with the Acquire of the readers that come in now; publishes the data.
        let before = self.state.fetch_sub(WRITER - READER, Ordering::Release);
        debug_assert_ne!(before & WRITER, 0, "only a writer becomes a reader");
        self.shadow.read(self.data.get());
        let mut state = before - (WRITER - READER);
        // Readers that sleep because of this writer need not wait for the release. Those that sleep
        // because a writer waits are woken by that one.
        while state & READERS_WAIT != 0 && state & WRITERS_WAIT == 0 {
            let cleared = state & !READERS_WAIT;
            if self.mark(&mut state, cleared) {
                backend::futex_wake(&self.state, u32::MAX, READERS);
                return;
            }
        }
    }

    /// Wakes one writer, else all readers. `state` is free, with waiting bits.
    #[cold]
    fn wake(&self, mut state: u32) {
        debug_assert!(is_free(state), "only a free lock wakes");
        if state & WRITERS_WAIT != 0 && backend::futex_wake(&self.state, 1, WRITERS) > 0 {
            // It will take the lock, and then be the one to wake others.
            return;
        }
        // No writer slept; one on its way to sleep has seen the word change. Readers must not
        // wait for it. If the lock is taken meanwhile, its releaser will come here again.
        while is_free(state) && state != 0 {
            let readers_wait = state & READERS_WAIT != 0;
            if self.mark(&mut state, 0) {
                if readers_wait {
                    backend::futex_wake(&self.state, u32::MAX, READERS);
                }
                return;
            }
        }
    }
}

impl<const RANK: u8, T: Default> Default for RwLock<RANK, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for RwLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        out.field("rank", &RANK);
        match self.try_read() {
            Some(guard) => out.field("data", &*guard).finish(),
            None => out.field("data", &format_args!("<locked>")).finish(),
        }
    }
}
