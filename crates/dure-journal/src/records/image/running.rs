//! What other cores may do to a running transaction: ask whether it runs, and mark it.
//!
//! **Problem.** A core that changes a buffer of another core's running transaction gives it a mark,
//! and must not wait for that core, nor for others that do the same. **Structure.** As in Z-Journal
//! a transaction has a list of marks for each *executing* core, to which only that core appends. A
//! list is one word here: a newer mark of a core replaces an older one, and the core that replaces
//! it marks the older one itself ([`super::join`]).
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
use dure_sync::atomic::{AtomicU64, Ordering};

use crate::ids::{JournalId, Mark};
use crate::records::TransactionId;

/// The running transaction of a journal, as other cores see it.
#[derive(Debug)]
pub(crate) struct Running {
    journal: JournalId,
    /// Its first handle.
    first: AtomicU64,
    /// By executing journal: its newest handle that has changed a buffer of this transaction; 0 if
    /// there is none.
    shared: Box<[CachePadded<AtomicU64>]>,
}

impl Running {
    /// `journals`: of which there may be marks.
    pub(crate) fn new(journal: JournalId, first: u64, journals: usize) -> Self {
        let word = |_| CachePadded::new(AtomicU64::new(0));
        Self {
            journal,
            first: AtomicU64::new(first),
            shared: (0..journals).map(word).collect(),
        }
    }

    /// Whether this is the running transaction.
    pub(super) fn is(&self, transaction: TransactionId) -> bool {
        // SeqCst: see the table. Of `close` and this load, and `share` before it, all tasks see one
        // order.
        self.first.load(Ordering::SeqCst) == transaction.number
    }

    /// Notes that it is valid only with this handle; returns the one of that journal that was noted
    /// before, or 0.
    pub(super) fn share(&self, executing: JournalId, number: u64) -> u64 {
        // SeqCst: see `is`.
        self.shared[executing.index()].swap(number, Ordering::SeqCst)
    }

    /// Marks that closing takes at most.
    pub(super) fn marks_max(&self) -> usize {
        self.shared.len().saturating_sub(1)
    }

    /// Closes it: the next one begins with handle `next`. Adds its two-way marks to `marks`.
    pub(super) fn close(&self, next: u64, marks: &mut Vec<Mark>) {
        // SeqCst: see `is`.
        self.first.store(next, Ordering::SeqCst);
        let taken = self.words().map(|(journal, word)| {
            // SeqCst: see `is`.
            (journal, word.swap(0, Ordering::SeqCst))
        });
        add(taken, marks);
    }

    /// Adds the two-way marks that it has now to `marks`.
    pub(super) fn marks(&self, marks: &mut Vec<Mark>) {
        // Acquire: the handle of a mark joins under a lock that whoever follows the mark takes.
        add(
            self.words()
                .map(|(journal, word)| (journal, word.load(Ordering::Acquire))),
            marks,
        );
    }

    fn words(&self) -> impl Iterator<Item = (JournalId, &AtomicU64)> {
        let words = self.shared.iter().enumerate();
        let words = words.map(|(index, word)| (JournalId::from_index(index), &**word));
        words.filter(|(journal, _)| *journal != self.journal)
    }
}

fn add(words: impl Iterator<Item = (JournalId, u64)>, marks: &mut Vec<Mark>) {
    let given = words.filter(|(_, number)| *number != 0);
    marks.extend(given.map(|(journal, number)| Mark::new(journal, number)));
}
