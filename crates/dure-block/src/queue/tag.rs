//! Tags: the bound on requests in flight.
//!
//! **Problem.** A device takes a limited number of requests; on many cores a shared free list of
//! tags is the bottleneck, and a waiter that is never woken hangs the machine. **Structure.** Bits
//! of padded words; each core begins at a word of its own and steals from the others when it is
//! empty. Tasks that find no tag wait in a list, in order of arrival. As long as there are any, a
//! bit of every word says so: a task that takes a tag then waits behind them, and a task that
//! releases one hands it to the first.
//!
//! # No wake-up is lost
//! **Invariants.** A tag has one owner. The waiter is in the list before it sets the bit
//! [`WAITED`] of a word, and a releaser sets its tag's bit in the same word. So one of the two is
//! first: either the releaser sees the bit and looks at the list, or the waiter, which looks for
//! tags after it has set the bit, sees the tag:
//!
//! ```text
//! waiter:   lock list, push itself, set WAITED in all words, serve the list, unlock, sleep
//! releaser: set the tag's bit; WAITED was set before? lock list, serve the list, unlock
//! ```
//!
//! As many waiters are woken as tags were released, each with its tag. **Crash.** Nothing is kept.

use std::collections::VecDeque;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::{Arc, CachePadded, Mutex, futex};

use crate::rank::TAG_RANK;

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

/// Tags of a word, and the distance of the first tags of two words.
const WORD_TAGS: u32 = 63;
pub(crate) const WORD_STEP: u32 = 64;
/// The bit of a word that says that tasks wait for tags.
const WAITED: u64 = 1 << 63;

/// The most tags that a queue can have.
pub(crate) const TAGS_MAX: u32 = 1 << 20;

/// A task that waits for a tag.
#[derive(Debug, Default)]
struct Waiter {
    /// 0: none yet; else its tag + 1. Written by the task that hands the tag over (Release), read
    /// by the waiter (Acquire): what the last owner did comes before.
    tag: AtomicU32,
}

/// The tags of one hardware queue.
#[derive(Debug)]
pub(crate) struct TagSet {
    /// Bit set = tag free, and [`WAITED`]. Written by tasks that take tags (Acquire: the last
    /// owner's accesses come before), by releasers (Release), and under `waiting` for `WAITED`.
    words: Box<[CachePadded<AtomicU64>]>,
    /// [229] In order of arrival. `WAITED` is set in all words if and only if there is one.
    waiting: CachePadded<Mutex<TAG_RANK, VecDeque<Arc<Waiter>>>>,
    nr_requests: u32,
}

impl TagSet {
    /// `nr_requests` tags, spread over words for `cores` cores.
    pub(crate) fn new(nr_requests: u32, cores: usize) -> Self {
        assert!(
            (1..=TAGS_MAX).contains(&nr_requests),
            "1 to {TAGS_MAX} tags, not {nr_requests}"
        );
        let per_core = u32::try_from(cores).unwrap_or(u32::MAX).min(nr_requests);
        let words = per_core.max(nr_requests.div_ceil(WORD_TAGS));
        let words = (0..words)
            .map(|word| {
                let tags = nr_requests / words + u32::from(word < nr_requests % words);
                assert!(
                    (1..=WORD_TAGS).contains(&tags),
                    "each word holds 1 to 63 tags"
                );
                CachePadded::new(AtomicU64::new(u64::MAX >> (u64::BITS - tags)))
            })
            .collect();
        Self {
            words,
            waiting: CachePadded::new(Mutex::new(VecDeque::new())),
            nr_requests,
        }
    }

    pub(crate) fn nr_requests(&self) -> u32 {
        self.nr_requests
    }

    /// Tags in use, at this moment.
    pub(crate) fn in_flight(&self) -> u32 {
        // Relaxed: statistics.
        let free = |word: &CachePadded<AtomicU64>| word.load(Ordering::Relaxed) & !WAITED;
        let free: u32 = self.words.iter().map(|word| free(word).count_ones()).sum();
        self.nr_requests - free
    }

