//! References to one object that many cores take and drop, counted per core.
//!
//! **Problem.** Whoever clones or drops a counted reference writes the line of its count, so tasks
//! that do nothing but use one object send that line to and fro. What the end of the last reference
//! sets off (a deletion) must stay exact all the same. **Structure.** The object counts its
//! references itself ([`Lend`]), each of which is a [`Counted`]. Once cores have met at the count,
//! each puts one [`Counted`] into a *slot* of its own in the object's [`Lender`], and gives out
//! [`Loan`]s of it, which only the word of that slot counts. Whoever wants to know whether
//! references are left closes the slots: an unused one gives its reference back at once, another
//! one with its last loan. So the object's own count tells the truth whenever it reaches 0, and
//! while no slot is open it is as if there were no slots.
//!
//! **Invariants.** The word of a slot is all there is to agree on, so no two words need an order.
//! While it is open or has loans, the slot has a reference, hence the object, hence the slot,
//! stays. It is filled by who changed the word from 0, and emptied by who found it closed and took
//! the last loan away (or closed it without loans): between that and the 0 he writes nobody else
//! comes near. A closed slot gives no loans. **Crash.** Nothing is kept.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering, fence};
use crate::backend::{self, Shadow};
use crate::{Arc, OnceLock, PerCore, current_core};

/// The slot has a reference; alone, it is being filled or emptied.
const FILLED: u32 = 1 << 31;
/// It gives loans.
const OPEN: u32 = 1 << 30;
/// Its loans.
const LOANS: u32 = OPEN - 1;
/// Slots of one object at most.
const SLOTS_MAX: usize = 64;
/// In place of a core: none was there yet.
const NOBODY: u32 = u32::MAX;

/// An object that counts its references, and lends them.
pub trait Lend: Sized {
    /// The lender that is part of it.
    fn lender(&self) -> &Lender<Self>;

    /// A reference that the object counts has ended. No lock of the lender is held; `this` keeps
    /// the object for the time of the call.
    fn ended(this: &Arc<Self>);
}

/// A reference that the object counts; [`Lend::ended`] when it is dropped.
pub struct Counted<T: Lend>(Arc<T>);

impl<T: Lend> Counted<T> {
    /// Takes over a reference that the object has counted already.
    #[must_use]
    pub fn new(object: Arc<T>) -> Counted<T> {
        Counted(object)
    }

    /// The object, whose count the caller takes over: this does not end there.
    #[must_use]
    pub fn into_object(self) -> Arc<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the reference is moved, not doubled.
        unsafe { std::ptr::read(&raw const this.0) }
    }
}

impl<T: Lend> Deref for Counted<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Lend> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        T::ended(&self.0);
    }
}

impl<T: Lend> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted(..)")
    }
}

/// The slots of one object.
pub struct Lender<T: Lend> {
    /// Made by the first who opens one.
    slots: OnceLock<PerCore<Slot<T>>>,
    /// The core that asked last; by those who find no open slot. Relaxed: a statistic.
    last: AtomicU32,
    /// How often another core had asked before, since slots were last closed. Relaxed: a statistic.
    met: AtomicU32,
}

struct Slot<T: Lend> {
    /// FILLED, OPEN, and the number of loans. By tasks of its core, those who close, and loans that
    /// end elsewhere.
    word: AtomicU32,
    shadow: Shadow,
    /// Written while the word is FILLED alone, by who made it so; read by loans.
    reference: UnsafeCell<Option<Counted<T>>>,
}

// SAFETY: the word sees to it that the cell is written by one task at a time and while nobody reads
// it; the reference in it is shared by, and dropped on, any thread.
unsafe impl<T: Lend + Send + Sync> Sync for Slot<T> {}
// SAFETY: moving a slot moves its reference.
unsafe impl<T: Lend + Send + Sync> Send for Slot<T> {}

impl<T: Lend> Default for Lender<T> {
    fn default() -> Self {
        Lender {
            slots: OnceLock::new(),
            last: AtomicU32::new(NOBODY),
            met: AtomicU32::new(0),
        }
    }
}

