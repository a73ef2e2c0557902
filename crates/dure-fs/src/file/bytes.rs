//! Bytes of a file as pages.

use dure_store::units::{BLOCK_BYTES_U64, to_u64, to_usize};

/// The page of a byte, and the byte within it.
pub(super) fn split(offset: u64) -> (u64, usize) {
    (offset / BLOCK_BYTES_U64, to_usize(offset % BLOCK_BYTES_U64))
}

/// First page and page behind the last.
pub(super) fn pages_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    offset / BLOCK_BYTES_U64..(offset + to_u64(len)).div_ceil(BLOCK_BYTES_U64)
}

/// Pages that this many bytes take.
pub(super) fn pages_up_to(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES_U64)
}

/// The part of the last page that belongs to a file of `size` bytes.
pub(super) fn tail_bytes(size: u64) -> usize {
    to_usize(size % BLOCK_BYTES_U64)
}
