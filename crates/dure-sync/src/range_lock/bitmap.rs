//! Policy `bitmap`: one bit per 4 KiB page, exclusive (the survey's bitmap).
//!
//! **Problem.** The published text of hybridF2FS describes a bitmap of pages with I/O in progress,
//! changed by atomic operations; its code is an array of words. **Structure.** [`Words`], each of
//! which covers 32 pages; the pages of a claim within one word are taken together. Readers exclude
//! each other too, and 32 neighbouring pages share a line: policy `segment` avoids both.
//! **Invariants.** A set bit has one holder. **Crash.** Nothing is kept.

use super::fair_word::Discipline;
use super::range::{Access, Units};
use super::words::{Meaning, Words};

/// A word is 2^5 pages.
const PAGES_SHIFT: u32 = 5;
const LAST_BIT: u64 = (1 << PAGES_SHIFT) - 1;

const _: () = assert!(1 << PAGES_SHIFT == u32::BITS);

/// Words that have a bit per page.
#[derive(Debug)]
pub(super) struct Bits;

impl Discipline for Bits {
    /// The bits to set.
    type Need = u32;

    #[inline]
    fn fits(word: u32, need: u32) -> bool {
        word & need == 0
    }

    #[inline]
    fn amount(need: u32) -> u32 {
        need
    }

    #[inline]
    fn conflicts(one: u32, other: u32) -> bool {
        one & other != 0
    }
}

impl Meaning for Bits {
    const UNITS_SHIFT: u32 = PAGES_SHIFT;

    /// Always exclusive: a bit cannot count readers.
    #[inline]
    fn access(_wanted: Access) -> Access {
        Access::Exclusive
    }

    #[inline]
    fn need(_access: Access, in_word: Units) -> u32 {
        let bit = |page| u32::try_from(page & LAST_BIT).expect("a bit number is below 32");
        let (first, last) = (bit(in_word.first), bit(in_word.last));
        debug_assert!(first <= last, "the pages lie in one word, in order");
        (u32::MAX << first) & (u32::MAX >> (31 - last))
    }
}

/// Policy `bitmap`.
pub(super) type BitmapLock = Words<Bits>;
