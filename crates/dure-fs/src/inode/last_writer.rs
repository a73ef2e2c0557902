//! The last writer of a granule, remembered.
//!
//! **Problem.** Operations and fsync ask for the last writer of an inode's granules. The node knows
//! it, but only under the granule's lock, whose line every asking task would write. **Structure.**
//! [`LastWriter`] is a word: the mark, once a task has looked it up or changed the granule.
//!
//! **Invariants.** A task that changes the granule of an inode that others know sets the word
//! before it releases what excludes other writers, unless what changes the other granule need not
//! follow it ([`Inode::store_unwritten`](super::Inode::store_unwritten)). A task that asks without
//! being excluded may get the writer before that one: the two are concurrent, and may survive in
//! either order. **On a crash** nothing remains.

use dure_store::units::Mark;
use dure_sync::atomic::{AtomicU64, Ordering, fence};

/// The last writer of a granule, if it is known.
#[derive(Debug)]
pub(super) struct LastWriter(AtomicU64);

/// What [`LastWriter::now`] returned. Each change has a mark of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writer(u64);

/// In place of a mark: not known.
const UNKNOWN: u64 = u64::MAX;

impl Default for LastWriter {
    fn default() -> LastWriter {
        LastWriter(AtomicU64::new(UNKNOWN))
    }
}

impl LastWriter {
    /// The granule was changed by the operation of this mark.
    pub(super) fn set(&self, mark: Mark) {
        // Release: a task that sees it sees the change.
        self.0.store(mark.as_u64(), Ordering::Release);
    }

    /// The last change that is over, as far as is known: the same before and after the granule was
    /// loaded if none has ended in between.
    pub(super) fn now(&self) -> Writer {
        fence(Ordering::Acquire);
        // Acquire: pairs with the Release in `set`; the fence above orders what was read before.
        Writer(self.0.load(Ordering::Acquire))
    }

    /// The last writer, from `look` if it is not known. A change that overtakes the look counts.
    pub(super) fn get(&self, look: impl FnOnce() -> Mark) -> Mark {
        // Relaxed: a task that has to know of a change was told by another way.
        let known = self.0.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Mark::from_u64(known);
        }
        let found = look().as_u64();
        // Release: as in `set`.
        let set = self
            .0
            .compare_exchange(UNKNOWN, found, Ordering::Release, Ordering::Relaxed);
        Mark::from_u64(set.map_or_else(|changed| changed, |_| found))
    }
}
