//! Tags: the bound on requests in flight.
//!
//! **Problem.** A device takes a limited number of requests; on many cores a shared free list of
//! tags is the bottleneck, and a waiter that is never woken hangs the machine. **Structure.** Bits
//! of padded words; each core starts at a word of its own and steals from the others when it is
//! empty. Waiters sleep on a sequence number that every release increments while there are waiters.
//! A waiter that found no tag several times is *starving*: then newcomers wait as well.
//! **Invariants.** A tag has one owner. No wake-up is lost: a waiter announces itself, then checks
//! all words, then sleeps; a releaser frees the bit, then checks for waiters; at least one of the
//! two sees the other. **Crash.** Nothing is kept.

use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::{CachePadded, CoreId, core_count, futex};

/// The number of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// How long a waiter sleeps before it polls the device again: it may have to run completions of
/// requests whose submitters do other work.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// After this many failed attempts a waiter is starving.
const PATIENCE: u32 = 3;

/// The tags of one hardware queue.
#[derive(Debug)]
pub(crate) struct TagSet {
    /// Bit set = tag free. Written by tasks that take tags (Acquire: the last owner's accesses come
    /// before) and by releasers (Release).
    words: Box<[CachePadded<AtomicU64>]>,
    /// Tasks that have announced that they wait and have no tag yet.
    waiters: CachePadded<AtomicU32>,
    /// Incremented by a release that sees waiters; waiters sleep on it.
    released: CachePadded<AtomicU32>,
    /// Number of starving waiters. Read by every task that takes a tag, written rarely.
    starving: CachePadded<AtomicU32>,
    nr_requests: u32,
    /// Words per core, as a fraction: core c starts at word c * words / cores.
    cores: usize,
}

const WORD_TAGS: u32 = 64;

impl TagSet {
    pub(crate) fn new(nr_requests: u32) -> Self {
        assert!(
            (1..=1 << 20).contains(&nr_requests),
            "1 to 2^20 tags, not {nr_requests}"
        );
        let cores = core_count();
        let per_core = u32::try_from(cores).unwrap_or(u32::MAX).min(nr_requests);
        let words = per_core.max(nr_requests.div_ceil(WORD_TAGS));
        let words = (0..words)
            .map(|word| {
                let tags = nr_requests / words + u32::from(word < nr_requests % words);
                assert!(
                    (1..=WORD_TAGS).contains(&tags),
                    "each word holds 1 to 64 tags"
                );
                CachePadded::new(AtomicU64::new(u64::MAX >> (WORD_TAGS - tags)))
            })
            .collect();
        Self {
            words,
            waiters: CachePadded::new(AtomicU32::new(0)),
            released: CachePadded::new(AtomicU32::new(0)),
            starving: CachePadded::new(AtomicU32::new(0)),
            nr_requests,
            cores,
        }
    }

    pub(crate) fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// Tags in use, at this moment.
    pub(crate) fn in_flight(&self) -> u32 {
        // Relaxed: statistics.
        let free: u32 = self
            .words
            .iter()
            .map(|w| w.load(Ordering::Relaxed).count_ones())
            .sum();
        self.nr_requests - free
    }

    fn first_word(&self, core: CoreId) -> usize {
        (core.index() % self.cores) * self.words.len() / self.cores
    }

    /// Takes a free tag, unless a waiter is starving.
    #[inline]
    pub(crate) fn take_now(&self, core: CoreId) -> Option<Tag> {
        // Relaxed: a newcomer that overtakes a starving waiter once more does no harm.
        if self.starving.load(Ordering::Relaxed) > 0 {
            None
        } else {
            self.try_take(core)
        }
    }

    /// Takes a free tag, the core's own first.
    #[inline]
    fn try_take(&self, core: CoreId) -> Option<Tag> {
        let count = self.words.len();
        let first = self.first_word(core);
        (0..count).find_map(|step| {
            let index = first + step;
            self.take_from(if index < count { index } else { index - count })
        })
    }

    #[inline]
    fn take_from(&self, index: usize) -> Option<Tag> {
        let word = &self.words[index];
        // SeqCst: orders this load of the word after the announcement in `waiters`; see `wait`.
        let mut free = word.load(Ordering::SeqCst);
        while free != 0 {
            let bit = free.trailing_zeros();
            // Acquire: pairs with the Release in `release`; the former owner's accesses come before
            // ours.
            match word.compare_exchange_weak(
                free,
                free & (free - 1),
                Ordering::Acquire,
                Ordering::SeqCst,
            ) {
                Ok(_) => {
                    let word = u32::try_from(index).expect("at most 2^20 words");
                    return Some(Tag(word * WORD_TAGS + bit));
                }
                Err(now) => free = now,
            }
        }
        None
    }

    /// Takes a tag, waiting for one as long as it takes. `poll` runs completions and returns how
    /// many.
    pub(crate) fn wait(&self, core: CoreId, mut poll: impl FnMut() -> usize) -> Tag {
        // SeqCst: either we see the bit that a releaser frees, or it sees that we wait.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut attempts = 0_u32;
        let tag = loop {
            let seen = self.released.load(Ordering::SeqCst);
            let is_starving = attempts >= PATIENCE;
            if (is_starving || self.starving.load(Ordering::SeqCst) == 0)
                && let Some(tag) = self.try_take(core)
            {
                break tag;
            }
            attempts = attempts.saturating_add(1);
            if attempts == PATIENCE {
                // SeqCst: a release after this wakes all waiters; the next attempt finds one before
                // it.
                self.starving.fetch_add(1, Ordering::SeqCst);
            } else if poll() == 0 {
                futex::wait(&self.released, seen, Some(POLL_INTERVAL));
            }
        };
        // Relaxed: a releaser that still sees us only does a needless wake-up.
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        // SeqCst: waiters that held back because of us try again.
        if attempts >= PATIENCE && self.starving.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake(u32::MAX);
        }
        tag
    }

    fn wake(&self, count: u32) {
        self.released.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.released, count);
    }

    /// Releases a tag.
    #[inline]
    pub(crate) fn release(&self, tag: Tag) {
        let index = usize::try_from(tag.0 / WORD_TAGS).expect("32 bits fit in a usize");
        let bit = 1 << (tag.0 % WORD_TAGS);
        // SeqCst: Release for the next owner, and ordered before the check for waiters.
        let before = self.words[index].fetch_or(bit, Ordering::SeqCst);
        assert_eq!(before & bit, 0, "tag {} was released twice", tag.0);
        // SeqCst: see `wait`.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            // One waiter for one tag; but the woken one may hold back because of a starving one.
            let starving = self.starving.load(Ordering::SeqCst) > 0;
            self.wake(if starving { u32::MAX } else { 1 });
        }
    }
}