impl<T: Lend> Lender<T> {
    /// A loan, if the slot of this core is open.
    #[inline]
    pub fn borrow(&self) -> Option<Loan<T>> {
        let slot = self.slots.get()?.local();
        // Relaxed: the exchange looks again.
        let mut word = slot.word.load(Ordering::Relaxed);
        while word & OPEN != 0 {
            match slot.lend(word, word + 1) {
                Ok(loan) => return Some(loan),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Notes that this core wants a reference and finds no open slot; whether cores have met here
    /// so often that it should open one.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        let core = u32::try_from(current_core().index()).expect("at most 65536 cores");
        let met = self.met.load(Ordering::Relaxed);
        if met >= backend::MEETINGS {
            return true;
        }
        let last = self.last.load(Ordering::Relaxed);
        if last != core {
            self.last.store(core, Ordering::Relaxed);
            if last != NOBODY {
                self.met.store(met + 1, Ordering::Relaxed);
            }
        }
        false
    }

    /// Opens the slot of this core, with the reference that `make` counts if it has none, and gives
    /// the first loan. `None` if somebody is just filling or emptying it. The caller knows that
    /// nobody closes the slots meanwhile who needs them closed.
    ///
    /// # Panics
    /// If `make` gives a reference to another object.
    pub fn open(&self, make: impl FnOnce() -> Counted<T>) -> Option<Loan<T>> {
        let cores = crate::core_count().min(SLOTS_MAX);
        let slots = self
            .slots
            .get_or_init(|| PerCore::new(cores, |_| Slot::new()));
        let slot = slots.local();
        // Relaxed: the exchange looks again.
        let mut word = slot.word.load(Ordering::Relaxed);
        loop {
            if word == FILLED {
                return None;
            }
            if word == 0 {
                // Acquire: pairs with the Release in `take`; the slot is empty.
                match slot
                    .word
                    .compare_exchange(0, FILLED, Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => return Some(self.fill(slot, make())),
                    Err(now) => word = now,
                }
            } else {
                match slot.lend(word, (word | OPEN) + 1) {
                    Ok(loan) => return Some(loan),
                    Err(now) => word = now,
                }
            }
        }
    }

    /// As [`Lender::open`] beside those who close the slots for ever: `lends` looks whether they
    /// may still be opened, before and after. Whoever makes it say no stores that, and calls
    /// [`Lender::shut`]; then no slot stays open.
    pub fn open_while(
        &self,
        lends: impl Fn() -> bool,
        make: impl FnOnce() -> Counted<T>,
    ) -> Option<Loan<T>> {
        if !lends() {
            return None;
        }
        let loan = self.open(make)?;
        // SeqCst: orders the open slot before the look, as the fence in `shut` orders what it says
        // before the look at the slots: one of the two sees the other.
        fence(Ordering::SeqCst);
        if !lends() {
            // The caller keeps the object, and with it the slots.
            self.close(drop);
        }
        Some(loan)
    }

    /// Closes all slots behind what the caller stored, which keeps [`Lender::open_while`] from
    /// opening any.
    pub fn shut(&self, returned: impl FnMut(Counted<T>)) {
        // SeqCst: see `open_while`.
        fence(Ordering::SeqCst);
        self.close(returned);
    }

    /// The caller made the word of the slot FILLED.
    fn fill(&self, slot: &Slot<T>, reference: Counted<T>) -> Loan<T> {
        // The reference keeps the object, and the slot in it: so it must be one to this object.
        assert!(
            std::ptr::eq(reference.lender(), self),
            "a lender lends its own object"
        );
        slot.shadow.write(slot.reference.get());
        // SAFETY: FILLED without OPEN and loans belongs to the caller alone.
        let cell = unsafe { &mut *slot.reference.get() };
        assert!(cell.is_none(), "an empty slot is filled");
        *cell = Some(reference);
        // Release: pairs with the Acquire in `lend`; publishes the reference.
        slot.word.store(FILLED | OPEN | 1, Ordering::Release);
        Loan::of(slot)
    }

    /// Whether a slot is open; only a hint.
    #[must_use]
    pub fn is_lending(&self) -> bool {
        let mut slots = self.slots.get().into_iter().flat_map(PerCore::iter);
        // Relaxed: a hint.
        slots.any(|slot| slot.word.load(Ordering::Relaxed) & OPEN != 0)
    }

    /// Closes all slots; `returned` gets the references of those without loans. The others come
    /// back with their last loans.
    pub fn close(&self, mut returned: impl FnMut(Counted<T>)) {
        let Some(slots) = self.slots.get() else {
            return;
        };
        // Relaxed: a statistic.
        self.met.store(0, Ordering::Relaxed);
        for slot in slots.iter() {
            // Relaxed: a slot that is opened meanwhile is the caller's business.
            if slot.word.load(Ordering::Relaxed) & OPEN == 0 {
                continue;
            }
            // AcqRel: as in `Loan::drop`, should this be the end of it.
            let before = slot.word.fetch_and(!OPEN, Ordering::AcqRel);
            if before == FILLED | OPEN {
                returned(slot.take());
            }
        }
    }
}

impl<T: Lend> Slot<T> {
    fn new() -> Slot<T> {
        Slot {
            word: AtomicU32::new(0),
            shadow: Shadow::new(),
            reference: UnsafeCell::new(None),
        }
    }

    /// A loan, if the word is still `before`, with which the slot has a reference.
    #[inline]
    fn lend(&self, before: u32, after: u32) -> Result<Loan<T>, u32> {
        assert!(before & LOANS < LOANS, "loans fit in 30 bits");
        // Acquire: pairs with the Release in `fill`; the reference is there.
        self.word
            .compare_exchange_weak(before, after, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| Loan::of(self))
    }

    /// Empties the slot. The caller made the word FILLED alone, and comes after all loans.
    fn take(&self) -> Counted<T> {
        self.shadow.write(self.reference.get());
        // SAFETY: FILLED without OPEN and loans belongs to the caller alone.
        let cell = unsafe { &mut *self.reference.get() };
        let reference = cell.take().expect("a filled slot has a reference");
        // Release: pairs with the Acquire in `Lender::open`; the slot is empty.
        self.word.store(0, Ordering::Release);
        reference
    }
}

impl<T: Lend> fmt::Debug for Lender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.get().into_iter().flat_map(PerCore::iter);
        // Relaxed: for display.
        f.debug_list()
            .entries(slots.map(|slot| slot.word.load(Ordering::Relaxed)))
            .finish()
    }
}

