//! The hash that leads a name through a directory's trie, and the readdir cookie made of it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of a hash below the part that a cookie holds.
const LOW_BITS: u32 = 5;

/// The hash of a name.
pub(super) fn name_hash(seed: u64, name: &[u8]) -> u64 {
    let hash = xxh3_64_with_seed(name, seed);
    if hash >> LOW_BITS == 0 {
        hash | 1 << LOW_BITS
    } else {
        hash
    }
}

/// The readdir cookie of an entry.
pub(super) fn cookie(hash: u64, ordinal: u8) -> u64 {
    (hash >> LOW_BITS) << 4 | u64::from(ordinal)
}
