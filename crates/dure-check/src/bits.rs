//! A sparse bitmap, one bit per block or node of the volume: it takes memory only where bits are
//! set.

const CHUNK_BITS: u64 = 32768;
const CHUNK_WORDS: usize = 512;

/// A sparse bitmap of fixed length.
#[derive(Debug)]
pub(super) struct Bits {
    len: u64,
    chunks: Vec<Option<Box<[u64; CHUNK_WORDS]>>>,
}

impl Bits {
    /// `len` zero bits.
    pub(super) fn new(len: u64) -> Bits {
        let chunks = dure_store::units::to_usize(len.div_ceil(CHUNK_BITS));
        Bits {
            len,
            chunks: (0..chunks).map(|_| None).collect(),
        }
    }

    fn place(&self, index: u64) -> (usize, usize, u64) {
        assert!(index < self.len, "bit {index} of {}", self.len);
        let chunk = dure_store::units::to_usize(index / CHUNK_BITS);
        let word = dure_store::units::to_usize(index % CHUNK_BITS / 64);
        (chunk, word, 1 << (index % 64))
    }

    /// Whether bit `index` is set.
    pub(super) fn get(&self, index: u64) -> bool {
        let (chunk, word, mask) = self.place(index);
        self.chunks[chunk]
            .as_ref()
            .is_some_and(|words| words[word] & mask != 0)
    }

    /// Sets bit `index`; false when it was set before.
    pub(super) fn set(&mut self, index: u64) -> bool {
        let (chunk, word, mask) = self.place(index);
        let words = self.chunks[chunk].get_or_insert_with(|| Box::new([0; CHUNK_WORDS]));
        let new = words[word] & mask == 0;
        words[word] |= mask;
        new
    }

    /// Ranges outside of which no bit is set.
    pub(super) fn touched(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        (0_u64..).zip(&self.chunks).filter_map(|(n, chunk)| {
            let first = n * CHUNK_BITS;
            chunk.as_ref()?;
            Some(first..self.len.min(first + CHUNK_BITS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn bits_are_independent() {
        let mut bits = Bits::new(70_000);
        assert!(bits.set(0) && bits.set(63) && bits.set(64) && bits.set(69_999));
        assert!(!bits.set(64));
        assert!(bits.get(69_999) && !bits.get(1) && !bits.get(40_000));
        let touched: Vec<_> = bits.touched().collect();
        assert_eq!(touched, [0..32_768, 65_536..70_000]);
    }
}
