//! The number of a core.
//!
//! **Problem.** Per-core data needs an index that is not mistaken for another number.
//! **Structure.** A newtype, the current core, and how many there can be. **Invariants.** The
//! current core is a hint: the thread may have moved before the answer is used, so per-core data
//! is still protected by its own lock or atomics. **Crash.** Nothing is kept.

use std::fmt;

use crate::backend;

/// The number of a core, real or virtual.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(u16);

impl CoreId {
    /// Core `number`.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number, for indexing.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The number, for storing.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The core the calling task runs on, at this moment.
#[inline]
#[must_use]
pub fn current_core() -> CoreId {
    CoreId(u16::try_from(backend::current_core_index()).expect("Linux has at most 8192 cores"))
}

/// How many cores there can be: the machine's possible cores, or the virtual ones. At least 1.
#[must_use]
pub fn core_count() -> usize {
    backend::core_count()
}
