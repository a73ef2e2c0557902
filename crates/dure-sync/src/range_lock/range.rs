//! What a range lock is taken on.
//!
//! **Problem.** Offsets and lengths come from users: they may be empty, or reach past the last byte
//! that 64 bits can address. **Structure.** A [`ByteRange`] keeps its first and its last byte.
//! **Invariants.** A range is never empty and never wraps. **Crash.** Nothing is kept.

use std::fmt;

use crate::Tally;

/// How a range is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Together with other readers.
    Shared,
    /// By one holder.
    Exclusive,
}

impl Access {
    /// Whether the two conflict: they cannot be held together.
    #[must_use]
    #[inline]
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// A non-empty range of bytes of a file; may reach to infinity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    first: u64,
    /// The last byte of the range; `u64::MAX` is infinity.
    last: u64,
}

impl ByteRange {
    /// Every byte a file can have.
    pub const ALL: Self = Self::from_offset(0);

    /// `len` bytes from `offset` on; `None` if `len` is 0 or the range ends after byte 2^64 - 1.
    #[must_use]
    #[inline]
    pub const fn new(offset: u64, len: u64) -> Option<Self> {
        let Some(rest) = len.checked_sub(1) else {
            return None;
        };
        match offset.checked_add(rest) {
            Some(last) => Some(Self {
                first: offset,
                last,
            }),
            None => None,
        }
    }

    /// [offset, infinity): what truncates and appends lock.
    #[must_use]
    #[inline]
    pub const fn from_offset(offset: u64) -> Self {
        Self {
            first: offset,
            last: u64::MAX,
        }
    }

    /// The first byte.
    #[must_use]
    #[inline]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The last byte; `u64::MAX` if the range has no end.
    #[must_use]
    #[inline]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Whether the two have a byte in common.
    #[must_use]
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether each byte of `other` is in this range.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The units of 2^`shift` bytes that the range touches.
    #[inline]
    pub(super) const fn units(self, shift: u32) -> Units {
        Units {
            first: self.first >> shift,
            last: self.last >> shift,
        }
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last.checked_add(1) {
            Some(end) => write!(f, "[{}, {end})", self.first),
            None => write!(f, "[{}, infinity)", self.first),
        }
    }
}

/// Units (pages, segments) from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Units {
    #[inline]
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The intersection of the two, which overlap.
    #[inline]
    pub(super) fn within(self, other: Self) -> Self {
        debug_assert!(self.overlaps(other), "the two ranges overlap");
        Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        }
    }
}

/// A range of units and the access that one task wants or holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) units: Units,
    pub(super) access: Access,
}

impl Claim {
    /// Whether the two conflict: they cannot be held together.
    #[inline]
    pub(super) fn conflicts(self, other: Self) -> bool {
        self.access.excludes(other.access) && self.units.overlaps(other.units)
    }
}

/// Whether a task waits when other tasks hold what it wants.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience<'w> {
    /// It does, and is counted.
    Wait(&'w WaitTallies),
    Try,
}

/// How often tasks waited for a range lock; written by the tasks that wait.
#[derive(Debug, Default)]
pub(super) struct WaitTallies {
    /// Tasks that entered a queue.
    pub(super) queued: Tally,
    /// Tasks that entered a queue and slept.
    pub(super) slept: Tally,
}
