//! Sixteen neighbouring words of a file.
//!
//! **Problem.** Words must be few where a file is not used, on separate lines where it is, and
//! found without a lock. **Structure.** A chunk has a header line that is only read (key, link), a
//! line for the queue of waiters, and a line for each word; neighbouring words are not in one pair
//! of lines either, since x86 fetches pairs. Chunks are linked into the buckets of a table.
//!
//! **Invariants.** A chunk is never freed while its lock lives, so a stale pointer is harmless: it
//! is given another key only while all its words are retired, which requires that no task holds or
//! awaits any of them. So a task that has taken a word reads the key again: if it is the right one,
//! it stays so until the word is released. **Crash.** Nothing is kept.

use std::ptr::NonNull;

use super::super::fair_word::{Discipline, FairWord, Outcome, Queue};
use super::super::range::Patience;
use crate::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::backend::{CHUNK_SHIFT, Shadow};

/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = 1 << CHUNK_SHIFT;
const LAST_WORD: u64 = (1 << CHUNK_SHIFT) - 1;

/// The key of a retired chunk.
const NO_KEY: u64 = u64::MAX;

/// A value that has its cache line to itself.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

/// Words `key * CHUNK_WORDS` and following; see the module.
#[derive(Debug)]
#[repr(C, align(128))]
pub(in crate::range_lock) struct Chunk<D: Discipline> {
    /// Written under the directory's mutex, while no word can be taken.
    key: AtomicU64,
    /// For loom: checks that a task which follows a link to the chunk sees it initialized.
    born: Shadow,
    /// The next chunk of the bucket. Written under the directory's mutex; Release there pairs with
    /// the Acquire of lookups and publishes the next chunk.
    pub(super) next: AtomicPtr<Chunk<D>>,
    queue: Line<Queue<D>>,
    words: [Line<FairWord<D>>; CHUNK_WORDS],
}

/// A reference to a chunk, which lives as long as its lock.
#[derive(Debug)]
pub(super) struct ChunkRef<D: Discipline>(pub(super) NonNull<Chunk<D>>);

impl<D: Discipline> Clone for ChunkRef<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Discipline> Copy for ChunkRef<D> {}

// SAFETY: it acts as `&Chunk`, and `Chunk` is `Sync`: atomics and a mutex.
unsafe impl<D: Discipline> Send for ChunkRef<D> {}

/// The key of the chunk of a word, and the word's index there.
#[inline]
pub(super) fn key_of(word: u64) -> u64 {
    word >> CHUNK_SHIFT
}

/// The line of a word: neighbours are two lines apart.
#[inline]
fn place_of(word: u64) -> usize {
    let index = word & LAST_WORD;
    let line = ((index << 1) | (index >> (CHUNK_SHIFT - 1))) & LAST_WORD;
    usize::try_from(line).expect("below the number of words")
}

impl<D: Discipline> Chunk<D> {
    /// A chunk whose word i starts as `initial(i)`; `None` if memory is exhausted.
    pub(super) fn allocate(key: u64, initial: impl Fn(u64) -> u32) -> Option<ChunkRef<D>> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        let chunk = Self {
            key: AtomicU64::new(key),
            born: Shadow::new(),
            next: AtomicPtr::default(),
            queue: Line(Queue::new()),
            words: std::array::from_fn(|_| Line(FairWord::new(0))),
        };
        one.push(chunk);
        for word in Self::words(key) {
            one[0].words[place_of(word)] = Line(FairWord::new(initial(word)));
        }
        let chunk = Box::leak(one.into_boxed_slice());
        chunk[0].born.write(&raw const chunk[0].key);
        Some(ChunkRef(NonNull::from(&mut chunk[0])))
    }

    /// Frees a chunk.
    ///
    /// # Safety
    /// `chunk` comes from `allocate`, is freed once, and is not used any more.
    pub(super) unsafe fn free(chunk: ChunkRef<D>) {
        let slice = std::ptr::slice_from_raw_parts_mut(chunk.0.as_ptr(), 1);
        // SAFETY: `allocate` leaked a boxed slice of one; the rest is promised by the caller.
        drop(unsafe { Box::from_raw(slice) });
    }

    /// The words of chunk `key`.
    pub(super) fn words(key: u64) -> impl Iterator<Item = u64> {
        let first = key << CHUNK_SHIFT;
        first..=first + LAST_WORD
    }

    /// Called when a lookup has followed a link to this chunk.
    #[inline]
    pub(super) fn reached(&self) {
        self.born.read(&raw const self.key);
    }

    /// The key of the chunk, at this moment.
    #[inline]
    pub(super) fn key(&self) -> u64 {
        // Relaxed: a task that relies on it holds a word, whose Acquire has made the key visible.
        self.key.load(Ordering::Relaxed)
    }

    /// Takes `word`; `Retired` if this is not its chunk any more.
    #[inline]
    pub(super) fn take(&self, word: u64, need: D::Need, patience: Patience<'_>) -> Outcome {
        let (key, place) = (key_of(word), place_of(word));
        let taken = self.words[place]
            .0
            .take(need, patience, &self.queue.0, place, || self.key() == key);
        if taken == Outcome::Taken && self.key() != key {
            self.words[place].0.release(need, &self.queue.0, place);
            return Outcome::Retired;
        }
        taken
    }

    /// Releases `word`.
    #[inline]
    pub(super) fn release(&self, word: u64, need: D::Need) {
        debug_assert_eq!(self.key(), key_of(word), "a held word keeps its key");
        let place = place_of(word);
        self.words[place].0.release(need, &self.queue.0, place);
    }

    /// Puts the chunk out of use if no task holds or awaits a word of it. The caller holds the
    /// directory's mutex.
    pub(super) fn retire(&self) -> bool {
        if self.words.iter().any(|line| line.0.value() != 0) {
            return false;
        }
        self.queue.0.closed(|| {
            let retired = self.words.iter().take_while(|line| line.0.retire()).count();
            if retired < CHUNK_WORDS {
                let undo = self.words[..retired].iter();
                undo.for_each(|line| line.0.put_in_use(0));
                return false;
            }
            // Relaxed: see `key`; tasks about to queue see it through the queue's mutex.
            self.key.store(NO_KEY, Ordering::Relaxed);
            true
        })
    }

    /// Makes a retired chunk the chunk of `key`; its word i starts as `initial(i)`. The caller
    /// holds the directory's mutex.
    pub(super) fn put_in_use(&self, key: u64, initial: impl Fn(u64) -> u32) {
        assert_eq!(self.key(), NO_KEY, "only a retired chunk is put in use");
        self.queue.0.closed(|| {
            // Relaxed: published by the words.
            self.key.store(key, Ordering::Relaxed);
            for word in Self::words(key) {
                self.words[place_of(word)].0.put_in_use(initial(word));
            }
        });
    }
}

/// Asserts what the `Send` of `ChunkRef` relies on.
const fn assert_sync<T: Sync>() {}
const _: () = assert_sync::<Chunk<super::super::segment::Shared>>();
const _: () = assert_sync::<Chunk<super::super::bitmap::Bits>>();
const _: () = assert!(size_of::<Line<FairWord<super::super::segment::Shared>>>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_places_of_their_own_and_neighbours_are_two_lines_apart() {
        let places: Vec<usize> = (0..=LAST_WORD).map(place_of).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..CHUNK_WORDS));
        if CHUNK_WORDS > 2 {
            assert!(places.windows(2).all(|pair| pair[0] / 2 != pair[1] / 2));
        }
    }
}
