//! What differs between the real machine, loom and the simulation.
//!
//! **Problem.** The locks must be one piece of code on the real machine, under loom and in the
//! simulation. **Structure.** Each backend offers the same items: `atomic`, `futex_wait`,
//! `futex_wake`, `Shadow`, thread functions, clocks, randomness, `TaskLocal`; the cfg
//! `dure_backend` picks one. The simulation falls back to the real machine for code that runs in no
//! simulated machine. **Invariants.** Nothing outside this folder depends on the cfg, except to
//! leave out `const`. **Crash.** Nothing is kept.

#[cfg(any(dure_backend = "loom", dure_backend = "sim"))]
mod covered;
#[cfg(not(dure_backend = "loom"))]
mod rseq;

#[cfg(not(dure_backend = "loom"))]
mod ends;

#[cfg(not(any(dure_backend = "loom", dure_backend = "sim")))]
#[path = "std.rs"]
mod chosen;

#[cfg(dure_backend = "sim")]
#[path = "sim.rs"]
mod chosen;
#[cfg(dure_backend = "sim")]
#[path = "std.rs"]
mod real;

#[cfg(dure_backend = "loom")]
#[path = "loom.rs"]
mod chosen;

pub(crate) use chosen::*;

/// Direction of a copy from or into shared bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copying {
    Out,
    In,
}

pub use chosen::TaskLocal;
#[cfg(dure_backend = "loom")]
pub use chosen::{Weaken, weaken};
