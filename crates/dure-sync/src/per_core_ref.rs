//! A per-core reference count, as Linux's `percpu_ref`.
//!
//! **Problem.** Each clone or drop of a counted reference writes the cache line of its count, so
//! tasks that only use one object bounce that line between their cores. What the end of the last
//! reference triggers (a deletion) must stay exact all the same.
//!
//! **Structure.** The object keeps a count of its own ([`PerCoreCounted`]); each reference in it is
//! a [`Counted`]. Once cores contend for that count, each puts one [`Counted`] into a *slot* of its
//! own in the object's [`PerCoreRefs`], and hands out per-core references ([`PerCoreRef`]) that
//! only the word of that slot counts. A task that must know whether references are left closes the
//! slots: a slot without per-core references returns its counted one at once, any other with the
//! last of them. So the object's own count is exact whenever it reaches 0, and while no slot is
//! open there is no difference to a plain count.
//!
//! # Life of a slot
//! **Invariants.** A slot's word holds its whole state, so no order between two words matters.
//! While the word is open or counts per-core references, the slot has a counted one; that keeps the
//! object, and hence the slot, alive. The task that changes the word from 0 fills the slot. The
//! task that finds it without references as it closes it, or ends the last one of a closed slot,
//! empties it; no other task accesses the slot from then until that task stores 0. A closed slot
//! gives no references.
//!
//! **Crash.** Nothing is kept.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::atomic::{AtomicU32, Ordering, fence};
use crate::backend::{self, Shadow};
use crate::{Arc, OnceLock, PerCore, current_core};

/// The slot has a counted reference; if no other bit is set, it is being filled or emptied.
const FILLED: u32 = 1 << 31;
/// The slot gives per-core references.
const OPEN: u32 = 1 << 30;
/// Their number.
const REFS: u32 = OPEN - 1;
/// In place of a core: no core has asked yet.
const NOBODY: u32 = u32::MAX;

/// An object that counts its references, and gives per-core references to it.
pub trait PerCoreCounted: Sized {
    /// Its slots, which are embedded in it.
    fn per_core(&self) -> &PerCoreRefs<Self>;

    /// A reference that the object counts has ended. The caller holds no lock of the slots; `this`
    /// keeps the object alive during the call.
    fn ended(this: &Arc<Self>);
}

/// A reference in the object's own count; dropping it calls [`PerCoreCounted::ended`].
pub struct Counted<T: PerCoreCounted>(Arc<T>);

impl<T: PerCoreCounted> Counted<T> {
    /// Takes over a reference that the object has counted already.
    #[must_use]
    pub fn new(object: Arc<T>) -> Counted<T> {
        Counted(object)
    }

    /// The object; the caller takes over its count, so [`PerCoreCounted::ended`] is not called.
    #[must_use]
    pub fn into_object(self) -> Arc<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the reference is moved, not doubled.
        unsafe { std::ptr::read(&raw const this.0) }
    }
}

impl<T: PerCoreCounted> Deref for Counted<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: PerCoreCounted> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        T::ended(&self.0);
    }
}

impl<T: PerCoreCounted> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted(..)")
    }
}

/// The slots of one object.
pub struct PerCoreRefs<T: PerCoreCounted> {
    /// Allocated when the first slot is opened.
    slots: OnceLock<PerCore<Slot<T>>>,
    /// The core that asked last; written by tasks that find no open slot. Relaxed: a statistic.
    last: AtomicU32,
    /// How often the task that asked before was on another core, since slots were last closed.
    /// Relaxed: a statistic.
    contended: AtomicU32,
}

struct Slot<T: PerCoreCounted> {
    /// FILLED, OPEN, and the number of per-core references. Written by tasks of its core, by tasks that close it,
    /// and by tasks that end references on other cores.
    word: AtomicU32,
    shadow: Shadow,
    /// Written while the word is FILLED without OPEN and references, by the task that made it so;
    /// read through per-core references.
    reference: UnsafeCell<Option<Counted<T>>>,
}

// SAFETY: the word ensures that one task at a time writes the cell, and while no task reads it; the
// reference in it is shared by, and dropped on, any thread.
unsafe impl<T: PerCoreCounted + Send + Sync> Sync for Slot<T> {}
// SAFETY: moving a slot moves its reference.
unsafe impl<T: PerCoreCounted + Send + Sync> Send for Slot<T> {}

impl<T: PerCoreCounted> Default for PerCoreRefs<T> {
    fn default() -> Self {
        PerCoreRefs {
            slots: OnceLock::new(),
            last: AtomicU32::new(NOBODY),
            contended: AtomicU32::new(0),
        }
    }
}

