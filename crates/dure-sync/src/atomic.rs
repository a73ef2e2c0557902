//! Atomic integers and fences of the chosen backend.
//!
//! **Problem.** loom and the simulation must see every atomic access. **Structure.** Re-exports.
//! **Invariants.** In the simulation the types keep the size and alignment of the real ones, so
//! that cache lines are shared exactly as in the product. **Crash.** Nothing is kept.

pub use crate::backend::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
};
pub use std::sync::atomic::Ordering;
