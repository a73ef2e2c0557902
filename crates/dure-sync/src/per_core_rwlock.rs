//! A per-core reader/writer lock: once several cores read, readers write no common cache line.
//!
//! **Problem.** Each reader of an [`RwLock`] writes its word, so cores that read the same data
//! bounce that line: two cores then read hardly faster than one.
//!
//! **Structure.** An [`RwLock`], a *gate* and, allocated when first needed, a reader count per
//! core. While the gate is open, a reader increments its core's count, checks that the gate is
//! still open, and has shared access. Otherwise it takes the lock. A writer takes the lock, closes
//! the gate, and waits until all counts are 0. A reader that holds the lock opens the gate once
//! enough readers *contended*: found others in the lock, or came after a reader on another core. So
//! data used by one core has no counts; and while data is written all the time its gate stays
//! closed, and writers do not visit the counts. The gate of a lock made
//! [`with_one_count`](PerCoreRwLock::with_one_count) is sealed: it never opens.
//!
//! # Why no reader overlaps a writer
//! **Invariants.** Only a holder of the shared lock opens the gate; only a holder of the exclusive
//! lock closes it. A reader increments, then checks the gate; a writer closes the gate, then checks
//! the counts; all SeqCst, so at least one sees the other: no writer gets access while a reader
//! that saw the gate open is counted. After the gate closes each count falls to 0, since a reader
//! that finds it closed decrements again; the last one wakes the writer. Neither readers nor
//! writers starve if those of the [`RwLock`] do not. **Crash.** Nothing is kept.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering};
use crate::backend;
use crate::futex::ANYONE;
use crate::rank::{self, Held, Order};
use crate::waiting::Waiting;
use crate::{OnceLock, PerCore, RwLock, RwLockReadGuard, RwLockWriteGuard, current_core};

const CLOSED: u32 = 0;
const OPEN: u32 = 1;
/// Closed for ever: the lock has one count of readers.
const SEALED: u32 = 2;
/// Bits of the contention count; the bits above hold a core.
const COUNT_BITS: u32 = 16;

/// A reader/writer lock of rank `RANK` around a `T`, which lies behind everything else; see the
/// module.
#[repr(C)]
pub struct PerCoreRwLock<const RANK: u8, T> {
    /// OPEN or CLOSED, or SEALED from the start. Written by holders of the lock; read by all readers.
    gate: AtomicU32,
    /// How often readers contended, and above [`COUNT_BITS`] the core, plus 1, of the last reader,
    /// or writer that called `note_writer`. Written by holders of the lock; concurrent readers may
    /// overwrite each other's update. Relaxed: a statistic.
    contended: AtomicU32,
    /// Counts of the readers that came through the gate; each is written by the readers of its
    /// cores.
    counts: OnceLock<PerCore<AtomicU32>>,
    lock: RwLock<RANK, T>,
}

/// How often tasks of different cores must follow each other in a [`PerCoreRwLock`] before its gate
/// opens. Callers that adapt to sharing in another way may use the same threshold.
pub const CONTENDED_AFTER: u32 = backend::CONTENDED_AFTER;

/// Shared access to the data of a [`PerCoreRwLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct PerCoreReadGuard<'a, const RANK: u8, T> {
    lock: &'a PerCoreRwLock<RANK, T>,
    data: NonNull<T>,
    way: Way<'a, RANK, T>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

