//! The blocks of one segment as a set: 512 bits, of which a segment uses the first
//! `segment_blocks`.
//!
//! Ranges are `first .. first + count` within the segment; a range outside the 512 bits is a bug.

/// Bits of a bitmap: blocks of the largest segment.
pub(crate) const BITS: u32 = 512;
const WORDS: usize = 8;
const _: () = assert!(WORDS * 64 == 512);

/// A set of blocks of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bitmap([u64; WORDS]);

impl Bitmap {
    /// No block.
    pub(crate) const EMPTY: Bitmap = Bitmap([0; WORDS]);

    /// The blocks of `first .. first + count`.
    pub(crate) fn of(first: u32, count: u32) -> Bitmap {
        assert!(
            first <= BITS && count <= BITS - first,
            "blocks {first} + {count} of a segment"
        );
        let end = first + count;
        let mut words = [0; WORDS];
        let mut at = first;
        while at < end {
            let word_end = end.min((at / 64 + 1) * 64);
            words[(at / 64) as usize] = below(word_end - at) << (at % 64);
            at = word_end;
        }
        Bitmap(words)
    }

    /// As in a SIT entry: bit i is bit i % 8 of byte i / 8.
    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Bitmap {
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Bitmap(words)
    }

    /// The inverse of [`Bitmap::from_bytes`].
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (word, chunk) in self.0.iter().zip(bytes.as_chunks_mut::<8>().0) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }

    /// Whether block `index` is in the set.
    pub(crate) fn contains(&self, index: u32) -> bool {
        assert!(index < BITS, "block {index} of a segment");
        self.0[(index / 64) as usize] >> (index % 64) & 1 != 0
    }

    /// Number of blocks in the set.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Adds the blocks of `other`.
    pub(crate) fn insert(&mut self, other: &Bitmap) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Takes the blocks of `other` out.
    pub(crate) fn remove(&mut self, other: &Bitmap) {
        for (word, less) in self.0.iter_mut().zip(other.0) {
            *word &= !less;
        }
    }

    /// The blocks in both.
    pub(crate) fn and(&self, other: &Bitmap) -> Bitmap {
        Bitmap(std::array::from_fn(|index| self.0[index] & other.0[index]))
    }

    /// The blocks of `self` that are not in `other`.
    pub(crate) fn without(&self, other: &Bitmap) -> Bitmap {
        Bitmap(std::array::from_fn(|index| self.0[index] & !other.0[index]))
    }

    /// Whether all blocks of `other` are in the set.
    pub(crate) fn covers(&self, other: &Bitmap) -> bool {
        other.without(self).is_empty()
    }

    /// The first block at or behind `from` and before `end` that is not in the set.
    pub(crate) fn next_absent(&self, from: u32, end: u32) -> Option<u32> {
        self.next(from, end, u64::MAX)
    }

    /// The first block at or behind `from` and before `end` that is in the set.
    pub(crate) fn next_present(&self, from: u32, end: u32) -> Option<u32> {
        self.next(from, end, 0)
    }

    /// The blocks of the set in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let set = *self;
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = set.next_present(from, BITS)?;
            from = found + 1;
            Some(found)
        })
    }

    /// The first bit in `from .. end` that is set once the words are flipped by `flip`.
    fn next(&self, from: u32, end: u32, flip: u64) -> Option<u32> {
        assert!(end <= BITS, "block {end} of a segment");
        if from >= end {
            return None;
        }
        let first_word = (from / 64) as usize;
        let mut word = (self.0[first_word] ^ flip) & !below(from % 64);
        for index in first_word..WORDS {
            if index != first_word {
                word = self.0[index] ^ flip;
            }
            if word != 0 {
                let found = u32::try_from(index * 64).expect("a segment has at most 512 blocks")
                    + word.trailing_zeros();
                return (found < end).then_some(found);
            }
        }
        None
    }
}

/// The lowest `bits` bits.
fn below(bits: u32) -> u64 {
    1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1)
}
