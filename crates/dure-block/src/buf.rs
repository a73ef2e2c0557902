//! Owned, aligned memory for whole blocks.
//!
//! **Problem.** Direct I/O needs memory aligned to the device, and asynchronous I/O needs memory
//! that stays where it is until the device is done. **Structure.** A vector of 4 KiB-aligned
//! blocks, seen as bytes. Buffers that a device has registered with the kernel come from a [`Pool`]
//! and go back to it. **Invariants.** The length is a whole number of blocks; the memory does not
//! move while the buffer is moved. Memory of a pool is not freed before the pool is. **Crash.**
//! Nothing is kept.

use std::fmt;

use dure_sync::{Arc, Mutex};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;
use crate::rank::POOL_RANK;

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
#[derive(Default)]
pub struct BlockBuf {
    /// At least as many as it is long.
    memory: Vec<Block>,
    /// Its length in blocks.
    len: usize,
    /// The pool that its memory belongs to, if it does.
    home: Option<Home>,
}

/// Where the memory of a registered buffer belongs, and the number it is registered by.
struct Home {
    pool: Arc<Pool>,
    number: u16,
}

/// Buffers that the kernel knows.
pub(crate) struct Pool {
    /// [POOL] Those that no task has, with their numbers.
    free: Mutex<POOL_RANK, Vec<(Vec<Block>, u16)>>,
    /// Addresses of all of them, by number.
    addresses: Vec<usize>,
    blocks: usize,
}

impl Pool {
    pub(crate) fn new(count: u16, blocks: usize) -> Self {
        let free: Vec<_> = (0..count)
            .map(|number| (BlockBuf::zeroed(blocks).blocks_out(), number))
            .collect();
        let addresses = free.iter().map(|(memory, _)| memory.as_ptr().addr());
        Self {
            addresses: addresses.collect(),
            free: Mutex::new(free),
            blocks,
        }
    }

    /// A buffer of `blocks` blocks, of any content; none if they are too many, or all are out.
    pub(crate) fn take(pool: &Arc<Self>, blocks: usize) -> Option<BlockBuf> {
        if blocks > pool.blocks {
            return None;
        }
        let (memory, number) = pool.free.lock().pop()?;
        Some(BlockBuf {
            memory,
            len: blocks,
            home: Some(Home {
                pool: Arc::clone(pool),
                number,
            }),
        })
    }

    /// What is to be registered.
    pub(crate) fn vectors(&self) -> Vec<libc::iovec> {
        let vector = |address: &usize| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(*address),
            iov_len: self.blocks * BLOCK_BYTES,
        };
        self.addresses.iter().map(vector).collect()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.addresses.len();
        write!(f, "Pool({count} buffers of {} blocks)", self.blocks)
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            let memory = std::mem::take(&mut self.memory);
            home.pool.free.lock().push((memory, home.number));
        }
    }
}

/// A copy is not registered.
impl Clone for BlockBuf {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory[..self.len].to_vec(),
            len: self.len,
            home: None,
        }
    }
}

impl BlockBuf {
    /// A buffer of `blocks` blocks of zeroes.
    ///
    /// # Panics
    /// If the memory is not available.
    #[must_use]
    pub fn zeroed(blocks: usize) -> Self {
        Self {
            memory: Block::new_vec_zeroed(blocks).expect("memory for the buffer is available"),
            len: blocks,
            home: None,
        }
    }

    fn blocks_out(mut self) -> Vec<Block> {
        std::mem::take(&mut self.memory)
    }

    /// The number by which the kernel knows it.
    pub(crate) fn registered(&self) -> Option<u16> {
        self.home.as_ref().map(|home| home.number)
    }

    /// A copy of `bytes`, padded with zeroes to whole blocks.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// Changes the length to `blocks`; keeps the content of the blocks that stay and the memory.
    /// Only blocks that are new get zeroed. A registered buffer that grows is registered no more.
    pub fn resize(&mut self, blocks: usize) {
        let (before, had) = (self.len, self.memory.len());
        self.reuse(blocks);
        // What the memory has grown by is zero.
        if let Some(again) = self.memory.get_mut(before..blocks.min(had)) {
            again.as_mut_bytes().fill(0);
        }
    }

    /// Changes the length to `blocks` for a caller about to fill them: new blocks have any content.
    pub fn reuse(&mut self, blocks: usize) {
        if self.home.is_some() && blocks > self.memory.len() {
            *self = self.clone();
        }
        let more = blocks.saturating_sub(self.memory.len());
        Block::extend_vec_zeroed(&mut self.memory, more)
            .expect("memory for the buffer is available");
        self.len = blocks;
    }

    /// How long it can become and keep its memory, in blocks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.memory[..self.len].as_bytes()
    }

    /// All bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory[..self.len].as_mut_bytes()
    }

    /// The length in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.len
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
    fn registered_memory_goes_back_and_stays_where_it_is() {
        let pool = Arc::new(Pool::new(2, 4));
        let at: Vec<usize> = pool.vectors().iter().map(|v| v.iov_base.addr()).collect();
        let mut first = Pool::take(&pool, 4).unwrap();
        let number = usize::from(first.registered().unwrap());
        assert_eq!(first.as_slice().as_ptr().addr(), at[number]);
        assert!(
            Pool::take(&pool, 5).is_none(),
            "longer than those of the pool"
        );
        let second = Pool::take(&pool, 1).unwrap();
        assert!(Pool::take(&pool, 1).is_none(), "both are out");
        assert_eq!(second.blocks(), 1);
        first.as_mut_slice().fill(7);
        assert_eq!(first.clone().registered(), None);
        first.resize(2);
        assert_eq!(first.registered().map(usize::from), Some(number));
        // It would move, so its memory goes back.
        first.resize(5);
        assert_eq!(first.registered(), None);
        assert_eq!(first.as_slice()[..2 * BLOCK_BYTES], [7; 2 * BLOCK_BYTES]);
        drop(second);
        let again = [Pool::take(&pool, 4).unwrap(), Pool::take(&pool, 4).unwrap()];
        for buffer in again {
            let number = usize::from(buffer.registered().unwrap());
            assert_eq!(buffer.as_slice().as_ptr().addr(), at[number]);
        }
    }

    #[test]
    fn resize_keeps_what_stays_and_zeroes_what_is_new() {
        let mut buf = BlockBuf::from_slice(&[7; 2 * BLOCK_BYTES]);
        buf.resize(1);
        buf.resize(3);
        assert_eq!(buf.as_slice()[..BLOCK_BYTES], [7; BLOCK_BYTES]);
        assert_eq!(buf.as_slice()[BLOCK_BYTES..], [0; 2 * BLOCK_BYTES]);
    }

    #[test]
    fn a_reused_buffer_keeps_its_memory() {
        let mut buf = BlockBuf::from_slice(&[7; 4 * BLOCK_BYTES]);
        let at = buf.as_slice().as_ptr();
        buf.reuse(1);
        assert_eq!((buf.blocks(), buf.clone().blocks()), (1, 1));
        buf.reuse(4);
        assert_eq!((buf.as_slice().as_ptr(), buf.blocks()), (at, 4));
        assert_eq!(buf.as_slice(), [7; 4 * BLOCK_BYTES]);
        buf.reuse(5);
        assert_eq!(buf.blocks(), 5);
    }
}
