//! Copies from and to persistent memory, as simulations must know of them.
//!
//! **Problem.** Such memory is slower than other memory, and its modules serve the cores of a socket
//! together. **Structure.** Whoever copies says so before. **Invariants.** In other builds these do
//! nothing. **Crash.** Nothing is kept.

use crate::backend::{self, Copying};

/// So many bytes are about to be read.
#[inline]
pub fn before_read(bytes: usize) {
    backend::before_persistent_copy(Copying::Out, bytes);
}

/// So many bytes are about to be written.
#[inline]
pub fn before_write(bytes: usize) {
    backend::before_persistent_copy(Copying::In, bytes);
}
