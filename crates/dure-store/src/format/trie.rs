//! Arithmetic of the hash trie: which bucket a hash belongs to, and readdir cookies.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bucket::{LEVELS_MAX, ORDINALS};

/// Bits of a hash below the part that a cookie holds.
const LOW_BITS: u32 = 5;
const _: () = assert!(61 - 3 * (LEVELS_MAX - 1) >= LOW_BITS);
const _: () = assert!(ORDINALS == 16);

/// The hash of a name. Never below 32, so that every cookie is above those of "." and "..".
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    let hash = xxh3_64_with_seed(name, seed);
    if hash >> LOW_BITS == 0 {
        hash | 1 << LOW_BITS
    } else {
        hash
    }
}

/// The bucket of `hash` within its node at `level`.
pub fn slot(hash: u64, level: u32) -> u8 {
    assert!(level < LEVELS_MAX, "level {level} of at most {LEVELS_MAX}");
    (hash >> (61 - 3 * level)).to_le_bytes()[0] & 7
}

/// The first hash behind the bucket that holds `hash` at `level`; `None` behind the last bucket.
pub fn bucket_end(hash: u64, level: u32) -> Option<u64> {
    assert!(level < LEVELS_MAX, "level {level} of at most {LEVELS_MAX}");
    let below = (1_u64 << (61 - 3 * level)) - 1;
    (hash | below).checked_add(1)
}

/// Whether `hash` is the first one of its bucket at `level`.
pub fn begins_bucket(hash: u64, level: u32) -> bool {
    assert!(level < LEVELS_MAX, "level {level} of at most {LEVELS_MAX}");
    hash.trailing_zeros() >= 61 - 3 * level
}

/// Whether two hashes differ in nothing but what ordinals tell apart.
pub fn same_group(a: u64, b: u64) -> bool {
    a >> LOW_BITS == b >> LOW_BITS
}

/// The readdir cookie of an entry: positive as an `i64`, above 2, and in the order of the trie.
pub fn cookie(hash: u64, ordinal: u8) -> u64 {
    assert!(ordinal < ORDINALS);
    (hash >> LOW_BITS) << 4 | u64::from(ordinal)
}

/// The smallest hash of an entry with this cookie or a higher one.
pub fn cookie_hash(cookie: u64) -> u64 {
    (cookie >> 4) << LOW_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_take_three_bits_each_from_the_top() {
        let hash = 0b101_011_110 << 55;
        assert_eq!((slot(hash, 0), slot(hash, 1), slot(hash, 2)), (5, 3, 6));
        assert_eq!(slot(0x380, 18), 7);
        assert_eq!(slot(!0x380, 18), 0);
    }

    #[test]
    fn the_last_bucket_has_no_end() {
        for level in 0..LEVELS_MAX {
            assert_eq!(bucket_end(u64::MAX, level), None);
        }
        assert_eq!(bucket_end(0, 0), Some(1 << 61));
        assert_eq!(bucket_end(5, 18), Some(128));
    }

    #[test]
    fn cookies_leave_room_for_dot_and_dot_dot() {
        assert!(cookie(32, 0) > 2);
        assert!(i64::try_from(cookie(u64::MAX, 15)).is_ok());
    }

    proptest! {
        #[test]
        fn cookies_follow_the_order_of_the_trie(a: u64, b: u64, level in 0..LEVELS_MAX) {
            let (a, b) = (a.max(32), b.max(32));
            if same_group(a, b) {
                prop_assert_eq!(slot(a, level), slot(b, level));
            } else {
                prop_assert_eq!(a < b, cookie(a, 15) < cookie(b, 0));
            }
            prop_assert!(cookie_hash(cookie(a, 9)) <= a);
            prop_assert!(same_group(cookie_hash(cookie(a, 9)), a));
            if let Some(end) = bucket_end(a, level) {
                prop_assert!(end > a);
                prop_assert!(begins_bucket(end, level) && !begins_bucket(end - 1, level));
                prop_assert_eq!(bucket_end(end - 1, level), Some(end));
                prop_assert_eq!(slot(end - 1, level), slot(a, level));
            }
        }

        #[test]
        fn name_hashes_depend_on_the_seed(name in proptest::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_ne!(name_hash(1, &name), name_hash(2, &name));
            prop_assert!(name_hash(1, &name) >= 32);
        }
    }
}
