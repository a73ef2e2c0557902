//! What differs between the real machine, loom and the simulation.
//!
//! **Problem.** The locks must be one piece of code in three worlds. **Structure.** Each file
//! here offers the same items: `atomic`, `futex_wait`, `futex_wake`, `Shadow`, thread functions,
//! clocks, randomness, `TaskLocal`; the cfg `dure_backend` picks one file.
//! **Invariants.** Nothing outside this folder mentions the cfg, except to leave out `const`.
//! **Crash.** Nothing is kept.

#[cfg(not(any(dure_backend = "loom", dure_backend = "sim")))]
#[path = "std.rs"]
mod chosen;

#[cfg(not(any(dure_backend = "loom", dure_backend = "sim")))]
mod rseq;

pub(crate) use chosen::*;

pub use chosen::TaskLocal;
#[doc(hidden)]
pub use chosen::task_local_parts;