/// How a reader got shared access.
enum Way<'a, const RANK: u8, T> {
    Gate(&'a AtomicU32),
    Lock(#[expect(dead_code, reason = "it is there to be dropped")] RwLockReadGuard<'a, RANK, T>),
}

// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<const RANK: u8, T: Sync> Sync for PerCoreReadGuard<'_, RANK, T> {}

impl<const RANK: u8, T> PerCoreRwLock<RANK, T> {
    const_unless_loom! {
        /// A free lock around `data`.
        pub fn new(data: T) -> Self {
            Self {
                lock: RwLock::new(data),
                gate: AtomicU32::new(CLOSED),
                contended: AtomicU32::new(0),
                counts: OnceLock::new(),
            }
        }
    }

    const_unless_loom! {
        /// A free lock around `data` whose readers all write one count, however many cores they
        /// are on: an [`RwLock`], as the kernel's i_rwsem.
        pub fn with_one_count(data: T) -> Self {
            Self {
                lock: RwLock::new(data),
                gate: AtomicU32::new(SEALED),
                contended: AtomicU32::new(0),
                counts: OnceLock::new(),
            }
        }
    }

    /// Takes shared access, sleeping while a writer holds or awaits the lock.
    #[inline]
    pub fn read(&self) -> PerCoreReadGuard<'_, RANK, T> {
        rank::check(RANK, Order::Rising);
        match self.enter() {
            Some(count) => self.entered(Way::Gate(count)),
            None => self.read_locked(),
        }
    }

    /// Takes shared access although locks of the same rank may be held: the caller promises that
    /// all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn read_ordered(&self) -> PerCoreReadGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        match self.enter() {
            Some(count) => self.entered(Way::Gate(count)),
            None => self.read_locked(),
        }
    }

    /// Takes shared access if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<PerCoreReadGuard<'_, RANK, T>> {
        match self.enter() {
            Some(count) => Some(self.entered(Way::Gate(count))),
            None => Some(self.entered(Way::Lock(self.lock.try_read()?))),
        }
    }

    /// Takes exclusive access, sleeping while other tasks hold the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, RANK, T> {
        rank::check(RANK, Order::Rising);
        self.take()
    }

    /// Takes exclusive access although locks of the same rank may be held: the caller promises
    /// that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn write_ordered(&self) -> RwLockWriteGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        self.take()
    }

    /// Takes exclusive access if that needs no waiting.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, RANK, T>> {
        if !self.lock.try_take() {
            return None;
        }
        // Relaxed: the task that opened it held the lock before us.
        if self.gate.load(Ordering::Relaxed) != OPEN || self.close_if_empty() {
            return Some(self.lock.write_guard());
        }
        self.lock.give_up();
        None
    }

    /// Whether readers ever contended for it: it then has a count per core. Only a hint.
    pub fn readers_contended(&self) -> bool {
        self.counts.get().is_some()
    }

    /// The caller holds the lock exclusively. Counts it as contended, and returns `true`, if the
    /// last reader, or the last writer that called this, was on another core. The gate stays as it
    /// is.
    pub fn note_writer(&self) -> bool {
        let own = (u32::from(current_core().number()) + 1) << COUNT_BITS;
        // Relaxed: a statistic.
        let before = self.contended.load(Ordering::Relaxed);
        let last = before >> COUNT_BITS << COUNT_BITS;
        if last == own {
            return false;
        }
        let contended = last != 0;
        // The next reader that contends opens the gate.
        let count = (before - last + u32::from(contended)).min(backend::CONTENDED_AFTER);
        // Relaxed: as above.
        self.contended.store(own | count, Ordering::Relaxed);
        contended
    }

    /// The data, for the sole owner of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// The data; the lock is gone.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }

    /// Enters through the gate, if it is open.
    #[inline]
    fn enter(&self) -> Option<&AtomicU32> {
        // Relaxed: a hint that spares readers the rest if the gate is closed.
        if self.gate.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        let count = self.counts.get()?.local();
        // SeqCst: orders this increment before the check of the gate, against the writer's store to
        // the gate and check of the counts in `close`.
        count.fetch_add(1, Ordering::SeqCst);
        backend::seq_cst_where_it_needs_saying();
        if self.gate.load(Ordering::SeqCst) == OPEN {
            return Some(count);
        }
        self.leave(count);
        None
    }

    /// Removes a counted reader.
    #[inline]
    fn leave(&self, count: &AtomicU32) {
        // SeqCst: orders this decrement before the check of the gate, against the writer's store to
        // the gate and check of the count in `wait_for`. It includes Release: the writer comes
        // after our reads.
        let before = count.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0, "a reader that leaves was counted");
        backend::seq_cst_where_it_needs_saying();
        if before == 1 && self.gate.load(Ordering::SeqCst) == CLOSED {
            backend::futex_wake(count, u32::MAX, ANYONE);
        }
    }

    #[inline(never)]
    fn read_locked(&self) -> PerCoreReadGuard<'_, RANK, T> {
        let (guard, contended) = self.lock.read_noting();
        self.note_contention(contended);
        self.entered(Way::Lock(guard))
    }

    /// Called by a reader that holds the lock; `contended`: other tasks hold or await it too. Opens
    /// the gate for the next readers once enough have contended.
    #[inline]
    fn note_contention(&self, contended: bool) {
        let own = (u32::from(current_core().number()) + 1) << COUNT_BITS;
        // Relaxed: a statistic.
        let before = self.contended.load(Ordering::Relaxed);
        let last = before >> COUNT_BITS << COUNT_BITS;
        if last == own && !contended {
            return;
        }
        // The very first reader follows no other.
        let count = (before - last) + u32::from(contended || last != 0);
        if count >= backend::CONTENDED_AFTER {
            self.open(own);
        } else {
            // Relaxed: as above.
            self.contended.store(own | count, Ordering::Relaxed);
        }
    }

    /// Opens the gate for further readers. The caller holds the shared lock, so no writer holds it.
    #[cold]
    fn open(&self, last: u32) {
        // Relaxed: it is so from the start or never.
        if self.gate.load(Ordering::Relaxed) == SEALED {
            return;
        }
        let cores = crate::core_count();
        self.counts
            .get_or_init(|| PerCore::new(cores, |_| AtomicU32::new(0)));
        // Relaxed: a statistic.
        self.contended.store(last, Ordering::Relaxed);
        // Release: pairs with the SeqCst load in `enter`; publishes the data as the last writer
        // left it.
        self.gate.store(OPEN, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> RwLockWriteGuard<'_, RANK, T> {
        self.lock.take();
        // Relaxed: the task that opened it held the lock before us.
        if self.gate.load(Ordering::Relaxed) == OPEN {
            self.close();
        }
        self.lock.write_guard()
    }

    #[cold]
    fn close(&self) {
        let _waiting = Waiting::on_lock(RANK);
        self.shut();
        for count in self.counts.get().into_iter().flat_map(PerCore::iter) {
            self.wait_for(count);
        }
    }

    fn shut(&self) {
        // SeqCst: the gate and the counts, against `enter` and `leave`.
        self.gate.store(CLOSED, Ordering::SeqCst);
        backend::seq_cst_where_it_needs_saying();
    }

    /// Closes the gate, unless a reader is counted.
    #[cold]
    fn close_if_empty(&self) -> bool {
        self.shut();
        let mut counts = self.counts.get().into_iter().flat_map(PerCore::iter);
        // SeqCst: as in `wait_for`.
        let empty = counts.all(|count| count.load(Ordering::SeqCst) == 0);
        if !empty {
            // The data is unchanged. Release: as in `open`.
            self.gate.store(OPEN, Ordering::Release);
        }
        empty
    }

    /// Waits until one count is 0.
    fn wait_for(&self, count: &AtomicU32) {
        let mut turns = backend::SPIN_TURNS;
        loop {
            // SeqCst: see `leave`. It includes Acquire: we come after the readers' reads.
            let readers = count.load(Ordering::SeqCst);
            if readers == 0 {
                return;
            }
            if turns > 0 {
                turns -= 1;
                backend::spin_hint();
            } else {
                backend::futex_wait(count, readers, ANYONE, None);
            }
        }
    }

    #[inline]
    fn entered<'a>(&'a self, way: Way<'a, RANK, T>) -> PerCoreReadGuard<'a, RANK, T> {
        if matches!(way, Way::Gate(_)) {
            rank::acquired(RANK);
            self.lock.used_shared();
        }
        PerCoreReadGuard {
            lock: self,
            data: self.lock.data(),
            way,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }
}

impl<const RANK: u8, T> PerCoreReadGuard<'_, RANK, T> {
    /// Evidence that a lock of this rank is held (shared).
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }
}

impl<const RANK: u8, T> Deref for PerCoreReadGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the data of the lock, which outlives the guard; the guard is counted as a reader,
        // so no task writes while it lives.
        unsafe { self.data.as_ref() }
    }
}

impl<const RANK: u8, T> Drop for PerCoreReadGuard<'_, RANK, T> {
    #[inline]
    fn drop(&mut self) {
        match &self.way {
            Way::Gate(count) => {
                self.lock.lock.used_shared();
                rank::released(RANK);
                self.lock.leave(count);
            }
            // Released by its own guard.
            Way::Lock(_) => {}
        }
    }
}

impl<const RANK: u8, T: Default> Default for PerCoreRwLock<RANK, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for PerCoreRwLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("PerCoreRwLock");
        out.field("rank", &RANK);
        match self.try_read() {
            Some(guard) => out.field("data", &*guard).finish(),
            None => out.field("data", &format_args!("<locked>")).finish(),
        }
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for PerCoreReadGuard<'_, RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerCoreReadGuard").field(&**self).finish()
    }
}
