//! The one request that waits for the kernel.
//!
//! **Problem.** What a request asks the kernel may have to wait there for WRITEs of the same mount.
//! Requests that wait so keep their threads and, with rings, the entries of their callers' queues:
//! when they have all, those WRITEs have none, and nothing goes on. **Structure.** One request of a
//! mount asks at a time ([`TurnToAsk::begin`]). Another waits a moment, and is then to answer without.
//!
//! **Invariants.** Each queue of a ring has two entries or more, and a session one thread besides its
//! workers: the asker leaves one for WRITEs, at the latest when the others have waited their moment.
//! No WRITE asks. **On a crash** nothing of this remains.

use std::time::Duration;

use dure_sync::atomic::{AtomicBool, Ordering};

use super::wait_while;

/// How long to wait while another request asks the kernel, which may be waiting for this thread.
const ANOTHER_ASKS: Duration = Duration::from_millis(100);

/// Whether a request of the mount is asking the kernel.
#[derive(Debug, Default)]
pub(super) struct TurnToAsk(AtomicBool);

/// The request that asks, until it is dropped.
#[derive(Debug)]
pub(super) struct Asking<'a>(&'a TurnToAsk);

impl TurnToAsk {
    /// Begins to ask; `None` if another request still does after a while.
    pub(super) fn begin(&self) -> Option<Asking<'_>> {
        // Acquire: pairs with the Release of the last one that asked, whose work is seen.
        let is_taken = || self.0.swap(true, Ordering::Acquire);
        (!wait_while(ANOTHER_ASKS, is_taken)).then_some(Asking(self))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next.
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_at_a_time_waits_for_the_kernel() {
        let asks = TurnToAsk::default();
        let asking = asks.begin();
        assert!(asking.is_some());
        assert!(asks.begin().is_none(), "another asks");
        drop(asking);
        assert!(asks.begin().is_some());
        assert!(asks.begin().is_some(), "the last one has ended");
    }
}
