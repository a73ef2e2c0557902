//! Numbers that look random and depend on a seed alone.
//!
//! **Problem.** Crash states and faults are drawn at random and must be drawn again.
//! **Structure.** SplitMix64. **Invariants.** Same seed, same numbers, on every machine.
//! **Crash.** Nothing is kept.

/// The generator.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
