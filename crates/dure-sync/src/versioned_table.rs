//! A bounded table of small records that is read without a write.
//!
//! **Problem.** What every core looks up (names of shared directories, attributes) must not cost a
//! lock or a counted reference: each writes a line that all readers share. **Structure.** Sets of a
//! few slots; a slot is a version and the words of a record, the first of which is its hash (0: the
//! slot is empty). What a reader makes of the words counts only if the version was even and the
//! same before and after. Records hold no pointer, so there is nothing to reclaim. Memory comes in
//! chunks, at the first insert into one. **Invariants.** A slot is written by the task that moved
//! its version from even to odd. [`VersionedTable::find`] writes nothing and waits for nobody. The
//! table is a cache: an insert may be dropped, and pushes others out.
//!
//! **Who keeps it right.** The caller: what is inserted must be true until it is removed. That
//! holds if inserts of a key happen under a lock shared, and its removal under that lock
//! exclusively, before what the record says stops to be true for others. A fact that may change
//! under the shared lock is inserted with [`VersionedTable::insert_while`]. **Crash.** Nothing is
//! kept.

use std::fmt;

use crate::OnceLock;
use crate::atomic::{AtomicU64, Ordering, fence};

/// Sets that get their memory together.
const CHUNK_SETS: usize = 4;

/// The words of a record that somebody may be writing: they need not fit each other. What is made
/// of them counts only if they turn out to have been whole.
#[derive(Debug, Clone, Copy)]
pub struct Words<'t, const WORDS: usize>(&'t [AtomicU64; WORDS]);

impl<const WORDS: usize> Words<'_, WORDS> {
    /// Word `n` of the record.
    #[inline]
    #[must_use]
    pub fn get(self, n: usize) -> u64 {
        // Acquire: pairs with the Release of the word in `Slot::write`; whoever sees a word of a
        // later writer sees behind it that the version has moved.
        self.0[n].load(Ordering::Acquire)
    }
}

/// A version and the record it is the version of. 128 bytes with 15 words: two lines, fetched as a
/// pair.
#[repr(align(64))]
struct Slot<const WORDS: usize> {
    /// Even: the words are whole; odd: somebody writes them. Moved from even to odd by whoever then
    /// owns the words, and back by the same task.
    version: AtomicU64,
    /// Written by the owner of an odd version, read by anybody.
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slot<WORDS> {
    fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What `look` makes of the record, and its version, if it has this hash and nobody wrote it
    /// meanwhile.
    #[inline]
    fn read<R>(
        &self,
        hash: u64,
        look: impl FnOnce(Words<'_, WORDS>) -> Option<R>,
    ) -> Option<(u64, R)> {
        // Acquire: pairs with the Release in `write`; the words of this version are visible.
        let version = self.version.load(Ordering::Acquire);
        let words = Words(&self.words);
        if version % 2 == 1 || words.get(0) != hash {
            return None;
        }
        let seen = look(words)?;
        // Relaxed: the Acquire of each word keeps this load behind them.
        let same = self.version.load(Ordering::Relaxed) == version;
        same.then_some((version, seen))
    }

    /// Replaces the record that has `version`, unless somebody else has begun to write it. The new
    /// one is shown only if `holds` says so once its words are in, and nobody has cancelled it
    /// meanwhile.
    fn write(&self, version: u64, words: impl Iterator<Item = u64>, holds: impl FnOnce() -> bool) {
        // Acquire: pairs with the Releases below, so that the writers of a slot follow each other.
        let owned = version.is_multiple_of(2)
            && self
                .version
                .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !owned {
            return;
        }
        for (word, value) in self.words.iter().zip(words) {
            // Release: pairs with the Acquire in `read`; publishes the odd version.
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
            // Release: as above. Only the owner makes the version even.
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Lets nothing come of a record that somebody is writing.
    fn cancel(&self) {
        // Relaxed: whoever begins to write after this look is behind the caller's change.
        let version = self.version.load(Ordering::Relaxed);
        if version % 2 == 1 {
            // Relaxed: says only that the writer may not show it. If it fails, the record was shown
            // or cancelled; the caller looks at what was shown next.
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
pub struct VersionedTable<const WORDS: usize, const WAYS: usize> {
    chunks: Box<[Chunk<WORDS, WAYS>]>,
}

type Chunk<const WORDS: usize, const WAYS: usize> = OnceLock<Box<[[Slot<WORDS>; WAYS]]>>;

impl<const WORDS: usize, const WAYS: usize> VersionedTable<WORDS, WAYS> {
    /// An empty table of at most about `records_max` records; it takes memory as it fills.
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
        // The upper half chooses: callers' hashes may differ in the lower bits only by way of it.
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let number = usize::try_from(spread).expect("32 bits");
        let chunk = &self.chunks[(number / CHUNK_SETS) & (self.chunks.len() - 1)];
        (chunk, number % CHUNK_SETS)
    }

    /// The set of `hash`, if it has memory.
    #[inline]
    fn set(&self, hash: u64) -> Option<&[Slot<WORDS>; WAYS]> {
        let (chunk, set) = self.place(hash);
        Some(&chunk.get()?[set])
    }

    /// What `look` makes of a record with this hash. It may be called with words that do not fit
    /// each other, and then its answer is not used.
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

    /// Puts a record in, whose first word is its hash. It takes the place of one with the same
    /// hash, of nothing, or of any other. Does nothing when it meets another writer.
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
            // Relaxed: only a choice; `write` confirms the version.
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
            // Every write moves the sum on, so all ways have their turn.
            victim = usize::try_from(versions).expect("64 bits") % WAYS;
        }
        let slot = &chunk[set][victim];
        // Relaxed: confirmed by the exchange.
        let version = slot.version.load(Ordering::Relaxed);
        slot.write(version, record.iter().copied(), holds);
    }

    /// As [`VersionedTable::insert`], of something that may change although the caller holds its
    /// lock: `holds` looks whether the record is still true before anybody can find it.
    ///
    /// Whoever makes such a change stores it, then does a SeqCst fence, and removes the record
    /// then: either `holds` sees the change, or that removal the record, and everything in front of
    /// this call.
    pub fn insert_while(&self, record: &[u64; WORDS], holds: impl FnOnce() -> bool) {
        self.put(record, || {
            // SeqCst: orders the record before the look, as the changer's fence orders the change
            // before the removal: one of the two sees the other.
            fence(Ordering::SeqCst);
            holds()
        });
    }

    /// Takes the records with this hash out that `which` names. No search that begins afterwards
    /// finds them, nor one beside it any part of them. Nobody may insert one meanwhile, but with
    /// [`VersionedTable::insert_while`].
    pub fn remove(&self, hash: u64, which: impl Fn(Words<'_, WORDS>) -> bool) {
        let Some(set) = self.set(hash) else {
            return;
        };
        for slot in set {
            // First: what is shown before it can be cancelled is found below.
            slot.cancel();
            // If the version moves meanwhile, somebody writes another record over this one, or the
            // same one and sees the caller's change.
            if let Some((version, ())) = slot.read(hash, |words| which(words).then_some(())) {
                slot.write(version, std::iter::once(0), || true);
            }
        }
    }
}

impl<const WORDS: usize, const WAYS: usize> fmt::Debug for VersionedTable<WORDS, WAYS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.chunks.iter().filter(|chunk| chunk.get().is_some());
        f.debug_struct("VersionedTable")
            .field("chunks", &self.chunks.len())
            .field("chunks_filled", &filled.count())
            .finish()
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests;