impl<T: PerCoreCounted> PerCoreRefs<T> {
    /// Returns a per-core reference, if the slot of this core is open.
    #[inline]
    pub fn borrow(&self) -> Option<PerCoreRef<T>> {
        let slot = self.slots.get()?.local();
        // Relaxed: the exchange checks it again.
        let mut word = slot.word.load(Ordering::Relaxed);
        while word & OPEN != 0 {
            match slot.refer(word, word + 1) {
                Ok(reference) => return Some(reference),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Notes that this core wants a reference and found no open slot. Returns whether cores have
    /// contended here so often that the caller should open one.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        let core = u32::try_from(current_core().index()).expect("at most 65536 cores");
        let contended = self.contended.load(Ordering::Relaxed);
        if contended >= backend::CONTENDED_AFTER {
            return true;
        }
        let last = self.last.load(Ordering::Relaxed);
        if last != core {
            self.last.store(core, Ordering::Relaxed);
            if last != NOBODY {
                self.contended.store(contended + 1, Ordering::Relaxed);
            }
        }
        false
    }

    /// Opens the slot of this core, filling it with the reference that `make` counts if it is
    /// empty, and returns its first reference. Returns `None` while another task fills or empties it.
    /// The caller ensures that no task that relies on closed slots closes them concurrently.
    ///
    /// # Panics
    /// If `make` gives a reference to another object.
    pub fn open(&self, make: impl FnOnce() -> Counted<T>) -> Option<PerCoreRef<T>> {
        let cores = crate::core_count();
        let slots = self
            .slots
            .get_or_init(|| PerCore::new(cores, |_| Slot::new()));
        let slot = slots.local();
        // Relaxed: the exchange checks it again.
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
                match slot.refer(word, (word | OPEN) + 1) {
                    Ok(reference) => return Some(reference),
                    Err(now) => word = now,
                }
            }
        }
    }

    /// Like [`PerCoreRefs::open`], but safe concurrently with tasks that close the slots for ever:
    /// `may_open` checks before and after whether slots may still be opened. A task that closes
    /// them for ever first stores what makes `may_open` false, then calls [`PerCoreRefs::shut`];
    /// after that no slot stays open.
    pub fn open_while(
        &self,
        may_open: impl Fn() -> bool,
        make: impl FnOnce() -> Counted<T>,
    ) -> Option<PerCoreRef<T>> {
        if !may_open() {
            return None;
        }
        let reference = self.open(make)?;
        // SeqCst: orders the opening of the slot before the second check, as the fence in `shut`
        // orders the caller's store before its check of the slots: at least one of the two sees the
        // other.
        fence(Ordering::SeqCst);
        if !may_open() {
            // The caller's own references keep the object, and with it the slots.
            self.close(drop);
        }
        Some(reference)
    }

    /// Closes all slots, after a store by the caller that keeps [`PerCoreRefs::open_while`] from opening
    /// any.
    pub fn shut(&self, returned: impl FnMut(Counted<T>)) {
        // SeqCst: see `open_while`.
        fence(Ordering::SeqCst);
        self.close(returned);
    }

    /// The caller made the word of the slot FILLED.
    fn fill(&self, slot: &Slot<T>, reference: Counted<T>) -> PerCoreRef<T> {
        // The reference keeps the object alive, and the slot in it: so it must be one to this
        // object.
        assert!(
            std::ptr::eq(reference.per_core(), self),
            "a slot has a reference to its own object"
        );
        slot.shadow.write(slot.reference.get());
        // SAFETY: while the word is FILLED without OPEN and references, only the caller accesses the
        // cell.
        let cell = unsafe { &mut *slot.reference.get() };
        assert!(cell.is_none(), "an empty slot is filled");
        *cell = Some(reference);
        // Release: pairs with the Acquire in `refer`; publishes the reference.
        slot.word.store(FILLED | OPEN | 1, Ordering::Release);
        PerCoreRef::of(slot)
    }

    /// Whether a slot is open; only a hint.
    #[must_use]
    pub fn has_open_slots(&self) -> bool {
        let mut slots = self.slots.get().into_iter().flat_map(PerCore::iter);
        // Relaxed: a hint.
        slots.any(|slot| slot.word.load(Ordering::Relaxed) & OPEN != 0)
    }

