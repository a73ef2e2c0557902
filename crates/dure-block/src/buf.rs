//! Owned, aligned memory for whole blocks.
//!
//! **Problem.** Direct I/O needs memory aligned to the device, and asynchronous I/O needs memory
//! that stays where it is until the device is done. **Structure.** A vector of 4 KiB-aligned
//! blocks, seen as bytes. **Invariants.** The length is a whole number of blocks; the memory
//! does not move while the buffer is moved. **Crash.** Nothing is kept.

use std::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;

/// The bytes of one block, aligned to its size.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Block(pub(crate) [u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

impl Block {
    /// A boxed block of zeroes, made on the heap (a block is too large for a small stack).
    pub(crate) fn boxed_zeroed() -> Box<Self> {
        Self::new_box_zeroed().expect("one block of memory is available")
    }

    /// A boxed copy of `bytes`, which is one block long.
    pub(crate) fn boxed(bytes: &[u8]) -> Box<Self> {
        let mut block = Self::boxed_zeroed();
        block.0.copy_from_slice(bytes);
        block
    }
}

/// An owned buffer of whole blocks, aligned to [`BLOCK_BYTES`].
#[derive(Clone, Default)]
pub struct BlockBuf {
    blocks: Vec<Block>,
}

impl BlockBuf {
    /// A buffer of `blocks` blocks of zeroes.
    ///
    /// # Panics
    /// If the memory is not available.
    #[must_use]
    pub fn zeroed(blocks: usize) -> Self {
        Self {
            blocks: Block::new_vec_zeroed(blocks).expect("memory for the buffer is available"),
        }
    }

    /// A copy of `bytes`, padded with zeroes to whole blocks.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// Changes the length to `blocks`; keeps the content of the blocks that stay and the memory.
    /// Only blocks that are new get zeroed.
    pub fn resize(&mut self, blocks: usize) {
        match blocks.checked_sub(self.blocks.len()) {
            Some(more) => Block::extend_vec_zeroed(&mut self.blocks, more)
                .expect("memory for the buffer is available"),
            None => self.blocks.truncate(blocks),
        }
    }

    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.blocks.as_bytes()
    }

    /// All bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.blocks.as_mut_bytes()
    }

    /// The length in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl fmt::Debug for BlockBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockBuf({} blocks)", self.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_padded_and_aligned() {
        let buf = BlockBuf::from_slice(&[7; 5000]);
        assert_eq!(buf.blocks(), 2);
        assert_eq!(buf.as_slice()[..5000], [7; 5000]);
        assert_eq!(buf.as_slice()[5000..], [0; 3192]);
        assert_eq!(buf.as_slice().as_ptr().addr() % BLOCK_BYTES, 0);
        assert_eq!(format!("{buf:?}"), "BlockBuf(2 blocks)");
    }

    #[test]
    fn resize_keeps_what_stays_and_zeroes_what_is_new() {
        let mut buf = BlockBuf::from_slice(&[7; 2 * BLOCK_BYTES]);
        buf.resize(1);
        buf.resize(3);
        assert_eq!(buf.as_slice()[..BLOCK_BYTES], [7; BLOCK_BYTES]);
        assert_eq!(buf.as_slice()[BLOCK_BYTES..], [0; 2 * BLOCK_BYTES]);
    }
}
