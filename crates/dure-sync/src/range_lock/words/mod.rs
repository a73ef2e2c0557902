//! Words of a file, allocated at first use.
//!
//! **Problem.** Policies `bitmap` and `segment` need an array of words as long as the file can ever
//! get, without its memory.
//!
//! **Structure.** A claim is cut into words, which are taken in ascending order. A *narrow* claim
//! finds or allocates the chunk of each word and takes the word itself. A *wide* one ([offset,
//! infinity), or more than [`WIDE_WORDS`]; also a narrow one for which there is no memory) first
//! waits for earlier conflicting wide claims, FIFO, then walks upwards: it takes the words of
//! chunks in use, retires idle chunks, and declares each gap held, so that new words there are
//! allocated as already taken.
//!
//! # Why claims do not deadlock
//! **Invariants.** Every claim takes words in ascending order, and a wide claim waits for wide
//! claims only before it takes its first word: waiting for words goes upwards, so there is no
//! cycle. A narrow claim that lacks memory releases all it holds before it becomes wide. Each wait
//! is FIFO, so no claim starves. An uncontended narrow claim writes only the lines of its own
//! words. There are never more chunks than the limit of the
//! lock, nor than the budget that it shares with others. **Crash.** Nothing is kept.

mod budget;
mod chunk;
mod directory;

use std::ops::RangeInclusive;

use super::DIRECTORY_RANK;
use super::fair_word::{Discipline, Outcome};
use super::intervals::{Entered, NodeIndex};
use super::range::{Access, Claim, Patience, Units};
use super::waiter::grant_all;
use crate::atomic::{AtomicPtr, Ordering};
use crate::backend::CHUNK_SHIFT;
use crate::{Arc, CachePadded, Mutex};
pub use budget::WordBudget;
use chunk::{Chunk, key_of};
use directory::{Directory, Table};

/// Claims of more words than this are wide: 2 MiB of segments of 4 KiB.
const WIDE_WORDS: u64 = 512;
/// How often a narrow claim looks a chunk up before it becomes wide.
const LOOKUPS_MAX: u32 = 4;

/// How the units of a claim map to parts of words.
pub(super) trait Meaning: Discipline {
    /// A word is 2^this units.
    const UNITS_SHIFT: u32;

    /// The access taken for `wanted`, possibly a stronger one.
    fn access(wanted: Access) -> Access;
    /// What to take of a word for `in_word`, the units of the claim within it.
    fn need(access: Access, in_word: Units) -> Self::Need;
}

/// The units of a word.
#[inline]
fn units_of<M: Meaning>(word: u64) -> Units {
    let first = word << M::UNITS_SHIFT;
    Units {
        first,
        last: first + ((1 << M::UNITS_SHIFT) - 1),
    }
}

/// The chunk of a unit.
#[inline]
fn key_of_unit<M: Meaning>(unit: u64) -> u64 {
    key_of(unit >> M::UNITS_SHIFT)
}

/// The units of a chunk.
#[inline]
fn units_of_chunk<M: Meaning>(key: u64) -> Units {
    let shift = CHUNK_SHIFT + M::UNITS_SHIFT;
    let first = key << shift;
    Units {
        first,
        last: first + ((1 << shift) - 1),
    }
}

/// What a claim of `units` needs of `word`.
#[inline]
fn need<M: Meaning>(access: Access, units: Units, word: u64) -> M::Need {
    M::need(access, units.within(units_of::<M>(word)))
}

#[inline]
fn words_of<M: Meaning>(units: Units) -> RangeInclusive<u64> {
    units.first >> M::UNITS_SHIFT..=units.last >> M::UNITS_SHIFT
}

/// How a claim is held.
#[derive(Debug)]
pub(super) enum Hold<'a, M: Meaning> {
    /// All its words are in this chunk.
    Near(&'a Chunk<M>),
    /// Its words are in several chunks.
    Far,
    /// A wide claim: words allocated and not.
    Wide(NodeIndex),
}

/// Why a narrow claim was not taken.
#[derive(Debug)]
enum Refusal {
    Busy,
    /// No memory for words, or chunks change their keys too fast.
    NoWords,
}

