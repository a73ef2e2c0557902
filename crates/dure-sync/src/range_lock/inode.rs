//! Policy `inode`: one reader/writer lock for the whole file.
//!
//! **Problem.** The baseline: ext4, F2FS and NOVA serialise the writers of a file, whatever they
//! write, and all readers write the one word that counts them. **Structure.** One
//! [`FairWord`](super::fair_word) laid out as in policy `segment`, and its queue. **Invariants.**
//! Those of the word. **Crash.** Nothing is kept.

use super::fair_word::{FairWord, Outcome, Queue};
use super::range::{Access, Patience};
use super::segment::Shared;

#[derive(Debug)]
pub(super) struct InodeLock {
    word: FairWord<Shared>,
    queue: Queue<Shared>,
}

impl InodeLock {
    pub(super) fn new() -> Self {
        Self {
            word: FairWord::new(0),
            queue: Queue::new(),
        }
    }

    /// Locks the whole file; false if that needs waiting and the caller does not wait.
    #[inline]
    pub(super) fn acquire(&self, access: Access, patience: Patience<'_>) -> bool {
        self.word.take(access, patience, &self.queue, 0, || true) == Outcome::Taken
    }

    #[inline]
    pub(super) fn release(&self, access: Access) {
        self.word.release(access, &self.queue, 0);
    }
}
