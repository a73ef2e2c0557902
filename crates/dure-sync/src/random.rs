//! Random numbers.
//!
//! **Problem.** A simulated run must draw the same numbers again. **Structure.** The real machine
//! asks the kernel; the simulation derives the numbers from its seed. **Invariants.** Not to be
//! used in a hot path: the real machine makes a system call. [`Seeded`] draws what tests and
//! measurements must be able to repeat. **Crash.** Nothing is kept.

use std::cell::RefCell;

use crate::backend;

crate::task_local! {
    /// The numbers that this task is given instead of real ones.
    static PRETENDED: RefCell<Option<Seeded>> = const { RefCell::new(None) };
}

/// From now on this task draws the sequence of `seed`; `None`: real random numbers. Test-only: what
/// a test writes on a medium must be the same each time.
#[doc(hidden)]
pub fn pretend(seed: Option<u64>) {
    PRETENDED.with(|pretended| *pretended.borrow_mut() = seed.map(Seeded::new));
}

/// A random number.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Fills `bytes` with random bytes.
pub fn fill(bytes: &mut [u8]) {
    PRETENDED.with(|pretended| match &mut *pretended.borrow_mut() {
        None => backend::random_fill(bytes),
        Some(seeded) => {
            for word in bytes.chunks_mut(8) {
                let number = seeded.next_u64().to_le_bytes();
                word.copy_from_slice(&number[..word.len()]);
            }
        }
    });
}

/// Repeatable numbers: the same sequence for a seed, on every machine and in every backend. Not for
/// secrets. SplitMix64 (Steele, Lea, Flood 2014): one word of state, and any seed is a good one.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
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

    /// An index of something that has `len` elements.
    ///
    /// # Panics
    /// If `len` is 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).expect("a length fits 64 bits");
        usize::try_from(self.below(bound)).expect("a number below a usize fits in one")
    }

    /// True for half of all draws.
    #[inline]
    pub fn coin(&mut self) -> bool {
        self.next_u64() & 1 == 1
    }
}
