//! One value per core.
//!
//! **Problem.** Data that every operation touches must not be shared by cores. **Structure.** A
//! boxed slice of padded slots, indexed by [`CoreId`] modulo its length, so that a structure made
//! for n cores (for example a journal with n logs on media) works on a machine with any number.
//! **Invariants.** At least one slot; slots never share a cache line. Two tasks may use the same
//! slot at once (migration, modulo), so `T` does its own synchronization. **Crash.** Nothing is
//! kept.

use crate::{CachePadded, CoreId, current_core};

/// One `T` per core, each on its own cache lines.
#[derive(Debug)]
pub struct PerCore<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCore<T> {
    /// Makes `count` slots with `make`.
    ///
    /// # Panics
    /// If `count` is 0 or above 65536.
    pub fn new(count: usize, mut make: impl FnMut(CoreId) -> T) -> Self {
        assert!(count > 0, "per-core data needs at least one slot");
        let slots = (0..count)
            .map(|index| {
                let number = u16::try_from(index).expect("at most 65536 cores");
                CachePadded::new(make(CoreId::new(number)))
            })
            .collect();
        Self { slots }
    }

    /// The slot of `core`, modulo the number of slots.
    #[inline]
    pub fn get(&self, core: CoreId) -> &T {
        let index = core.index();
        let count = self.slots.len();
        // The division is skipped in the usual case of a slot for each core.
        &self.slots[if index < count { index } else { index % count }]
    }

    /// The slot of the current core.
    #[inline]
    pub fn local(&self) -> &T {
        self.get(current_core())
    }

    /// All slots in core order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// All slots in core order, for the sole owner.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.slots.iter_mut().map(|slot| &mut **slot)
    }

    /// The number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Always false: there is at least one slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
