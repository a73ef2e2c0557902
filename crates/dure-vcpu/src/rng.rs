//! The numbers a run is made of.
//!
//! **Problem.** Every choice of a run must follow from its seed. **Structure.** SplitMix64: one
//! word of state, any seed is a good seed. **Invariants.** Same seed, same sequence, on every
//! machine. **Crash.** Nothing is kept.

/// A seeded generator; not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// The upper half of the next number.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        u32::try_from(self.next_u64() >> 32).expect("32 bits are left")
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        self.next_u64() % bound
    }

    /// An index below `len`.
    ///
    /// # Panics
    /// If `len` is 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).expect("a length fits 64 bits");
        usize::try_from(self.below(bound)).expect("a number below a usize fits in one")
    }

    /// True once in `every` draws on average; never if `every` is 0.
    #[inline]
    pub fn one_in(&mut self, every: u64) -> bool {
        every > 0 && self.below(every) == 0
    }
}
