//! Threads, real or virtual.
//!
//! **Problem.** A simulated run owns all threads. **Structure.** Named threads, optionally bound
//! to a core; scoped threads that may borrow. **Invariants.** A [`scope`] ends only after all its
//! threads have ended. **Crash.** Nothing is kept.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::{CoreId, backend};

pub use crate::scope::{Scope, ScopedJoinHandle, scope};

/// What a thread that panicked left behind.
pub type Panic = Box<dyn Any + Send + 'static>;

/// A started thread.
pub struct JoinHandle<T> {
    inner: backend::BackendJoin<T>,
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended, and returns its result.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T, Panic> {
        backend::join(self.inner)
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        backend::is_finished(&self.inner)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// Starts a thread.
///
/// # Panics
/// If the system cannot start another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    JoinHandle {
        inner: backend::spawn(name, None, body),
    }
}

/// Starts a thread bound to `core`; unbound if the machine lacks that core or forbids its use.
///
/// # Panics
/// If the system cannot start another thread.
pub fn spawn_on<T: Send + 'static>(
    name: &str,
    core: CoreId,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    JoinHandle {
        inner: backend::spawn(name, Some(core.index()), body),
    }
}

/// Gives up the rest of the time slice.
pub fn yield_now() {
    backend::yield_now();
}

/// Sleeps for at least `duration`.
pub fn sleep(duration: Duration) {
    backend::sleep(duration);
}

/// One turn of a spin loop. Every such loop has one, or simulated time would stand still.
#[inline]
pub fn spin_hint() {
    backend::spin_hint();
}

/// A number unique among the threads of this process.
#[must_use]
pub fn current_id() -> u64 {
    backend::current_id()
}

/// Binds the calling thread to `core`; returns whether that was possible.
pub fn pin_to(core: CoreId) -> bool {
    backend::pin_to(core.index())
}

/// Starts a thread that others rely on, bound to any of `cores` (unbound if the machine forbids
/// that). Should it panic, the process ends rather than leave its work undone; in the simulation
/// the run fails.
///
/// # Panics
/// If the system cannot start another thread.
pub fn spawn_vital<T: Send + 'static>(
    name: &str,
    cores: &[CoreId],
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let cores: Vec<usize> = cores.iter().map(|core| core.index()).collect();
    spawn(name, move || {
        backend::pin_among(&cores);
        let unless_done = EndOfProcess;
        let result = body();
        std::mem::forget(unless_done);
        result
    })
}

/// From now on no thread of this process ends before that does: one that is over sleeps, and joining it
/// waits for its result only. For a process that shares its memory with one that was killed, perhaps
/// within a lock of the C library that the end of a thread takes.
pub fn leave_threads() {
    backend::leave_threads();
}

/// Dropped by a panic only.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        backend::vital_thread_died();
    }
}
