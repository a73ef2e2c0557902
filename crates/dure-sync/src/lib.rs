//! The facade through which dure reaches every lock, atomic, thread, clock and random number.
//!
//! **Problem.** One source has to run on the real machine at full speed, under a model checker
//! that explores memory orderings, and in a deterministic simulation of many cores. That works
//! only if no other crate touches `std::sync`, `std::thread`, a clock or a random number itself.
//!
//! **Structure.** A *backend* supplies atomics, one sleeping primitive ([`futex`]), threads,
//! clocks, randomness and the current core. Everything else ([`Mutex`], [`RwLock`], [`Condvar`],
//! [`OnceLock`], [`PerCore`], [`Counter`]) is written once on top of that, so that each backend
//! runs the same lock code; a [`Tally`] is only displayed, so no backend needs to see it. The cfg
//! `dure_backend` chooses: absent is the real machine, `"loom"` the model checker, `"sim"` the
//! deterministic executor of `dure-vcpu`.
//!
//! **Invariants.** Locks have ranks (docs/design/locking.md): a thread takes them in rising order,
//! which is asserted in debug builds and in the simulation, and costs nothing in a release build.
//! An uncontended lock and unlock are one atomic read-modify-write each. Locks do not poison: a
//! panic is a bug, and the layer that catches it stops the volume.
//!
//! **Crash.** Nothing here reaches a medium, so nothing here survives a crash.
//!
//! ```
//! use dure_sync::{Arc, Mutex, thread};
//!
//! let total: Arc<Mutex<10, u64>> = Arc::new(Mutex::new(0));
//! let other = Arc::clone(&total);
//! let worker = thread::spawn("worker", move || *other.lock() += 1);
//! *total.lock() += 1;
//! worker.join().expect("the worker does not panic");
//! assert_eq!(*total.lock(), 2);
//! ```

#[macro_use]
mod macros;

mod arc;
mod atomic_bytes;
mod backend;
mod bounded_count;
mod cache_padded;
mod condvar;
mod core_id;
mod counter;
mod mutex;
mod once;
mod page_slab;
mod per_core;
mod per_core_ref;
mod per_core_rwlock;
mod rank;
mod rwlock;
mod scope;
mod seqlock;
mod seqlock_table;
mod sequence_count;
mod signals;
mod tally;
mod topology;
mod waiting;

#[cfg(dure_backend = "sim")]
pub mod sim;

#[cfg(feature = "canaries")]
pub mod amount;
pub mod atomic;
pub mod canary;
pub mod clock;
pub mod futex;
pub mod persistent;
pub mod random;
pub mod range_lock;
pub mod thread;

pub use arc::{Arc, Weak};
pub use atomic_bytes::{AlignedBytes, AtomicBytes};
pub use bounded_count::BoundedCount;
pub use cache_padded::CachePadded;
pub use condvar::Condvar;
pub use core_id::{CoreId, core_count, core_groups, current_core};
pub use counter::Counter;
pub use mutex::{Mutex, MutexGuard};
pub use once::{LazyLock, Once, OnceLock};
pub use page_slab::{PageBox, PageSlabs};
pub use per_core::PerCore;
pub use per_core_ref::{Counted, PerCoreCounted, PerCoreRef, PerCoreRefs};
pub use per_core_rwlock::{CONTENDED_AFTER, PerCoreReadGuard, PerCoreRwLock};
pub use rank::{Held, HeldRank};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use seqlock::{SeqLock, SeqLockReadGuard, SeqLockWriteGuard};
pub use seqlock_table::{SeqLockTable, Words};
pub use sequence_count::{Seen, SequenceCount};
pub use signals::without_signals;
/// What a process has once, in a `static`. It is no part of a simulated machine: two of them run
/// at once in one test program, where a task that found a [`OnceLock`] being filled by the other
/// machine would sleep for ever, and only the first machine would see the steps of filling it.
/// Its initializer must not wait for another task.
pub use std::sync::OnceLock as ProcessOnce;
pub use tally::{HISTOGRAM_BUCKETS, Histogram, HistogramCounts, Tally};
pub use topology::Topology;
pub use waiting::Waiting;

pub use backend::TaskLocal;
#[cfg(dure_backend = "loom")]
pub use backend::{Weaken, weaken};
#[cfg(dure_backend = "loom")]
#[doc(hidden)]
pub use loom as loom_for_task_local;
