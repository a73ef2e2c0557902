//! Whether a device needs a flush, where a volume has several.
//!
//! **Problem.** A flush of a device without writes is milliseconds for nothing. **Structure.** A
//! write counts itself in its core's `written` when it is complete; a flush takes the sum, flushes,
//! then raises `flushed` to it. **Invariants.** A caller that returns without a flush had no write
//! that another one's flush did not cover:
//!
//! ```text
//! A: write a ... complete, written = 1
//! B:                                   takes 1 ... flush starts ........ ends, flushed = 1
//! A:                                   flush: takes 1, 1 is not flushed: flushes too
//! A: write b ... complete, written = 2 (B's flush does not cover b)
//! A:                                   flush: takes 2, not flushed: flushes
//! ```
//!
//! Cores count while a sum is taken, so two sums may be equal and of different writes. A caller whose
//! sum is no greater than `flushed`, which B raised, is covered all the same: if B found more at some
//! core than the caller did, B looked there later, so its flush began after the caller's call; if
//! nowhere, B found the same counts, and the writes are complete that the caller knows of.
//!
//! **Crash.** Memory only; what a missing flush would lose stands at [`SinceFlush::flush`].

use dure_sync::atomic::{AtomicU64, Ordering, fence};
use dure_sync::{CachePadded, PerCore, core_count};

use crate::{Queue, Result};

/// Whether a device was written since it was flushed; used only where there are several devices.
#[derive(Debug)]
pub(super) struct SinceFlush {
    /// Writes that are complete. Each slot is written by writers on its core, and only rises.
    written: PerCore<AtomicU64>,
    /// Written by a task that has flushed.
    flushed: CachePadded<AtomicU64>,
}

impl SinceFlush {
    pub(super) fn new() -> SinceFlush {
        SinceFlush {
            written: PerCore::new(core_count(), |_| AtomicU64::new(0)),
            flushed: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(super) fn wrote(&self) {
        // Release: pairs with the Acquire in `sum`; a task that sees the count flushes after the
        // write.
        self.written.local().fetch_add(1, Ordering::Release);
    }

    fn sum(&self) -> u64 {
        // SeqCst: of two callers of which one finds less at a core than the other, the one that
        // finds less has its fence first: what it knows to be complete is complete before the other
        // one flushes.
        fence(Ordering::SeqCst);
        let slots = self.written.iter();
        let sum = slots.map(|slot| slot.load(Ordering::Acquire)).sum();
        fence(Ordering::SeqCst);
        sum
    }

    /// Flushes `queue`, unless all that is written was flushed.
    ///
    /// Crash scenario if `flushed` were raised to the count as it is after the flush: a write that
    /// completed while the flush ran counts as flushed, and the next caller, whose write it is,
    /// returns without one.
    pub(super) fn flush(&self, queue: &Queue) -> Result<()> {
        let written = self.sum();
        // Acquire: pairs with the Release below; that flush began when at least so many were
        // complete.
        if self.flushed.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        queue.flush()?;
        self.flushed.fetch_max(written, Ordering::Release);
        Ok(())
    }
}
