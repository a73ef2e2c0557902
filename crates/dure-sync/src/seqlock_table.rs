//! A seqlock table: a bounded cache of small records whose lookups write nothing.
//!
//! **Problem.** What every core looks up (names of shared directories, attributes) must not cost a
//! lock or a counted reference: each writes a line that all readers share. **Structure.** Sets of a
//! few slots; a slot is a sequence count and the words of a record, the first of which is its hash
//! (0: the slot is empty). What a reader derives from the words is valid only if the count was even
//! and the same before and after. Records hold no pointer, so there is nothing to reclaim. Memory
//! is allocated in chunks, at the first insert into one. **Invariants.** The task that raised a
//! slot's count from even to odd writes the slot. [`SeqLockTable::find`] writes nothing and never
//! blocks. The table is a cache: an insert may be dropped, and evicts other records.
//!
//! # What the caller ensures
//! A record must be true from its insertion until its removal. That holds if inserts of a key
//! happen under a shared lock, and its removal under the same lock, held exclusively, before other
//! tasks can see that the record is no longer true. A fact that may change under the shared lock is
//! inserted with [`SeqLockTable::insert_while`].
//!
//! **Crash.** Nothing is kept.

use std::fmt;

use crate::OnceLock;
use crate::atomic::{AtomicU64, Ordering, fence};

/// Sets allocated together.
const CHUNK_SETS: usize = 4;

/// The words of a record that another task may be writing: they may be torn. What a reader derives
/// from them is used only if they turn out to have been whole.
#[derive(Debug, Clone, Copy)]
pub struct Words<'t, const WORDS: usize>(&'t [AtomicU64; WORDS]);

impl<const WORDS: usize> Words<'_, WORDS> {
    /// Word `n` of the record.
    #[inline]
    #[must_use]
    pub fn get(self, n: usize) -> u64 {
        // Acquire: pairs with the Release of the word in `Slot::write`; a reader that sees a word
        // of a later writer sees after it that the count has changed.
        self.0[n].load(Ordering::Acquire)
    }
}

