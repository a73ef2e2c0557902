//! Values that are initialized once.
//!
//! **Problem.** Several tasks need one value, which the first of them makes. **Structure.** A word
//! (empty, running, running with sleepers, ready) next to the slot; [`Once`] and [`LazyLock`] are
//! thin wrappers. **Invariants.** The slot is written once, before the word says ready, and only
//! read after that. If the initializer panics, the slot stays empty. **Crash.** Nothing is kept.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ops::Deref;

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::{self, Shadow};
use crate::futex::ANYONE;

const EMPTY: u32 = 0;
const RUNNING: u32 = 1;
/// Running, and tasks may sleep.
const AWAITED: u32 = 2;
const READY: u32 = 3;

/// A slot that is filled at most once.
pub struct OnceLock<T> {
    /// Written by the one task that initializes (and, RUNNING to AWAITED, by waiters). Release on
    /// READY pairs with Acquire in `get` and publishes `slot`.
    state: AtomicU32,
    shadow: Shadow,
    /// Owned by the task that moved `state` from EMPTY to RUNNING; shared once READY.
    slot: UnsafeCell<Option<T>>,
}

// SAFETY: the value is shared by `&T` and may be made by one task and dropped by another.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: moving the slot moves its value.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_unless_loom! {
        /// An empty slot.
        pub fn new() -> Self {
            Self {
                state: AtomicU32::new(EMPTY),
                shadow: Shadow::new(),
                slot: UnsafeCell::new(None),
            }
        }
    }

    /// The value, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the Release in `Making::drop`; the slot is visible.
        (self.state.load(Ordering::Acquire) == READY).then(|| self.value())
    }

    /// The value; if there is none, one caller's `make` makes it, while other callers wait.
    ///
    /// # Panics
    /// If `make` panics (the slot stays empty). `make` must not use this slot.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.fill(make);
        self.value()
    }

    /// Fills the slot with `value`.
    ///
    /// # Errors
    /// Gives `value` back if the slot was filled already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("a closure is called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value, for the sole owner.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.slot.get_mut().as_mut()
    }

    /// The value; the slot is gone.
    pub fn into_inner(self) -> Option<T> {
        self.slot.into_inner()
    }

    fn value(&self) -> &T {
        self.shadow.read(self.slot.get());
        // SAFETY: the caller has seen READY, after which no task writes the slot.
        let slot = unsafe { &*self.slot.get() };
        slot.as_ref().expect("a ready slot is filled")
    }

    #[cold]
    fn fill(&self, make: impl FnOnce() -> T) {
        let mut make = Some(make);
        // Acquire: pairs with the Release in `Making::drop`.
        let mut state = self.state.load(Ordering::Acquire);
        while state != READY {
            state = match state {
                EMPTY => match self.advance(EMPTY, RUNNING) {
                    Ok(()) => {
                        let make = make
                            .take()
                            .expect("only the sole maker leaves the loop here");
                        return self.run(make);
                    }
                    Err(now) => now,
                },
                RUNNING => self.advance(RUNNING, AWAITED).err().unwrap_or(AWAITED),
                _ => {
                    backend::futex_wait(&self.state, AWAITED, ANYONE, None);
                    // Acquire: pairs with the Release in `Making::drop`.
                    self.state.load(Ordering::Acquire)
                }
            };
        }
    }

    fn advance(&self, from: u32, to: u32) -> Result<(), u32> {
        // Acquire: pairs with the Release in `Making::drop`, also when it left EMPTY.
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Acquire)
            .map(|_| ())
    }

    fn run(&self, make: impl FnOnce() -> T) {
        let mut making = Making {
            state: &self.state,
            outcome: EMPTY,
        };
        let value = make();
        self.shadow.write(self.slot.get());
        // SAFETY: only this task moved the state from EMPTY to RUNNING; no task reads the slot
        // before READY.
        unsafe { *self.slot.get() = Some(value) };
        making.outcome = READY;
    }
}

/// Publishes the outcome of `make`, also when it panics.
struct Making<'a> {
    state: &'a AtomicU32,
    outcome: u32,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `get` and `fill`; publishes the slot.
        if self.state.swap(self.outcome, Ordering::Release) == AWAITED {
            backend::futex_wake(self.state, u32::MAX, ANYONE);
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// An action that runs once.
#[derive(Debug, Default)]
pub struct Once {
    done: OnceLock<()>,
}

impl Once {
    const_unless_loom! {
        /// An action that has not run yet.
        pub fn new() -> Self {
            Self { done: OnceLock::new() }
        }
    }

    /// Runs `act` if no task has run it; waits while another task does.
    pub fn call_once(&self, act: impl FnOnce()) {
        self.done.get_or_init(act);
    }

    /// Whether it has run.
    pub fn is_completed(&self) -> bool {
        self.done.get().is_some()
    }
}

/// A value made at its first use, for statics.
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    /// Taken by the one task that initializes.
    make: Cell<Option<F>>,
}

// SAFETY: `make` is touched only inside `OnceLock::get_or_init`, by one task at a time.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_unless_loom! {
        /// A value that `make` makes when it is first needed.
        pub fn new(make: F) -> Self {
            Self { value: OnceLock::new(), make: Cell::new(Some(make)) }
        }
    }

    /// The value, made now if necessary.
    ///
    /// # Panics
    /// If making it panicked before.
    pub fn force(&self) -> &T {
        self.value.get_or_init(|| {
            let make = self
                .make
                .take()
                .expect("an earlier attempt to make this value panicked");
            make()
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        self.force()
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
