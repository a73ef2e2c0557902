//! Copies from and to persistent memory, as simulations must know of them.
//!
//! **Problem.** Such memory is slower than other memory, and its modules serve the cores of a socket
//! together. **Structure.** Whoever copies says so before. **Invariants.** In other builds these do
//! nothing. **Crash.** Nothing is kept.

use crate::backend::{self, Copying};

/// So many bytes at this address are about to be read.
#[inline]
pub fn before_read(address: usize, bytes: usize) {
    backend::before_persistent_copy(Copying::Out, address, bytes);
}

/// So many bytes at this address are about to be written.
#[inline]
pub fn before_write(address: usize, bytes: usize) {
    backend::before_persistent_copy(Copying::In, address, bytes);
}
