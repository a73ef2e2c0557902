//! One task that waits until another grants it the lock.
//!
//! **Problem.** A task that releases a lock must wake exactly the task whose turn it is, and that
//! task must find the lock taken on its behalf, or others can overtake it for ever. **Structure.**
//! A word shared by waiter and granter: waiting, asleep, granted. The waiter spins for about a
//! microsecond, then sleeps. **Invariants.** GRANTED is final and written once, by the granter,
//! after it took the lock on behalf of the waiter. The change from WAITING to ASLEEP and the grant
//! are exchanges of one word, so either the waiter sees the grant or the granter sees the sleeper.
//! **Crash.** Nothing is kept.

use super::INTERVALS_RANK;
use super::range::WaitTallies;
use crate::Arc;
use crate::atomic::{AtomicU32, Ordering};
use crate::backend;
use crate::futex::ANYONE;
use crate::waiting::Waiting;

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
const GRANTED: u32 = 2;

/// Shared by one waiting task and its queue.
#[derive(Debug)]
pub(super) struct Waiter {
    /// WAITING to ASLEEP by the waiter, anything to GRANTED by the granter. The Release of the
    /// grant pairs with the Acquire of the waiter, and passes on what earlier holders published.
    state: AtomicU32,
}

impl Waiter {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(WAITING),
        })
    }

    /// Returns when the lock is held on behalf of the caller; counts the wait.
    #[cold]
    pub(super) fn wait(&self, tallies: &WaitTallies) {
        let _waiting = Waiting::on_lock(INTERVALS_RANK);
        tallies.queued.add_shared(1);
        let mut turns = backend::SPIN_TURNS;
        while turns > 0 {
            turns -= 1;
            // Acquire: pairs with the Release in `grant`.
            if self.state.load(Ordering::Acquire) == GRANTED {
                return;
            }
            backend::spin_hint();
        }
        // Acquire: pairs with the Release in `grant`, if that has come first.
        let fallen_asleep =
            self.state
                .compare_exchange(WAITING, ASLEEP, Ordering::Acquire, Ordering::Acquire);
        let mut granted = fallen_asleep == Err(GRANTED);
        tallies.slept.add_shared(u64::from(!granted));
        while !granted {
            backend::futex_wait(&self.state, ASLEEP, ANYONE, None);
            // Acquire: pairs with the Release in `grant`.
            granted = self.state.load(Ordering::Acquire) == GRANTED;
        }
    }

    /// Tells the waiter that it holds the lock.
    pub(super) fn grant(&self) {
        // Release: pairs with the Acquires in `wait`.
        let before = self.state.swap(GRANTED, Ordering::Release);
        debug_assert_ne!(before, GRANTED, "a waiter is granted once");
        if before == ASLEEP {
            backend::futex_wake(&self.state, 1, ANYONE);
        }
    }
}

/// Grants all of them; called after all mutexes are released.
pub(super) fn grant_all(waiters: Vec<Arc<Waiter>>) {
    for waiter in waiters {
        waiter.grant();
    }
}
