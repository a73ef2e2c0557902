//! A value that has its cache lines to itself.
//!
//! **Problem.** Two cores that write neighbouring values contend for one line. **Structure.** Align
//! to 128 bytes, since x86 fetches lines in pairs. **Invariants.** Two padded values never share a
//! line. **Crash.** Nothing is kept.

use std::ops::{Deref, DerefMut};

/// Aligns and pads a value so that no other value shares its cache line (pair).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

const _: () = assert!(size_of::<CachePadded<u8>>() == 128);

impl<T> CachePadded<T> {
    /// Pads `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> From<T> for CachePadded<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}
