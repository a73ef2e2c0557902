//! Running code on a simulated machine; exists only in the `sim` backend.
//!
//! **Problem.** Tests of upper crates need to start a machine and to read its figures.
//! **Structure.** The calls of `dure-vcpu` that are not part of the facade. **Invariants.** All
//! threads a program starts must end before its run does. **Crash.** Nothing is kept.
//!
//! ```
//! use dure_sync::sim::{Config, run};
//! use dure_sync::{Mutex, thread};
//!
//! static TOTAL: Mutex<10, u32> = Mutex::new(0);
//! let done = run(Config::random(2, 7), || {
//!     let other = thread::spawn("other", || *TOTAL.lock() += 1);
//!     *TOTAL.lock() += 1;
//!     other.join().expect("a panic ends the run");
//!     *TOTAL.lock()
//! });
//! assert_eq!(done.value, 2);
//! ```

pub use dure_vcpu::models;
pub use dure_vcpu::{
    Access, Account, Config, Detail, Failure, FailureKind, Frame, HotLine, Move, Report, Rng, Run,
    Schedule, SharedLine, Sighting, Stack, Symbols, Waiting, charge, heap_bytes, is_running, label,
    measure, measure_within, measured, place_persistent, run, seeds, set_pace, touch, transfers,
    try_run, watch_begin, watch_end, watch_task,
};