/// A sequence count and the record it covers. 128 bytes with 15 words: two lines, fetched as a
/// pair.
#[repr(align(64))]
struct Slot<const WORDS: usize> {
    /// Even: the words are whole; odd: a task writes them. The task that raises it from even to odd
    /// owns the words, and makes it even again.
    version: AtomicU64,
    /// Written by the task that made the count odd, read by any task.
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slot<WORDS> {
    fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns what `look` makes of the record, and its count, if it has this hash and no task
    /// wrote it meanwhile.
    #[inline]
    fn read<R>(
        &self,
        hash: u64,
        look: impl FnOnce(Words<'_, WORDS>) -> Option<R>,
    ) -> Option<(u64, R)> {
        // Acquire: pairs with the Release in `write`; the words of this count are visible.
        let version = self.version.load(Ordering::Acquire);
        let words = Words(&self.words);
        if version % 2 == 1 || words.get(0) != hash {
            return None;
        }
        let seen = look(words)?;
        // Relaxed: the Acquire of each word orders this load after them.
        let same = self.version.load(Ordering::Relaxed) == version;
        same.then_some((version, seen))
    }

    /// Replaces the record whose count is `version`, unless another task has begun to write it. The
    /// new record becomes visible only if `holds` returns true once its words are stored, and no
    /// task has cancelled it meanwhile.
    fn write(&self, version: u64, words: impl Iterator<Item = u64>, holds: impl FnOnce() -> bool) {
        // Acquire: pairs with the Releases below, so that the writers of a slot are ordered.
        let owned = version.is_multiple_of(2)
            && self
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !owned {
            return;
        }
        for (word, value) in self.words.iter().zip(words) {
            // Release: pairs with the Acquire in `read`; publishes the odd count.
            word.store(value, Ordering::Release);
        }
        // Release: pairs with the Acquire in `read`; publishes the words.
        let shown = holds()
            && self
                .version
                .compare_exchange(
                    version + 1,
                    version + 2,
                    Ordering::Release,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !shown {
            self.words[0].store(0, Ordering::Release);
            // Release: as above. Only the owner makes the count even.
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Keeps a record that another task is writing from becoming visible.
    fn cancel(&self) {
        // Relaxed: a task that begins to write after this load comes after the caller's change.
        let version = self.version.load(Ordering::Relaxed);
        if version % 2 == 1 {
            // Relaxed: says only that the writer must not publish the record. If it fails, the
            // record was published or cancelled; the caller checks published records next.
            let _shown_or_cancelled = self.version.compare_exchange(
                version,
                version + 2,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

/// A set-associative table of records of `WORDS` words, `WAYS` to a set.
pub struct SeqLockTable<const WORDS: usize, const WAYS: usize> {
    chunks: Box<[Chunk<WORDS, WAYS>]>,
}

type Chunk<const WORDS: usize, const WAYS: usize> = OnceLock<Box<[[Slot<WORDS>; WAYS]]>>;

impl<const WORDS: usize, const WAYS: usize> SeqLockTable<WORDS, WAYS> {
    /// An empty table of at most about `records_max` records; its memory is allocated as it fills.
    #[must_use]
    pub fn new(records_max: usize) -> Self {
        let chunks = records_max.div_ceil(CHUNK_SETS * WAYS).next_power_of_two();
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The chunk of `hash`, and the set within it.
    #[inline]
    fn place(&self, hash: u64) -> (&Chunk<WORDS, WAYS>, usize) {
        // The upper half selects: hashes that differ only in low bits differ there after the
        // multiplication.
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let number = usize::try_from(spread).expect("a hash of 32 bits fits in a usize");
        let chunk = &self.chunks[(number / CHUNK_SETS) & (self.chunks.len() - 1)];
        (chunk, number % CHUNK_SETS)
    }

    /// The set of `hash`, if it is allocated.
    #[inline]
    fn set(&self, hash: u64) -> Option<&[Slot<WORDS>; WAYS]> {
        let (chunk, set) = self.place(hash);
        Some(&chunk.get()?[set])
    }

    /// Returns what `look` makes of a record with this hash. `look` may be called with torn words;
    /// its result is then discarded.
    #[inline]
    pub fn find<R>(&self, hash: u64, look: impl Fn(Words<'_, WORDS>) -> Option<R>) -> Option<R> {
        let set = self.set(hash)?;
        for slot in set {
            if let Some((_, seen)) = slot.read(hash, &look) {
                return Some(seen);
            }
        }
        None
    }

    /// Inserts a record, whose first word is its hash. It replaces one with the same hash, else an
    /// empty slot, else any other. Does nothing if another task is writing that slot.
    ///
    /// # Panics
    /// If the hash is 0.
    pub fn insert(&self, record: &[u64; WORDS]) {
        self.put(record, || true);
    }

    fn put(&self, record: &[u64; WORDS], holds: impl FnOnce() -> bool) {
        let hash = record[0];
        assert_ne!(hash, 0, "0 marks an empty slot");
        let (chunk, set) = self.place(hash);
        let chunk = chunk.get_or_init(|| {
            let set = |_| std::array::from_fn(|_| Slot::new());
            (0..CHUNK_SETS).map(set).collect()
        });
        let mut victim = 0;
        let mut versions = 0_u64;
        let mut best = 3;
        for (way, slot) in chunk[set].iter().enumerate() {
            // Relaxed: only a choice; `write` confirms the count.
            versions += slot.version.load(Ordering::Relaxed) / 2;
            let rank = match slot.words[0].load(Ordering::Relaxed) {
                there if there == hash => 0,
                0 => 1,
                _ => 2,
            };
            if rank < best {
                (victim, best) = (way, rank);
            }
        }
        if best == 2 {
            // Every write raises the sum, so all ways are evicted in turn.
            victim = usize::try_from(versions).expect("64 bits fit in a usize") % WAYS;
        }
        let slot = &chunk[set][victim];
        // Relaxed: confirmed by the exchange.
        let version = slot.version.load(Ordering::Relaxed);
        slot.write(version, record.iter().copied(), holds);
    }

    /// Like [`SeqLockTable::insert`], of a fact that may change although the caller holds its lock:
    /// `holds` checks whether the record is still true before any lookup can find it.
    ///
    /// A task that makes such a change stores it, issues a SeqCst fence, and then removes the
    /// record: either `holds` sees the change, or that removal sees the record, and everything
    /// before this call.
    pub fn insert_while(&self, record: &[u64; WORDS], holds: impl FnOnce() -> bool) {
        self.put(record, || {
            // SeqCst: orders the record before the check, as the writer's fence orders the change
            // before the removal: at least one of the two sees the other.
            fence(Ordering::SeqCst);
            holds()
        });
    }

    /// Removes the records with this hash that `which` selects. A lookup that begins afterwards
    /// does not find them, and one that runs concurrently uses no part of them. No task may insert
    /// one meanwhile, except with [`SeqLockTable::insert_while`].
    pub fn remove(&self, hash: u64, which: impl Fn(Words<'_, WORDS>) -> bool) {
        let Some(set) = self.set(hash) else {
            return;
        };
        for slot in set {
            // First: a record published before it can be cancelled is found below.
            slot.cancel();
            // If the count changes meanwhile, another task writes a different record over this one,
            // or the same one and sees the caller's change.
            if let Some((version, ())) = slot.read(hash, |words| which(words).then_some(())) {
                slot.write(version, std::iter::once(0), || true);
            }
        }
    }
}

impl<const WORDS: usize, const WAYS: usize> fmt::Debug for SeqLockTable<WORDS, WAYS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.chunks.iter().filter(|chunk| chunk.get().is_some());
        f.debug_struct("SeqLockTable")
            .field("chunks", &self.chunks.len())
            .field("chunks_filled", &filled.count())
            .finish()
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests;
