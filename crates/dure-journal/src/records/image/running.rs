//! What other cores may do to a running transaction: ask whether it runs, and mark it.
//!
//! **Problem.** A core that changes a buffer of another core's running transaction gives it a mark,
//! and must not wait for that core, nor for others that do the same. **Structure.** As in Z-Journal
//! a transaction has a list of marks for each *executing* core, to which only that core appends. A
//! list is one word here: a newer mark of a core replaces an older one, and the core that replaces
//! it marks the older one itself ([`super::join`]). Words of different cores are on lines apart:
//! 128 bytes for each pair of journals, 512 KiB with 64 journals.
//!
//! | | the core that shares | the core that closes |
//! |---|---|---|
//! | 1 | puts its mark | says that the next transaction runs |
//! | 2 | looks whether the transaction still runs | takes the marks |
//!
//! **Invariants.** A core that finds in step 2 that the transaction runs has put its mark before
//! step 1 of the closing, so it is taken. One that finds that it does not may have marked either
//! transaction: a mark too many. A word is written by holders of `joined` of the executing journal,
//! and emptied by that of the journal that closes. **Crash.** Nothing is on the medium yet.

use dure_sync::CachePadded;
use dure_sync::atomic::{AtomicU64, Ordering, fence};

use crate::ids::{JournalId, Mark};

/// The running transaction of a journal, as other cores see it.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its first handle, which names it.
    first: AtomicU64,
    /// By executing journal: its newest handle that has changed a buffer of this transaction; 0 if
    /// there is none, as always for the own journal.
    shared: Box<[CachePadded<AtomicU64>]>,
}

impl Running {
    /// `journals`: of which there may be marks.
    pub(crate) fn new(first: u64, journals: usize) -> Self {
        let word = |_| CachePadded::new(AtomicU64::new(0));
        Self {
            first: AtomicU64::new(first),
            shared: (0..journals).map(word).collect(),
        }
    }

    /// Whether the transaction runs whose first handle is `first`.
    pub(super) fn is(&self, first: u64) -> bool {
        // Relaxed: says nothing about other memory; `share` asks again behind its fence.
        self.first.load(Ordering::Relaxed) == first
    }

    /// Notes that transaction `first` is valid only with handle `number` of `executing`. Returns
    /// whether it still runs, and the handle of that journal that was noted before, or 0.
    pub(super) fn share(&self, first: u64, executing: JournalId, number: u64) -> (bool, u64) {
        // Relaxed: what handle it is stands under the lock of its journal, which the caller holds.
        let replaced = self.shared[executing.index()].swap(number, Ordering::Relaxed);
        // SeqCst: orders the mark before the look, as the fence in `close` orders the end of the
        // transaction before the taking: one of the two sees what the other did.
        fence(Ordering::SeqCst);
        (self.is(first), replaced)
    }

    /// Marks that closing takes at most.
    pub(super) fn marks_max(&self) -> usize {
        self.shared.len().saturating_sub(1)
    }

    /// Closes it: the next one begins with handle `next`. Adds its two-way marks to `marks`.
    pub(super) fn close(&self, next: u64, marks: &mut Vec<Mark>) {
        // Relaxed: see `is`.
        self.first.store(next, Ordering::Relaxed);
        // SeqCst: see `share`.
        fence(Ordering::SeqCst);
        self.collect(marks, |word| match word.load(Ordering::Relaxed) {
            // Most words are: their lines stay with the cores that have them.
            0 => 0,
            // It may be a newer one by now, which has replaced, and marks, the one found.
            _ => word.swap(0, Ordering::Relaxed),
        });
    }

    /// Adds the two-way marks that it has now to `marks`.
    pub(super) fn marks(&self, marks: &mut Vec<Mark>) {
        // Relaxed: see `share`.
        self.collect(marks, |word| word.load(Ordering::Relaxed));
    }

    fn collect(&self, marks: &mut Vec<Mark>, number: impl Fn(&AtomicU64) -> u64) {
        for (index, word) in self.shared.iter().enumerate() {
            match number(word) {
                0 => {}
                number => marks.push(Mark::new(JournalId::from_index(index), number)),
            }
        }
    }
}
