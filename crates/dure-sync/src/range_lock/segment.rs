//! Policy `segment`: a word per segment of the file (pNOVA).
//!
//! **Problem.** Readers and writers of different parts of a file must share no written line, and
//! one shared counter of readers is such a line. **Structure.** The file is cut into segments of 4
//! KiB or more; each has a 32-bit word, whose top bit is the writer and whose other 31 bits count
//! readers. [`Words`](super::words) allocates words at first use, one to a cache line.
//! **Invariants.** The top bit excludes all others; a word full of readers makes further ones wait
//! rather than overflow into the top bit. **Crash.** Nothing is kept.

use super::fair_word::Discipline;
use super::range::{Access, Units};
use super::words::{Meaning, Words};

/// The top bit: a writer.
const WRITER: u32 = 1 << 31;
/// The most readers a word can count.
const READERS_MAX: u32 = WRITER - 1;

/// Words that count readers.
#[derive(Debug)]
pub(super) struct Shared;

impl Discipline for Shared {
    type Need = Access;

    #[inline]
    fn fits(word: u32, need: Access) -> bool {
        match need {
            Access::Shared => word < READERS_MAX,
            Access::Exclusive => word == 0,
        }
    }

    #[inline]
    fn amount(need: Access) -> u32 {
        match need {
            Access::Shared => 1,
            Access::Exclusive => WRITER,
        }
    }

    #[inline]
    fn conflicts(one: Access, other: Access) -> bool {
        one.excludes(other)
    }
}

impl Meaning for Shared {
    /// A word is one segment.
    const UNITS_SHIFT: u32 = 0;

    #[inline]
    fn access(wanted: Access) -> Access {
        wanted
    }

    #[inline]
    fn need(access: Access, _in_word: Units) -> Access {
        access
    }
}

/// Policy `segment`.
pub(super) type SegmentLock = Words<Shared>;

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::super::fair_word::{FairWord, Outcome, Queue};
    use super::*;
    use crate::range_lock::range::{Patience, WaitTallies};
    use crate::{Arc, thread};

    /// pNOVA adds first and looks afterwards: the reader after the last would set the writer bit.
    #[test]
    fn the_reader_after_the_last_waits_instead_of_overflowing() {
        let lock = Arc::new((FairWord::<Shared>::new(READERS_MAX), Queue::new()));
        assert_eq!(lock.0.try_take(Access::Shared), Outcome::Busy);
        let other = Arc::clone(&lock);
        let late = thread::spawn("reader", move || {
            let (word, queue) = &*other;
            let tallies = WaitTallies::default();
            let wait = Patience::Wait(&tallies);
            let wait = word.take(Access::Shared, wait, queue, 0, || true);
            assert_eq!(wait, Outcome::Taken);
        });
        assert_eq!(lock.0.value(), READERS_MAX);
        lock.0.release(Access::Shared, &lock.1, 0);
        late.join().unwrap();
        assert_eq!(lock.0.value(), READERS_MAX);
        assert_eq!(lock.0.try_take(Access::Exclusive), Outcome::Busy);
    }
}
