//! Random numbers.
//!
//! **Problem.** A simulated run must draw the same numbers again. **Structure.** The real machine
//! asks the kernel; the simulation derives the numbers from its seed. **Invariants.** Not to be
//! used in a hot path: the real machine makes a system call. **Crash.** Nothing is kept.

use crate::backend;

/// A random number.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    backend::random_fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Fills `bytes` with random bytes.
pub fn fill(bytes: &mut [u8]) {
    backend::random_fill(bytes);
}