/// The use of a reference in a slot. It may be dropped on any core.
pub struct Loan<T: Lend> {
    slot: NonNull<Slot<T>>,
    _reference: PhantomData<Counted<T>>,
}

// SAFETY: a loan gives `&Arc<T>`, and its end may drop a `Counted<T>`; both may happen on any
// thread if `T` may be shared by, and dropped on, all of them.
unsafe impl<T: Lend + Send + Sync> Send for Loan<T> {}
// SAFETY: a shared loan gives no more than `&Arc<T>`.
unsafe impl<T: Lend + Send + Sync> Sync for Loan<T> {}

impl<T: Lend> Loan<T> {
    /// A loan that the word of the slot counts.
    #[inline]
    fn of(slot: &Slot<T>) -> Loan<T> {
        slot.shadow.read(slot.reference.get());
        Loan {
            slot: NonNull::from(slot),
            _reference: PhantomData,
        }
    }

    #[inline]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: as long as the loan is counted the slot has its reference, which keeps the object
        // that the slot is part of.
        unsafe { self.slot.as_ref() }
    }
}

impl<T: Lend> Deref for Loan<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        // SAFETY: nobody writes the cell while the loan is counted.
        let cell = unsafe { &*self.slot().reference.get() };
        cell.as_ref().expect("a slot with loans has a reference")
    }
}

impl<T: Lend> Loan<T> {
    /// Ends it, as dropping it does, but gives the reference to the caller if the slot has no more
    /// use for it.
    #[must_use]
    pub fn end(self) -> Option<Counted<T>> {
        ManuallyDrop::new(self).give_back()
    }

    /// The loan is not used any more after this.
    #[inline]
    fn give_back(&mut self) -> Option<Counted<T>> {
        let slot = self.slot();
        slot.shadow.read(slot.reference.get());
        // AcqRel: who empties the slot comes after the uses of all loans, which are in one release
        // sequence.
        let before = slot.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(before & LOANS, 0, "a loan ends once");
        // Anybody may empty an open slot from here on, and the object may go: only the last loan of
        // a closed one looks at it again.
        (before == FILLED | 1).then(|| slot.take())
    }
}

impl<T: Lend> Drop for Loan<T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

impl<T: Lend> fmt::Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loan(..)")
    }
}