/// The words of one file; see the module.
#[derive(Debug)]
pub(super) struct Words<M: Meaning> {
    /// Where lookups start; null before the first use. Written under the directory's mutex; Release
    /// there pairs with the Acquire of lookups.
    table: AtomicPtr<Table<M>>,
    /// On lines apart from `table`, which every task reads.
    directory: Box<CachePadded<Mutex<DIRECTORY_RANK, Directory<M>>>>,
}

impl<M: Meaning> Words<M> {
    pub(super) fn new(chunks_max: usize, budget: Option<Arc<WordBudget>>) -> Self {
        let directory = Mutex::new(Directory::new(chunks_max, budget));
        Self {
            table: AtomicPtr::default(),
            directory: Box::new(CachePadded::new(directory)),
        }
    }

    /// Number of chunks, and bytes of chunks and tables.
    pub(super) fn footprint(&self) -> (usize, usize) {
        self.directory.lock().footprint()
    }

    /// Takes a claim; `None` if that needs waiting and the caller does not wait.
    #[inline]
    pub(super) fn acquire(&self, claim: Claim, patience: Patience<'_>) -> Option<Hold<'_, M>> {
        let claim = really_taken::<M>(claim);
        if let Some(chunk) = self.try_acquire_one(claim) {
            return Some(Hold::Near(chunk));
        }
        self.acquire_many(claim, patience)
    }

    /// Takes a claim of one word that is allocated and free: the usual case.
    #[inline]
    fn try_acquire_one(&self, claim: Claim) -> Option<&Chunk<M>> {
        let words = words_of::<M>(claim.units);
        let word = *words.start();
        if word != *words.end() {
            return None;
        }
        let chunk = self.find(key_of(word))?;
        let taken = chunk.take(word, M::need(claim.access, claim.units), Patience::Try);
        (taken == Outcome::Taken).then_some(chunk)
    }

    #[inline(never)]
    fn acquire_many(&self, claim: Claim, patience: Patience<'_>) -> Option<Hold<'_, M>> {
        let words = words_of::<M>(claim.units);
        if words.end() - words.start() < WIDE_WORDS {
            match self.acquire_narrow(claim, patience) {
                Ok(hold) => return Some(hold),
                Err(Refusal::Busy) => return None,
                Err(Refusal::NoWords) => {}
            }
        }
        self.acquire_wide(claim, patience).map(Hold::Wide)
    }

    /// Releases a claim.
    #[inline]
    pub(super) fn release(&self, claim: Claim, hold: &Hold<'_, M>) {
        let claim = really_taken::<M>(claim);
        match hold {
            Hold::Near(chunk) => {
                let words = words_of::<M>(claim.units);
                if words.start() == words.end() {
                    chunk.release(*words.start(), M::need(claim.access, claim.units));
                } else {
                    release_part(chunk, claim.access, claim.units);
                }
            }
            Hold::Far => self.release_narrow(claim.access, claim.units),
            Hold::Wide(node) => self.release_wide(*node),
        }
    }

    /// The chunk of `key`, allocated if needed; `None` if there is no memory for it. It may get
    /// another key before the caller takes a word of it.
    fn chunk(&self, key: u64) -> Option<&Chunk<M>> {
        match self.find(key) {
            Some(chunk) => Some(chunk),
            None => self.chunk_slow(key),
        }
    }

    /// The chunk of `key`, if a lookup without the mutex finds it.
    #[inline]
    fn find(&self, key: u64) -> Option<&Chunk<M>> {
        // Acquire: pairs with the Release in `Directory::enter`; publishes the buckets.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: it is null or leads to a table that lives as long as the directory.
        let table = unsafe { table.as_ref() }?;
        table.find(key)
    }

    #[cold]
    fn chunk_slow(&self, key: u64) -> Option<&Chunk<M>> {
        let chunk = self.directory.lock().chunk(key, &self.table)?;
        // SAFETY: chunks live as long as the directory.
        Some(unsafe { chunk.0.as_ref() })
    }

    fn acquire_narrow(&self, claim: Claim, patience: Patience<'_>) -> Result<Hold<'_, M>, Refusal> {
        let units = claim.units;
        let keys = key_of_unit::<M>(units.first)..=key_of_unit::<M>(units.last);
        let mut hold = Hold::Far;
        for key in keys.clone() {
            let part = units_of_chunk::<M>(key).within(units);
            let taken = self.acquire_in_chunk(key, claim.access, part, patience);
            if taken.is_err() && part.first > units.first {
                let last = part.first - 1;
                self.release_narrow(claim.access, Units { last, ..units });
            }
            hold = Hold::Near(taken?);
        }
        Ok(if keys.start() == keys.end() {
            hold
        } else {
            Hold::Far
        })
    }

    fn acquire_in_chunk(
        &self,
        key: u64,
        access: Access,
        part: Units,
        patience: Patience<'_>,
    ) -> Result<&Chunk<M>, Refusal> {
        for _ in 0..LOOKUPS_MAX {
            let chunk = self.chunk(key).ok_or(Refusal::NoWords)?;
            match take_part(chunk, access, part, patience) {
                Outcome::Taken => return Ok(chunk),
                Outcome::Busy => return Err(Refusal::Busy),
                Outcome::Retired => {}
            }
        }
        // Chunks change their keys faster than we can take a word: there are too few.
        Err(Refusal::NoWords)
    }

    #[inline(never)]
    fn release_narrow(&self, access: Access, units: Units) {
        for key in key_of_unit::<M>(units.first)..=key_of_unit::<M>(units.last) {
            let chunk = self.chunk(key).expect("a chunk with a held word stays");
            release_part(chunk, access, units_of_chunk::<M>(key).within(units));
        }
    }

    #[cold]
    fn acquire_wide(&self, claim: Claim, patience: Patience<'_>) -> Option<NodeIndex> {
        let mut directory = self.directory.lock();
        let (node, wait) = match patience {
            Patience::Wait(tallies) => {
                let Entered { node, waiter } = directory.intervals.enter(claim);
                (node, waiter.map(|waiter| (waiter, tallies)))
            }
            Patience::Try => (directory.intervals.try_enter(claim)?, None),
        };
        directory.begin(node, claim);
        if let Some((waiter, tallies)) = wait {
            drop(directory);
            waiter.wait(tallies);
            directory = self.directory.lock();
        }
        let mut unheld = claim.units.first;
        while let Some((key, chunk, part)) = directory.advance(node, unheld) {
            drop(directory);
            // SAFETY: chunks live as long as the directory.
            let chunk = unsafe { chunk.0.as_ref() };
            debug_assert_eq!(key, key_of_unit::<M>(part.first), "a part is in its chunk");
            unheld = match take_part(chunk, claim.access, part, patience) {
                Outcome::Taken => part.last + 1,
                // The chunk was idle and got another key: its words are no longer allocated.
                Outcome::Retired => part.first,
                Outcome::Busy => {
                    self.release_wide(node);
                    return None;
                }
            };
            directory = self.directory.lock();
        }
        Some(node)
    }

    #[cold]
    fn release_wide(&self, node: NodeIndex) {
        let mut directory = self.directory.lock();
        let (span, chunks) = directory.end(node);
        for (key, chunk) in chunks {
            let held = span.held().expect("chunks lie in what was held");
            // SAFETY: chunks live as long as the directory.
            let chunk = unsafe { chunk.0.as_ref() };
            let part = units_of_chunk::<M>(key).within(held);
            release_part(chunk, span.claim.access, part);
        }
        let granted = directory.intervals.leave(node);
        drop(directory);
        grant_all(granted);
    }
}

#[inline]
fn really_taken<M: Meaning>(claim: Claim) -> Claim {
    Claim {
        access: M::access(claim.access),
        ..claim
    }
}

/// Takes the words of `part`, which lies in `chunk`, in ascending order; all of them or none. A
/// word after the first may be found retired too: for a moment, by a search for an idle chunk that
/// has not yet come to the words held here.
fn take_part<M: Meaning>(
    chunk: &Chunk<M>,
    access: Access,
    part: Units,
    patience: Patience<'_>,
) -> Outcome {
    let words = words_of::<M>(part);
    for word in words.clone() {
        match chunk.take(word, need::<M>(access, part, word), patience) {
            Outcome::Taken => {}
            refused => {
                for taken in *words.start()..word {
                    chunk.release(taken, need::<M>(access, part, taken));
                }
                return refused;
            }
        }
    }
    Outcome::Taken
}

/// Releases the words of `part`, which lies in `chunk`.
#[inline(never)]
fn release_part<M: Meaning>(chunk: &Chunk<M>, access: Access, part: Units) {
    for word in words_of::<M>(part) {
        chunk.release(word, need::<M>(access, part, word));
    }
}
