//! A gate that keeps handles from beginning.
//!
//! **Problem.** A snapshot needs a moment at which no operation is under way, and operations must
//! not pay for that. **Structure.** A closed gate takes from each journal more room than it can
//! have: [`Journal::begin`] finds the log full, and its caller waits for the checkpoint that the
//! closer makes. Open handles are what began, less what joined or was dropped. **Invariants.** Room
//! is only added to and taken from, so what others do meanwhile counts when the gate is open again.
//! **Crash.** Nothing is on the medium.

use crate::journal::{Journal, Settle};

/// More than any ring has, and little enough that sums stay within 64 bits.
const ALL: i64 = 1 << 48;

/// The gate is closed until this is dropped.
pub struct ClosedGate<'j, S: Settle>(&'j Journal<S>);

impl<S: Settle> std::fmt::Debug for ClosedGate<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClosedGate").finish()
    }
}

impl<S: Settle> Journal<S> {
    /// Lets no handle begin: [`Journal::begin`] finds the log full, and so does a commit that is not
    /// a checkpoint's. One task at a time closes the gate.
    ///
    /// # Panics
    /// If it is closed.
    pub fn close_gate(&self) -> ClosedGate<'_, S> {
        for log in &self.logs {
            let mut joined = log.joined.lock();
            assert!(joined.room > -ALL / 2, "one task at a time closes the gate");
            joined.room -= ALL;
        }
        ClosedGate(self)
    }
}

impl<S: Settle> ClosedGate<'_, S> {
    /// Whether all handles that had begun have joined or were dropped.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.logs.iter().all(|log| {
            // The tallies change under this lock.
            let _joined = log.joined.lock();
            let tallies = &log.tallies.join;
            tallies.begun.get() == tallies.joined.get() + tallies.dropped.get()
        })
    }
}

impl<S: Settle> Drop for ClosedGate<'_, S> {
    fn drop(&mut self) {
        for log in &self.0.logs {
            let mut joined = log.joined.lock();
            joined.room += ALL;
            // A checkpoint meanwhile found less than half, however much room it made.
            joined.told_half &= joined.room < joined.half;
        }
    }
}
