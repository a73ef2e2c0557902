//! What a task waits for.
//!
//! **Problem.** A simulation says where time goes by name: the locks, conditions and devices that
//! tasks wait for. **Structure.** A guard, made where a wait begins and dropped at its end.
//! **Invariants.** Of waits within each other the outermost counts. In other builds a guard is a
//! value that nothing is done with. **Crash.** Nothing is kept.

use crate::backend;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    Lock(u8),
    Condition(u8),
    Device,
}

/// While it lives, the calling task waits.
#[derive(Debug)]
#[must_use = "the wait is over when the guard is dropped"]
pub struct Waiting {
    begun: bool,
}

impl Waiting {
    #[inline]
    fn on(what: Awaited) -> Waiting {
        let begun = backend::wait_begins(what);
        Waiting { begun }
    }

    /// For a lock of this rank.
    #[inline]
    pub(crate) fn on_lock(rank: u8) -> Waiting {
        Waiting::on(Awaited::Lock(rank))
    }

    /// For a condition under a lock of this rank.
    #[inline]
    pub(crate) fn on_condition(rank: u8) -> Waiting {
        Waiting::on(Awaited::Condition(rank))
    }

    /// For a device.
    #[inline]
    pub fn on_device() -> Waiting {
        Waiting::on(Awaited::Device)
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if self.begun {
            backend::wait_ends();
        }
    }
}
