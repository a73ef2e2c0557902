//! The guard of a range.
//!
//! **Problem.** Access must end on every path, and functions that need it must be able to check it.
//! **Structure.** One guard for both kinds of access, released when dropped. **Invariants.** A
//! guard exists exactly while its claim is held. **Crash.** Nothing is kept.

use std::fmt;
use std::marker::PhantomData;

use super::bitmap::Bits;
use super::intervals::NodeIndex;
use super::segment::Shared;
use super::words;
use super::{Access, ByteRange, RangeLock};
use crate::Held;

/// What a policy needs to release a claim.
#[derive(Debug)]
pub(super) enum Hold<'a> {
    Whole,
    Interval(NodeIndex),
    Bits(words::Hold<'a, Bits>),
    Segments(words::Hold<'a, Shared>),
}

/// Access to a range of a file; ends when dropped.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct RangeGuard<'a, const RANK: u8> {
    lock: &'a RangeLock<RANK>,
    range: ByteRange,
    access: Access,
    hold: Hold<'a>,
    held: Held<RANK>,
    /// Ranks are counted per task, so a guard stays with the task that took it.
    _not_send: PhantomData<*const ()>,
}

impl<'a, const RANK: u8> RangeGuard<'a, RANK> {
    /// The caller has just taken this access.
    #[inline]
    pub(super) fn new(
        lock: &'a RangeLock<RANK>,
        range: ByteRange,
        access: Access,
        hold: Hold<'a>,
    ) -> Self {
        Self {
            lock,
            range,
            access,
            hold,
            held: Held::new(),
            _not_send: PhantomData,
        }
    }

    /// The bytes the caller asked for; the pages or segments around them are held.
    #[inline]
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Shared or exclusive.
    #[inline]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether this guard allows `access` to all of `range`: for assertions.
    #[must_use]
    pub fn allows(&self, range: ByteRange, access: Access) -> bool {
        self.range.contains(range) && (self.access == Access::Exclusive || self.access == access)
    }

    /// Evidence that a range lock of this rank is held.
    #[inline]
    pub fn held(&self) -> &Held<RANK> {
        &self.held
    }
}

impl<const RANK: u8> Drop for RangeGuard<'_, RANK> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(self.range, self.access, &self.hold);
    }
}

impl<const RANK: u8> fmt::Debug for RangeGuard<'_, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeGuard")
            .field("range", &self.range)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
