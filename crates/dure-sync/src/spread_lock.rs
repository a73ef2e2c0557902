//! A reader/writer lock whose readers, once several cores read, write no common line.
//!
//! **Problem.** Each reader of an [`RwLock`] writes its word, so that the cores that read one thing
//! send that line to and fro: two cores then read hardly faster than one. **Structure.** An
//! [`RwLock`], a *gate* and, made when first needed, a count per core. While the gate is open a
//! reader adds one to its core's count, looks that the gate is still open, and is in. Otherwise it
//! takes the lock. A writer takes the lock, closes the gate, and waits until all counts are 0. A
//! reader who holds the lock opens the gate after some that *met* others: found them in it, or came
//! after a reader on another core. So a thing that one core uses has no counts, and one that is
//! written all the time has its gate closed, and writers do not visit the counts.
//!
//! **Invariants.** The gate is opened only by a holder of the lock, shared, and closed only by one
//! who has it alone. Of a reader's look at the gate and a writer's look at the counts at least one
//! sees the other (SeqCst): no writer has the data while somebody is counted who has seen the gate
//! open. A count falls to 0 once the gate is closed, since who finds it closed leaves; the last to
//! leave wakes the writer. Neither readers nor writers starve if those of the lock do not.
//! **Crash.** Nothing is kept.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering};
use crate::backend;
use crate::futex::ANYONE;
use crate::rank::{self, Held, Order};
use crate::{OnceLock, PerCore, RwLock, RwLockReadGuard, RwLockWriteGuard, current_core};

const CLOSED: u32 = 0;
const OPEN: u32 = 1;
/// Bits of the count of meetings; above them is a core.
const MET_BITS: u32 = 16;
/// Counts of one lock at most: so many lines a writer has to visit.
const COUNTS_MAX: usize = 64;

/// A reader/writer lock of rank `RANK` around a `T`; see the module.
pub struct SpreadLock<const RANK: u8, T> {
    lock: RwLock<RANK, T>,
    /// OPEN or CLOSED. Written by holders of the lock; read by all readers.
    gate: AtomicU32,
    /// How many readers have met others, and above [`MET_BITS`] the core of the last one, plus 1.
    /// Written by readers who hold the lock; two may undo each other's. Relaxed: a statistic.
    met: AtomicU32,
    /// Readers who came through the gate, by core. Each is written by the readers of its cores.
    counts: OnceLock<PerCore<AtomicU32>>,
}

/// Tasks of different cores that follow each other in a [`SpreadLock`] until its gate opens. Who
/// adapts to sharing in another way may go by the same measure.
pub const MEETINGS: u32 = backend::MEETINGS;

/// Shared access to the data of a [`SpreadLock`]; ends when dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct SpreadReadGuard<'a, const RANK: u8, T> {
    lock: &'a SpreadLock<RANK, T>,
    data: NonNull<T>,
    way: Way<'a, RANK, T>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

