//! Threads that borrow.
//!
//! **Problem.** Tests and parallel recovery split borrowed data among threads. **Structure.** The
//! body of a thread is stored with its lifetime erased; [`scope`] makes that sound by not
//! returning before all bodies are gone. **Invariants.** `running` counts the started bodies; a
//! body, its borrows and its result are dropped or handed over before the count falls.
//! **Crash.** Nothing is kept.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::thread::{JoinHandle, Panic, spawn, spawn_on};
use crate::{Arc, CoreId, Mutex, backend, futex};

/// The lock of a result slot is never held while another lock is taken.
const SLOT_RANK: u8 = 255;

type Slot<T> = Arc<Mutex<SLOT_RANK, Option<Result<T, Panic>>>>;

#[derive(Debug)]
struct Shared {
    /// Raised by the spawner, lowered by a body as its last act. Release there pairs with the
    /// Acquire in `wait_all`, after which the borrows are over.
    running: AtomicU32,
    /// A body panicked, and no `join` has returned that yet. Ordered by `running`, hence Relaxed.
    panicked: AtomicBool,
}

impl Shared {
    fn wait_all(&self) {
        loop {
            // Acquire: pairs with the Release in `Ending::drop`.
            let running = self.running.load(Ordering::Acquire);
            if running == 0 {
                return;
            }
            futex::wait(&self.running, running, None);
        }
    }
}

/// Lowers the count once a body and its borrows are dropped.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `wait_all`; the body no longer uses its borrows.
        if self.0.running.fetch_sub(1, Ordering::Release) == 1 {
            futex::wake(&self.0.running, u32::MAX);
        }
    }
}

/// Starts threads that may borrow from the frame that called [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    shared: Arc<Shared>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Panics
    /// If the system cannot start another thread.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.start(None, body)
    }

    /// Starts a thread bound to `core`.
    ///
    /// # Panics
    /// If the system cannot start another thread.
    pub fn spawn_on<T: Send + 'scope>(
        &'scope self,
        core: CoreId,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.start(Some(core), body)
    }

    fn start<T: Send + 'scope>(
        &'scope self,
        core: Option<CoreId>,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let slot: Slot<T> = Arc::new(Mutex::new(None));
        let result = Arc::clone(&slot);
        let shared = Arc::clone(&self.shared);
        // Relaxed: the body starts after this thread's spawn.
        self.shared.running.fetch_add(1, Ordering::Relaxed);
        let ending = Ending(Arc::clone(&self.shared));
        let whole: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            // Dropped last, also if the thread could not be started.
            let _ending = ending;
            let outcome = catch_unwind(AssertUnwindSafe(body));
            if let Err(panic) = &outcome {
                backend::caught(&**panic);
                // Relaxed: ordered by `running`.
                shared.panicked.store(true, Ordering::Relaxed);
            }
            *result.lock() = Some(outcome);
            drop(result);
        });
        // SAFETY: `scope` returns only after `running` fell to zero, hence after this closure and
        // all it borrows were dropped; the type differs in its lifetime only.
        let whole: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(whole) };
        let thread = match core {
            Some(core) => spawn_on("scoped", core, whole),
            None => spawn("scoped", whole),
        };
        ScopedJoinHandle {
            thread,
            slot,
            shared: Arc::clone(&self.shared),
            _scope: PhantomData,
        }
    }
}

/// A thread of a [`Scope`].
pub struct ScopedJoinHandle<'scope, T> {
    thread: JoinHandle<()>,
    slot: Slot<T>,
    shared: Arc<Shared>,
    _scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits until the thread has ended, and returns its result.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T, Panic> {
        self.thread.join()?;
        let outcome = self
            .slot
            .lock()
            .take()
            .expect("a finished body has left its result");
        if outcome.is_err() {
            // Relaxed: the caller receives the panic; read after `running` fell to zero.
            self.shared.panicked.store(false, Ordering::Relaxed);
        }
        outcome
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}

/// Runs `body`, which may start threads that borrow, and waits until all of them have ended.
///
/// # Panics
/// If `body` panics, or a thread panicked and was not joined.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let shared = Arc::new(Shared {
        running: AtomicU32::new(0),
        panicked: AtomicBool::new(false),
    });
    let scope = Scope {
        shared,
        _scope: PhantomData,
        _env: PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    if let Err(panic) = &outcome {
        backend::caught(&**panic);
    }
    scope.shared.wait_all();
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(_) if scope.shared.panicked.load(Ordering::Relaxed) => {
            panic!("a scoped thread panicked")
        }
        Ok(value) => value,
    }
}
