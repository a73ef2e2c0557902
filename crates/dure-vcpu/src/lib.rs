//! Many virtual cores on one thread, with every schedule decided by a seed.
//!
//! **Problem.** A race shows once in a million runs and never again; a machine with 80 cores is
//! not at hand. Both are answered by running the program's tasks one operation at a time, in an
//! order, and on clocks, that follow from a seed.
//!
//! **Structure.** [`run`] executes a closure as the first task of a machine described by
//! [`Config`]. Tasks are stackful coroutines; before each visible operation (an atomic, a lock
//! word, a clock) the machine decides whether the task goes on. [`Schedule::Random`],
//! [`Schedule::Priority`] and [`Schedule::Stall`] hunt for races, [`Schedule::MinClock`] always
//! runs the core with the smallest clock and so measures. Cache lines are found from addresses and
//! move between cores at the costs of a [`models::CostModel`]; each move is counted: a *shared-line
//! transfer*. [`measure`] says which tasks count in an [`Account`] of where time went.
//!
//! **Invariants.** Same program, config and seed: same schedule, same [`Report::schedule_hash`].
//! Only one task executes at a time, and memory is sequentially consistent: weak orderings are
//! for loom. Code outside a machine can make all calls; they then do nothing, or say so.
//!
//! **Crash.** Nothing here reaches a medium. A task that panics ends the run; a run in which no
//! task can go on ends with the list of tasks and what they wait for. Both name the seed.
//!
//! # Example
//! ```
//! use dure_vcpu::{Access, Config, access, join, run, spawn};
//!
//! let two_cores = || {
//!     run(Config::min_clock(2), || {
//!         let word = Box::leak(Box::new(0_u64)) as *const u64 as usize;
//!         let bump = move || (0..100).for_each(|_| access(Access::Update, word));
//!         let tasks = [spawn("left", Some(0), bump), spawn("right", Some(1), bump)];
//!         tasks.into_iter().for_each(join);
//!     })
//! };
//! let first = two_cores().report;
//! assert!(first.transfers > 0, "both cores wrote one line");
//! assert_eq!(first.steps, two_cores().report.steps);
//! ```

pub mod models;

mod account;
mod alloc;
mod config;
mod current;
mod heap;
mod lines;
mod report;
mod rng;
mod runner;
mod schedule;
mod seeds;
mod sleep;
mod task;
mod timers;
mod unwinding;
mod watch;
mod world;

pub use account::{Account, Move, Waiting};
pub use alloc::LineAllocator;
pub use config::{CORES_MAX, Config, Schedule};
pub use current::{
    access, access_to, allocated, charge, copy, copy_persistent, core_count, cores_of_node,
    current_core, current_task, fail_run, forget, futex_wait, futex_wake, heap_bytes, is_finished,
    is_measurement, is_running, join, label, measure, measure_within, measured, move_to, note,
    now_ns, place_persistent, random, set_pace, sleep, spawn, spin_hint, touch, transfers,
    wait_begin, wait_end, watch_begin, watch_end, watch_task, with_local, yield_now,
};
pub use lines::{Access, HotLine};
pub use report::{Failure, FailureKind, Report};
pub use rng::Rng;
pub use runner::{Run, run, try_run};
pub use seeds::seeds;
pub use task::{TaskId, Wake};
pub use watch::{Detail, Frame, SharedLine, Sighting, Stack, Symbols};