    /// Closes all slots; `returned` gets the counted references of those without others. The rest are
    /// returned when their last per-core references end.
    pub fn close(&self, mut returned: impl FnMut(Counted<T>)) {
        let Some(slots) = self.slots.get() else {
            return;
        };
        // Relaxed: a statistic.
        self.contended.store(0, Ordering::Relaxed);
        for slot in slots.iter() {
            // Relaxed: excluding tasks that open a slot concurrently is up to the caller.
            if slot.word.load(Ordering::Relaxed) & OPEN == 0 {
                continue;
            }
            // AcqRel: as in `PerCoreRef::give_back`, for the case that this empties the slot.
            let before = slot.word.fetch_and(!OPEN, Ordering::AcqRel);
            if before == FILLED | OPEN {
                returned(slot.take());
            }
        }
    }
}

impl<T: PerCoreCounted> Slot<T> {
    fn new() -> Slot<T> {
        Slot {
            word: AtomicU32::new(0),
            shadow: Shadow::new(),
            reference: UnsafeCell::new(None),
        }
    }

    /// Returns a reference, if the word is still `before`, in which the slot has a reference.
    #[inline]
    fn refer(&self, before: u32, after: u32) -> Result<PerCoreRef<T>, u32> {
        assert!(before & REFS < REFS, "references fit in 30 bits");
        // Acquire: pairs with the Release in `fill`; the reference is there.
        self.word
            .compare_exchange_weak(before, after, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| PerCoreRef::of(self))
    }

    /// Empties the slot. The caller made the word FILLED without OPEN and references, which happens
    /// after all uses of its references.
    fn take(&self) -> Counted<T> {
        self.shadow.write(self.reference.get());
        // SAFETY: while the word is FILLED without OPEN and references, only the caller accesses the
        // cell.
        let cell = unsafe { &mut *self.reference.get() };
        let reference = cell.take().expect("a filled slot has a reference");
        // Release: pairs with the Acquire in `PerCoreRefs::open`; the slot is empty.
        self.word.store(0, Ordering::Release);
        reference
    }
}

impl<T: PerCoreCounted> fmt::Debug for PerCoreRefs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.get().into_iter().flat_map(PerCore::iter);
        // Relaxed: for display.
        f.debug_list()
            .entries(slots.map(|slot| slot.word.load(Ordering::Relaxed)))
            .finish()
    }
}

/// A per-core reference: counted in the word of a slot only. It may be dropped on any core.
pub struct PerCoreRef<T: PerCoreCounted> {
    slot: NonNull<Slot<T>>,
    _reference: PhantomData<Counted<T>>,
}

// SAFETY: a reference gives `&Arc<T>`, and its end may drop a `Counted<T>`; both may happen on any
// thread if `T` may be shared by, and dropped on, all of them.
unsafe impl<T: PerCoreCounted + Send + Sync> Send for PerCoreRef<T> {}
// SAFETY: a shared one gives no more than `&Arc<T>`.
unsafe impl<T: PerCoreCounted + Send + Sync> Sync for PerCoreRef<T> {}

impl<T: PerCoreCounted> PerCoreRef<T> {
    /// Wraps a reference that the word of the slot already counts.
    #[inline]
    fn of(slot: &Slot<T>) -> PerCoreRef<T> {
        slot.shadow.read(slot.reference.get());
        PerCoreRef {
            slot: NonNull::from(slot),
            _reference: PhantomData,
        }
    }

    #[inline]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: while this is counted the slot has a counted reference, which keeps the object that
        // contains the slot.
        unsafe { self.slot.as_ref() }
    }
}

impl<T: PerCoreCounted> Deref for PerCoreRef<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        // SAFETY: no task writes the cell while this is counted.
        let cell = unsafe { &*self.slot().reference.get() };
        cell.as_ref().expect("a slot that counts has a reference")
    }
}

impl<T: PerCoreCounted> PerCoreRef<T> {
    /// Ends it, as dropping it does, but returns the slot's reference to the caller if this
    /// was the last one of a closed slot.
    #[must_use]
    pub fn end(self) -> Option<Counted<T>> {
        ManuallyDrop::new(self).give_back()
    }

    /// The caller does not use it after this.
    #[inline]
    fn give_back(&mut self) -> Option<Counted<T>> {
        let slot = self.slot();
        slot.shadow.read(slot.reference.get());
        // AcqRel: the task that empties the slot must come after the uses of all references, which are
        // in one release sequence.
        let before = slot.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(before & REFS, 0, "a reference ends once");
        // From here on any task may empty an open slot, and the object may be freed: only the last
        // reference of a closed slot accesses it again.
        (before == FILLED | 1).then(|| slot.take())
    }
}

impl<T: PerCoreCounted> Drop for PerCoreRef<T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

impl<T: PerCoreCounted> fmt::Debug for PerCoreRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerCoreRef(..)")
    }
}