/// How a reader came in.
enum Way<'a, const RANK: u8, T> {
    Gate(&'a AtomicU32),
    Lock(#[expect(dead_code, reason = "it is there to be dropped")] RwLockReadGuard<'a, RANK, T>),
}

// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<const RANK: u8, T: Sync> Sync for SpreadReadGuard<'_, RANK, T> {}

impl<const RANK: u8, T> SpreadLock<RANK, T> {
    const_unless_loom! {
        /// A free lock around `data`.
        pub fn new(data: T) -> Self {
            Self {
                lock: RwLock::new(data),
                gate: AtomicU32::new(CLOSED),
                met: AtomicU32::new(0),
                counts: OnceLock::new(),
            }
        }
    }

    /// Takes shared access, sleeping while a writer has or awaits the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
    #[inline]
    pub fn read(&self) -> SpreadReadGuard<'_, RANK, T> {
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
    pub fn read_ordered(&self) -> SpreadReadGuard<'_, RANK, T> {
        rank::check(RANK, Order::Promised);
        match self.enter() {
            Some(count) => self.entered(Way::Gate(count)),
            None => self.read_locked(),
        }
    }

    /// Takes shared access if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<SpreadReadGuard<'_, RANK, T>> {
        match self.enter() {
            Some(count) => Some(self.entered(Way::Gate(count))),
            None => Some(self.entered(Way::Lock(self.lock.try_read()?))),
        }
    }

    /// Takes exclusive access, sleeping while others have the lock.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank.
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
        // Relaxed: whoever opened it held the lock before us.
        if self.gate.load(Ordering::Relaxed) == CLOSED || self.close_if_empty() {
            return Some(self.lock.write_guard());
        }
        self.lock.give_up();
        None
    }

    /// Whether readers have met in it, ever: it has a count per core. Only a hint.
    pub fn readers_met(&self) -> bool {
        self.counts.get().is_some()
    }

    /// The caller has the lock alone, and counts as one who met others if the last reader, or the
    /// last writer who told, was on another core. Says whether that was so. The gate stays as it
    /// is.
    pub fn note_writer(&self) -> bool {
        let own = (u32::from(current_core().number()) + 1) << MET_BITS;
        // Relaxed: a statistic.
        let before = self.met.load(Ordering::Relaxed);
        let last = before >> MET_BITS << MET_BITS;
        if last == own {
            return false;
        }
        let met = last != 0;
        // The next reader to meet others opens the gate.
        let count = (before - last + u32::from(met)).min(backend::MEETINGS);
        // Relaxed: as above.
        self.met.store(own | count, Ordering::Relaxed);
        met
    }

    /// The data, for the sole owner of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// The data; the lock is gone.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }

    /// Comes in through the gate, if it is open.
    #[inline]
    fn enter(&self) -> Option<&AtomicU32> {
        // Relaxed: a hint that spares those who find it closed the rest.
        if self.gate.load(Ordering::Relaxed) == CLOSED {
            return None;
        }
        let count = self.counts.get()?.local();
        // SeqCst: this count and the gate, against the writer's gate and count in `close`.
        count.fetch_add(1, Ordering::SeqCst);
        backend::seq_cst_where_it_needs_saying();
        if self.gate.load(Ordering::SeqCst) == OPEN {
            return Some(count);
        }
        self.leave(count);
        None
    }

    /// One who was counted is gone.
    #[inline]
    fn leave(&self, count: &AtomicU32) {
        // SeqCst: this count and the gate, against the writer's gate and count in `wait_for`.
        // Release is part of it: the writer comes after our reads.
        let before = count.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0, "who leaves was counted");
        backend::seq_cst_where_it_needs_saying();
        if before == 1 && self.gate.load(Ordering::SeqCst) == CLOSED {
            backend::futex_wake(count, u32::MAX, ANYONE);
        }
    }

    #[inline(never)]
    fn read_locked(&self) -> SpreadReadGuard<'_, RANK, T> {
        let (guard, met) = self.lock.read_meeting();
        self.note_meeting(met);
        self.entered(Way::Lock(guard))
    }

    /// A reader has the lock; `met`: with others in it. Lets the next ones in through the gate once
    /// enough have met.
    #[inline]
    fn note_meeting(&self, met: bool) {
        let own = (u32::from(current_core().number()) + 1) << MET_BITS;
        // Relaxed: a statistic.
        let before = self.met.load(Ordering::Relaxed);
        let last = before >> MET_BITS << MET_BITS;
        if last == own && !met {
            return;
        }
        // The first reader of all follows nobody.
        let count = (before - last) + u32::from(met || last != 0);
        if count >= backend::MEETINGS {
            self.open(own);
        } else {
            // Relaxed: as above.
            self.met.store(own | count, Ordering::Relaxed);
        }
    }

    /// Lets further readers in through the gate. The caller has the lock, shared: so no writer
    /// does.
    #[cold]
    fn open(&self, last: u32) {
        let cores = crate::core_count().min(COUNTS_MAX);
        self.counts
            .get_or_init(|| PerCore::new(cores, |_| AtomicU32::new(0)));
        // Relaxed: a statistic.
        self.met.store(last, Ordering::Relaxed);
        // Release: pairs with the SeqCst load in `enter`; publishes the data as the last writer
        // left it.
        self.gate.store(OPEN, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> RwLockWriteGuard<'_, RANK, T> {
        self.lock.take();
        // Relaxed: whoever opened it held the lock before us.
        if self.gate.load(Ordering::Relaxed) == OPEN {
            self.close();
        }
        self.lock.write_guard()
    }

    #[cold]
    fn close(&self) {
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

    /// Closes the gate, unless somebody is in.
    #[cold]
    fn close_if_empty(&self) -> bool {
        self.shut();
        let mut counts = self.counts.get().into_iter().flat_map(PerCore::iter);
        // SeqCst: as in `wait_for`.
        let empty = counts.all(|count| count.load(Ordering::SeqCst) == 0);
        if !empty {
            // Nobody has changed the data. Release: as in `open`.
            self.gate.store(OPEN, Ordering::Release);
        }
        empty
    }

    /// Waits until the readers of one count are gone.
    fn wait_for(&self, count: &AtomicU32) {
        let mut turns = backend::SPIN_TURNS;
        loop {
            // SeqCst: see `leave`. Acquire is part of it: we come after their reads.
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
    fn entered<'a>(&'a self, way: Way<'a, RANK, T>) -> SpreadReadGuard<'a, RANK, T> {
        if matches!(way, Way::Gate(_)) {
            rank::acquired(RANK);
            self.lock.used_shared();
        }
        SpreadReadGuard {
            lock: self,
            data: self.lock.data(),
            way,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }
}

impl<const RANK: u8, T> SpreadReadGuard<'_, RANK, T> {
    /// Evidence that a lock of this rank is held (shared).
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }
}

impl<const RANK: u8, T> Deref for SpreadReadGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the data of the lock, which outlives the guard; the guard is counted as a reader,
        // so nobody writes while it lives.
        unsafe { self.data.as_ref() }
    }
}

impl<const RANK: u8, T> Drop for SpreadReadGuard<'_, RANK, T> {
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

impl<const RANK: u8, T: Default> Default for SpreadLock<RANK, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for SpreadLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SpreadLock");
        out.field("rank", &RANK);
        match self.try_read() {
            Some(guard) => out.field("data", &*guard).finish(),
            None => out.field("data", &format_args!("<locked>")).finish(),
        }
    }
}

impl<const RANK: u8, T: fmt::Debug> fmt::Debug for SpreadReadGuard<'_, RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpreadReadGuard").field(&**self).finish()
    }
}
