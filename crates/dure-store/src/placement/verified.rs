//! Which blocks hold what their slots say, as far as this mount knows.
//!
//! **Problem.** Data in persistent memory is read where it lies, also a few bytes of a page. A
//! checksum over 4 KiB for each such read would cost more than the copy. **Structure.** A bit per
//! block: the content was compared with its checksum since the mount. A part of a page is copied
//! after that; the first read of a page reads and compares all of it.
//! **Invariants.** A bit is never cleared: what is written to the block later was written by this
//! mount, past which a crash does not carry the bit. So damage that the medium does not report is
//! noticed by the first read of a page after a mount, by each write of a part of the page, and by
//! `dure check`. **Crash.** Memory only.

use dure_sync::atomic::{AtomicU64, Ordering};

use crate::sparse::Sparse;
use crate::units::BlockNo;

/// Blocks of one word.
const WORD_BLOCKS: u64 = 64;
/// Words that get memory together: those of 2 GiB.
const PIECE_WORDS: u64 = 8192;

/// See the module.
#[derive(Debug)]
pub(super) struct Verified(
    /// Written by readers that were the first; Relaxed: a bit says something about the medium, which
    /// any reader may see late.
    Sparse<AtomicU64>,
);

impl Verified {
    /// For a volume of so many blocks, of which none was verified.
    pub(super) fn new(blocks: u64) -> Verified {
        Verified(Sparse::new(blocks.div_ceil(WORD_BLOCKS), PIECE_WORDS))
    }

    pub(super) fn has(&self, block: BlockNo) -> bool {
        let (index, bit) = place(block);
        let word = self.0.get(index);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn note(&self, block: BlockNo) {
        let (index, bit) = place(block);
        let word = self.0.touch(index, AtomicU64::default);
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The word of a block, and its bit.
fn place(block: BlockNo) -> (u64, u64) {
    (block.0 / WORD_BLOCKS, 1 << (block.0 % WORD_BLOCKS))
}
