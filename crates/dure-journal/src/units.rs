//! Conversions between counts on the medium and counts in memory.
//!
//! **Problem.** `as` casts hide truncation. **Structure.** One function per direction; dure runs
//! on 64-bit machines only, asserted here once.

const _: () = assert!(usize::BITS == 64, "dure needs a 64-bit machine");

/// Bytes of a block, as the medium counts.
pub(crate) const BLOCK_BYTES_U32: u32 = 4096;
const _: () = assert!(to_usize(BLOCK_BYTES_U32) == dure_block::BLOCK_BYTES);

/// A 32-bit count as an index.
pub(crate) const fn to_usize(value: u32) -> usize {
    value as usize
}

/// A length as a 64-bit count.
pub(crate) const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// A length that a caller has bounded far below 4 GiB.
pub(crate) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).expect("lengths in a log segment fit in 32 bits")
}