    /// How many words they are in.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// Those in use, at this moment.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Tag> {
        let words = u32::try_from(self.words.len()).expect("at most 2^20 words");
        (0..words).zip(&self.words).flat_map(move |(number, word)| {
            // Relaxed: statistics.
            let free = word.load(Ordering::Relaxed);
            let tags = self.nr_requests / words + u32::from(number < self.nr_requests % words);
            let taken = (0..tags).filter(move |bit| free & (1 << bit) == 0);
            taken.map(move |bit| Tag(number * WORD_STEP + bit))
        })
    }

    /// The word at which the `position`-th of `cores` cores begins.
    pub(crate) fn first_word(&self, position: usize, cores: usize) -> usize {
        position * self.words.len() / cores
    }

    /// Takes a free tag, from word `first` on, unless others wait for one.
    #[inline]
    pub(crate) fn take_now(&self, first: usize) -> Option<Tag> {
        self.take_if(first, |free| free & WAITED == 0)
    }

    #[inline]
    fn take_if(&self, first: usize, may_take: impl Fn(u64) -> bool) -> Option<Tag> {
        let count = self.words.len();
        (0..count).find_map(|step| {
            let index = first + step;
            self.take_from(if index < count { index } else { index - count }, &may_take)
        })
    }

    #[inline]
    fn take_from(&self, index: usize, may_take: impl Fn(u64) -> bool) -> Option<Tag> {
        let word = &self.words[index];
        // Relaxed: the exchange below compares again.
        let mut free = word.load(Ordering::Relaxed);
        while free & !WAITED != 0 && may_take(free) {
            let bit = free.trailing_zeros();
            // Acquire: pairs with the Release in `release`; the former owner's accesses come before
            // ours.
            match word.compare_exchange_weak(
                free,
                free & (free - 1),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let word = u32::try_from(index).expect("at most 2^20 words");
                    return Some(Tag(word * WORD_STEP + bit));
                }
                Err(now) => free = now,
            }
        }
        None
    }

    /// Takes a tag, waiting for one behind all tasks that wait already. `poll` runs completions and
    /// returns how many.
    #[cold]
    pub(crate) fn wait(&self, first: usize, mut poll: impl FnMut() -> usize) -> Tag {
        let me = Arc::new(Waiter::default());
        {
            let mut waiting = self.waiting.lock();
            waiting.push_back(Arc::clone(&me));
            if waiting.len() == 1 {
                for word in &self.words {
                    // Relaxed: what counts is the order of changes of this one word (see above).
                    word.fetch_or(WAITED, Ordering::Relaxed);
                }
            }
            self.serve(&mut waiting, first);
        }
        loop {
            // Acquire: pairs with the Release in `serve`.
            if let Some(tag) = me.tag.load(Ordering::Acquire).checked_sub(1) {
                return Tag(tag);
            }
            if poll() == 0 {
                futex::wait(&me.tag, 0, Some(POLL_INTERVAL));
            }
        }
    }

    /// Hands free tags to waiters, looking for them from word `first` on.
    fn serve(&self, waiting: &mut VecDeque<Arc<Waiter>>, first: usize) {
        while !waiting.is_empty() {
            let Some(tag) = self.take_if(first, |_| true) else {
                return;
            };
            let waiter = waiting.pop_front().expect("not empty");
            // Release: pairs with the Acquire in `wait`.
            let before = waiter.tag.swap(tag.0 + 1, Ordering::Release);
            assert_eq!(before, 0, "a waiter gets one tag");
            futex::wake(&waiter.tag, 1);
        }
        for word in &self.words {
            // Relaxed: as in `wait`; both are done under the lock.
            word.fetch_and(!WAITED, Ordering::Relaxed);
        }
    }

    /// Releases a tag.
    #[inline]
    pub(crate) fn release(&self, tag: Tag) {
        let index = usize::try_from(tag.0 / WORD_STEP).expect("32 bits fit in a usize");
        let bit = 1 << (tag.0 % WORD_STEP);
        // Release: pairs with the Acquire in `take_from`.
        let before = self.words[index].fetch_or(bit, Ordering::Release);
        assert_eq!(before & bit, 0, "tag {} was released twice", tag.0);
        if before & WAITED != 0 {
            self.hand_over(index);
        }
    }

    #[cold]
    fn hand_over(&self, index: usize) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_empty() {
            self.serve(&mut waiting, index);
        }
    }
}
