//! Dirty, flushed, persisted: the three states of a store, as a chain of types.
//!
//! **Invariants.** Each is made from the one before, by the instruction that leads to it. The first
//! two stay on their thread: a fence waits for the write-backs of its own thread only. **On a crash** only what is
//! [`Persisted`] is certain.

use std::marker::PhantomData;
use std::ops::Range;

use crate::Region;

/// Stays on its thread.
pub(crate) type OnThisThread<'r> = PhantomData<(&'r Region, *const ())>;

/// Stored, and perhaps only in a cache.
#[must_use = "it is not durable: write it back, and fence"]
#[derive(Debug)]
pub struct Dirty<'r> {
    pub(crate) region: &'r Region,
    pub(crate) bytes: Range<usize>,
    pub(crate) here: OnThisThread<'r>,
}

/// On its way to the medium.
#[must_use = "it is not durable: fence"]
#[derive(Debug)]
pub struct Flushed<'r> {
    pub(crate) region: &'r Region,
    pub(crate) here: OnThisThread<'r>,
}

/// Durable.
#[derive(Debug)]
pub struct Persisted<'r>(pub(crate) PhantomData<&'r Region>);

impl<'r> Dirty<'r> {
    /// Writes the cache lines back.
    pub fn write_back(self) -> Flushed<'r> {
        self.region.write_back(self.bytes);
        Flushed {
            region: self.region,
            here: self.here,
        }
    }
}

impl<'r> Flushed<'r> {
    /// Waits until it is durable, with all that this thread has written back to the region.
    pub fn fence(self) -> Persisted<'r> {
        self.region.fence();
        Persisted(PhantomData)
    }

    /// Both, so that one fence does.
    ///
    /// # Panics
    /// If they are of different regions, which may have to be fenced in different ways.
    pub fn and(self, other: Flushed<'r>) -> Flushed<'r> {
        assert!(
            std::ptr::eq(self.region, other.region),
            "both were written to one region"
        );
        self
    }
}
