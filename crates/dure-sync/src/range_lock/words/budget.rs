//! What the words of many locks may take together.
//!
//! **Problem.** Each file has few words, and a mount has many files. **Structure.** One count of
//! chunks, written when a lock allocates one, or is dropped: taking a range writes no line of it.
//! **Invariants.** The locks of a budget never have more chunks than it has; one that gets none
//! gives an idle chunk of its own another key, or takes the range as it takes [offset, infinity).
//! **Crash.** Nothing is kept.

use super::super::{bitmap, segment};
use super::chunk::Chunk;
use crate::atomic::{AtomicUsize, Ordering};

/// What a chunk takes, of the larger kind, with its places in the table and the directory.
const CHUNK_BYTES: usize = {
    let (one, other) = (
        size_of::<Chunk<segment::Shared>>(),
        size_of::<Chunk<bitmap::Bits>>(),
    );
    128 + if one > other { one } else { other }
};

/// The memory of the words of some range locks.
#[derive(Debug)]
pub struct WordBudget {
    /// Relaxed, as all here: a bound on memory, which publishes nothing.
    chunks: AtomicUsize,
    chunks_max: usize,
}

impl WordBudget {
    /// One of that many bytes.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> WordBudget {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        WordBudget {
            chunks: AtomicUsize::new(0),
            chunks_max: bytes / CHUNK_BYTES,
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.load(Ordering::Relaxed) * CHUNK_BYTES
    }

    /// Whether no lock gets another chunk.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.chunks.load(Ordering::Relaxed) >= self.chunks_max
    }

    /// Counts a chunk, if there may be one more.
    pub(super) fn take(&self) -> bool {
        let more = |chunks: usize| (chunks < self.chunks_max).then_some(chunks + 1);
        let taken = self
            .chunks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    /// Chunks were freed.
    pub(super) fn give_back(&self, chunks: usize) {
        let before = self.chunks.fetch_sub(chunks, Ordering::Relaxed);
        debug_assert!(before >= chunks, "each chunk was counted");
    }
}
