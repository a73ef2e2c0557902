//! A sequence count, by which a reader that takes no lock detects a concurrent change.
//!
//! **Problem.** A reader that takes a lock writes a cache line that all readers share, and waits
//! for writers. **Structure.** A counter next to the bytes it covers: even while they are whole,
//! odd while a writer changes them. A reader loads it, copies the bytes, and loads it again; the
//! copy is valid if both loads returned the same even number. **Invariants.** One writer at a time:
//! a lock of the caller ensures that. The copies may race with a change, so they are atomics or
//! [`crate::AtomicBytes`]. A reader writes nothing and never blocks; it may fail for as long as
//! changes follow each other, so after a few tries it takes the writers' lock. **Crash.** Nothing
//! is kept.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::backend;

/// Copies that a reader tries.
const COPIES_MAX: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct SequenceCount(
    /// Written by the holder of the writers' lock; read by any task. Publishes the bytes.
    AtomicU64,
);

/// A count at which the bytes were whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl SequenceCount {
    const_unless_loom! {
        /// The count of bytes that no writer has changed yet.
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Begins a copy; `None` while a writer changes the bytes.
    #[inline]
    #[must_use]
    pub fn look(&self) -> Option<Seen> {
        // Acquire: pairs with the Release at the end of `finish`; the bytes of this count are
        // visible.
        let count = self.0.load(Ordering::Acquire);
        count.is_multiple_of(2).then_some(Seen(count))
    }

    /// Whether a copy made since `seen` is whole: no writer has begun a change.
    #[inline]
    #[must_use]
    pub fn is_still(&self, seen: Seen) -> bool {
        // Acquire: pairs with the fence in `finish`. A reader that copied a byte of a later change
        // sees after this fence that the count is odd, or later.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it after the copies.
        self.0.load(Ordering::Relaxed) == seen.0
    }

    /// Returns what `copy` makes of the bytes as they are at one moment. Waits some microseconds
    /// for changes to end. Returns `None` if they take longer, or if each of a few copies raced
    /// with a change: more copies would cost more than a lock, to the reader and to the writer.
    #[inline]
    pub fn read<R>(&self, mut copy: impl FnMut() -> R) -> Option<R> {
        let mut turns = backend::patient_turns();
        for _ in 0..COPIES_MAX {
            let seen = loop {
                match self.look() {
                    Some(seen) => break seen,
                    None if turns == 0 => return None,
                    None => turns -= 1,
                }
                backend::spin_hint();
            };
            let copied = copy();
            if self.is_still(seen) {
                return Some(copied);
            }
        }
        None
    }

    /// Lets `change` write the bytes. The caller excludes all other writers.
    ///
    /// # Panics
    /// If another task is changing them.
    #[inline]
    pub fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        // Relaxed: the last writer held the caller's lock before.
        let count = self.0.load(Ordering::Relaxed);
        assert!(count.is_multiple_of(2), "bytes are changed by two at once");
        // Relaxed: the fence orders it before the change.
        self.0.store(count + 1, Ordering::Relaxed);
        self.finish(count, change)
    }

    /// Like `change`, but concurrently with other callers of this function; `None` if one of them
    /// is changing the bytes.
    #[inline]
    pub fn try_change<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let Seen(count) = self.look()?;
        // Acquire: pairs with the Release in `finish`, so that changes follow each other.
        self.0
            .compare_exchange(count, count + 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(self.finish(count, change))
    }

    /// Performs the change. The caller has raised the sequence count from `count`, which is even.
    #[inline]
    fn finish<R>(&self, count: u64, change: impl FnOnce() -> R) -> R {
        // Release: pairs with the fence in `is_still`; publishes the odd count with any byte
        // written next.
        fence(Ordering::Release);
        let done = change();
        // Release: pairs with the Acquire in `look`; publishes the bytes.
        self.0.store(count + 2, Ordering::Release);
        done
    }
}
