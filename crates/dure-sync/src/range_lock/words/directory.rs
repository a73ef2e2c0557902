//! Finds the words of a file.
//!
//! **Problem.** A lookup must be a few loads and write nothing; a huge sparse file must cost no
//! memory for its size; claims of a whole file must not allocate words. **Structure.** Chunks hang
//! in the buckets of a [`Table`] that lookups walk without a lock. The [`Directory`], under a
//! mutex, has them in order of their keys, allocates them at first use up to a limit, from then on
//! gives idle ones new keys (also those that a wide claim came across), and records the *wide*
//! claims, which hold words that are not allocated.
//!
//! # Lookups without the mutex
//! **Invariants.** A lookup that misses (perhaps because of a concurrent change of the table) looks
//! again under the mutex, so the table only has to be right while no task changes it; links always
//! lead to chunks of the same lock. A new chunk starts with what wide claims hold of it. Old tables
//! are kept until the lock is dropped, since a lookup may still walk them; together they are
//! smaller than the newest. **Crash.** Nothing is kept.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use super::super::intervals::{Intervals, NodeIndex};
use super::super::range::{Claim, Units};
use super::chunk::{Chunk, ChunkRef};
use super::{Meaning, WordBudget, need, units_of};
use crate::Arc;
use crate::atomic::{AtomicPtr, Ordering};
use crate::backend::Shadow;

/// Buckets of the first table.
const BUCKETS_MIN: usize = 8;
/// How many links of a bucket a lookup follows, since the bucket may change concurrently.
const HOPS_MAX: usize = 8;

/// Chunks by key, read without a lock.
#[derive(Debug)]
pub(super) struct Table<M: Meaning> {
    /// The first chunk of each bucket. Release pairs with the Acquire in `find`; publishes the
    /// chunk.
    buckets: Box<[AtomicPtr<Chunk<M>>]>,
    /// For loom: checks that a task which finds the table sees it initialized.
    born: Shadow,
}

impl<M: Meaning> Table<M> {
    fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two());
        Self {
            buckets: (0..buckets).map(|_| AtomicPtr::default()).collect(),
            born: Shadow::new(),
        }
    }

    #[inline]
    fn bucket(&self, key: u64) -> &AtomicPtr<Chunk<M>> {
        // Neighbours in different buckets; files beyond 2^32 chunks may share some.
        let hash = (key ^ (key >> 32)) & 0xffff_ffff;
        let index = usize::try_from(hash).expect("a hash of 32 bits fits in a usize");
        &self.buckets[index & (self.buckets.len() - 1)]
    }

    /// The chunk of `key`, unless it is not there or the bucket changes meanwhile. Only a hint: the
    /// chunk may get another key at any time.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<&Chunk<M>> {
        self.born.read(&raw const self.buckets);
        // Acquire: pairs with the Release in `link`.
        let mut at = self.bucket(key).load(Ordering::Acquire);
        for _ in 0..HOPS_MAX {
            // SAFETY: links are null or lead to chunks of this lock, which live as long as it.
            let chunk = unsafe { at.as_ref() }?;
            chunk.reached();
            if chunk.key() == key {
                return Some(chunk);
            }
            // Acquire: pairs with the Release in `link`.
            at = chunk.next.load(Ordering::Acquire);
        }
        None
    }

    /// Puts a chunk at the front of its bucket. The caller holds the directory's mutex.
    fn link(&self, key: u64, chunk: ChunkRef<M>) {
        let bucket = self.bucket(key);
        // Relaxed: written under the mutex we hold.
        let first = bucket.load(Ordering::Relaxed);
        // SAFETY: chunks live as long as the lock.
        let next = unsafe { &chunk.0.as_ref().next };
        // Release: pairs with the Acquire in `find`; publishes the next chunk.
        next.store(first, Ordering::Release);
        // Release: pairs with the Acquire in `find`; publishes this chunk.
        bucket.store(chunk.0.as_ptr(), Ordering::Release);
    }

    /// Removes a chunk from its bucket. The caller holds the directory's mutex.
    fn unlink(&self, key: u64, chunk: ChunkRef<M>) {
        let mut link = self.bucket(key);
        // Relaxed: links are written under the mutex we hold.
        while link.load(Ordering::Relaxed) != chunk.0.as_ptr() {
            // SAFETY: links lead to chunks of this lock, and `chunk` is in the bucket, so the
            // search ends before a null link.
            let before = unsafe { link.load(Ordering::Relaxed).as_ref() };
            link = &before.expect("a chunk is in its bucket").next;
        }
        // SAFETY: chunks live as long as the lock.
        let next = unsafe { &chunk.0.as_ref().next };
        // Release: pairs with the Acquire in `find`; publishes the next chunk.
        link.store(next.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// A reference to a table, which lives as long as its lock.
#[derive(Debug)]
struct TableRef<M: Meaning>(NonNull<Table<M>>);

// SAFETY: it acts as `&Table`, and `Table` is `Sync`: atomics.
unsafe impl<M: Meaning> Send for TableRef<M> {}

impl<M: Meaning> TableRef<M> {
    fn get(&self) -> &Table<M> {
        // SAFETY: tables live as long as the directory that has this reference.
        unsafe { self.0.as_ref() }
    }
}

/// What a wide claim holds: all words from its first unit up to `unheld`, allocated or not.
#[derive(Debug)]
pub(super) struct Span {
    node: NodeIndex,
    pub(super) claim: Claim,
    /// The first unit that is not held yet.
    unheld: u64,
}

impl Span {
    /// What is held.
    pub(super) fn held(&self) -> Option<Units> {
        let first = self.claim.units.first;
        (self.unheld > first).then(|| Units {
            first,
            last: self.unheld - 1,
        })
    }
}

/// All chunks and wide claims of a lock; see the module.
#[derive(Debug)]
pub(super) struct Directory<M: Meaning> {
    chunks: BTreeMap<u64, ChunkRef<M>>,
    /// Retired chunks, for the next keys.
    spare: Vec<ChunkRef<M>>,
    /// All tables ever allocated, the newest last; each is a leaked box.
    tables: Vec<TableRef<M>>,
    chunks_max: usize,
    /// What it has together with other locks.
    budget: Option<Arc<WordBudget>>,
    /// The key at which the search for an idle chunk continues.
    hand: u64,
    /// Wide claims, held or waiting, in order of arrival.
    pub(super) intervals: Intervals,
    spans: Vec<Span>,
}

impl<M: Meaning> Directory<M> {
    pub(super) fn new(chunks_max: usize, budget: Option<Arc<WordBudget>>) -> Self {
        Self {
            chunks: BTreeMap::new(),
            spare: Vec::new(),
            tables: Vec::new(),
            chunks_max,
            budget,
            hand: 0,
            intervals: Intervals::new(),
            spans: Vec::new(),
        }
    }

    /// Number of chunks, and bytes of chunks and tables.
    pub(super) fn footprint(&self) -> (usize, usize) {
        let tables = self.tables.iter().map(TableRef::get);
        let links: usize = tables.map(|table| table.buckets.len()).sum();
        let chunks = self.chunks.len() + self.spare.len();
        let bytes = chunks * size_of::<Chunk<M>>() + links * size_of::<usize>();
        (self.chunks.len(), bytes)
    }

    /// The chunk of `key`; allocates one, or gives an idle one that key, if needed. `None` if the
    /// limit or memory is exhausted and no chunk is idle. Updates `newest`, where lookups start.
    pub(super) fn chunk(&mut self, key: u64, newest: &AtomicPtr<Table<M>>) -> Option<ChunkRef<M>> {
        if let Some(chunk) = self.chunks.get(&key) {
            return Some(*chunk);
        }
        let chunk = match self.allocate(key) {
            Some(chunk) => chunk,
            None => {
                let idle = self.spare.pop().or_else(|| self.take_idle())?;
                // SAFETY: chunks live as long as the lock.
                let chunk = unsafe { idle.0.as_ref() };
                chunk.put_in_use(key, |word| self.held_of(word));
                idle
            }
        };
        self.chunks.insert(key, chunk);
        self.enter(key, chunk, newest);
        Some(chunk)
    }

    /// A new chunk, if the limits and memory allow it and there is no spare one.
    fn allocate(&self, key: u64) -> Option<ChunkRef<M>> {
        if !self.spare.is_empty() || self.chunks.len() >= self.chunks_max {
            return None;
        }
        let budget = self.budget.as_deref();
        if !budget.is_none_or(WordBudget::take) {
            return None;
        }
        let made = Chunk::allocate(key, |word| self.held_of(word));
        if let (None, Some(budget)) = (&made, budget) {
            budget.give_back(1);
        }
        made
    }

    /// What wide claims hold of a word.
    fn held_of(&self, word: u64) -> u32 {
        let whole = units_of::<M>(word);
        let held = self.spans.iter().filter_map(|span| {
            let held = span.held()?;
            held.overlaps(whole)
                .then(|| M::amount(need::<M>(span.claim.access, held, word)))
        });
        held.sum()
    }

    /// Links a chunk, in a larger table if the newest is full.
    fn enter(&mut self, key: u64, chunk: ChunkRef<M>, newest: &AtomicPtr<Table<M>>) {
        let newest_table = self.tables.last().map(TableRef::get);
        let buckets = newest_table.map_or(0, |table| table.buckets.len());
        if self.chunks.len() <= buckets {
            self.newest().link(key, chunk);
            return;
        }
        let table = Box::new(Table::new((2 * buckets).max(BUCKETS_MIN)));
        for (key, chunk) in &self.chunks {
            table.link(*key, *chunk);
        }
        table.born.write(&raw const table.buckets);
        let table = NonNull::from(Box::leak(table));
        // Release: pairs with the Acquire of lookups; publishes the buckets.
        newest.store(table.as_ptr(), Ordering::Release);
        self.tables.push(TableRef(table));
    }

    fn newest(&self) -> &Table<M> {
        let last = self.tables.last();
        last.expect("a table is made with the first chunk").get()
    }

    /// Retires and removes the next chunk of which no task holds or awaits a word.
    fn take_idle(&mut self) -> Option<ChunkRef<M>> {
        let behind = self.chunks.range(self.hand..);
        let (key, chunk) = behind
            .chain(self.chunks.range(..self.hand))
            .map(|(key, chunk)| (*key, *chunk))
            // SAFETY: chunks live as long as the lock.
            .find(|(_, chunk)| unsafe { chunk.0.as_ref() }.retire())?;
        self.hand = key + 1;
        self.remove(key, chunk);
        Some(chunk)
    }

    /// Removes a retired chunk.
    fn remove(&mut self, key: u64, chunk: ChunkRef<M>) {
        self.chunks.remove(&key);
        self.newest().unlink(key, chunk);
    }

    /// The first chunk that has units of `rest`, which a wide claim is about to take. Idle chunks
    /// that lie wholly in `rest` are removed first: otherwise each append to a large file after its
    /// truncation would take all of its old words.
    fn next_in(&mut self, rest: Units) -> Option<(u64, ChunkRef<M>, Units)> {
        if rest.first > rest.last {
            return None;
        }
        loop {
            let mut behind = self.chunks.range(super::key_of_unit::<M>(rest.first)..);
            let (key, chunk) = behind.next().map(|(key, chunk)| (*key, *chunk))?;
            let units = super::units_of_chunk::<M>(key);
            if !units.overlaps(rest) {
                return None;
            }
            let is_within = rest.first <= units.first && units.last <= rest.last;
            // SAFETY: chunks live as long as the lock.
            if is_within && unsafe { chunk.0.as_ref() }.retire() {
                self.remove(key, chunk);
                self.spare.push(chunk);
                continue;
            }
            return Some((key, chunk, units.within(rest)));
        }
    }

    /// A wide claim has arrived as `node`; it holds nothing yet.
    pub(super) fn begin(&mut self, node: NodeIndex, claim: Claim) {
        self.spans.push(Span {
            node,
            claim,
            unheld: claim.units.first,
        });
    }

    fn span_mut(&mut self, node: NodeIndex) -> &mut Span {
        let mut spans = self.spans.iter_mut();
        spans
            .find(|span| span.node == node)
            .expect("a wide claim has a span until it ends")
    }

    /// The claim has taken all words up to `unheld`; from now on it also holds the unallocated ones
    /// up to the next chunk. Returns that chunk, its key, and the units to take of it; `None` if
    /// all is held.
    pub(super) fn advance(
        &mut self,
        node: NodeIndex,
        unheld: u64,
    ) -> Option<(u64, ChunkRef<M>, Units)> {
        let claim = self.span_mut(node).claim.units;
        debug_assert!(claim.first <= unheld && unheld <= claim.last + 1);
        let rest = Units {
            first: unheld,
            last: claim.last,
        };
        let next = self.next_in(rest);
        self.span_mut(node).unheld = next.map_or(claim.last + 1, |(_, _, part)| part.first);
        next
    }

    /// Ends the claim; returns what it held, and the chunks that lie there.
    pub(super) fn end(
        &mut self,
        node: NodeIndex,
    ) -> (Span, impl Iterator<Item = (u64, ChunkRef<M>)>) {
        let position = self.spans.iter().position(|span| span.node == node);
        let span = self
            .spans
            .swap_remove(position.expect("a wide claim has a span until it ends"));
        let keys = span
            .held()
            .map(|held| super::key_of_unit::<M>(held.first)..=super::key_of_unit::<M>(held.last));
        let chunks = keys.map(|keys| self.chunks.range(keys));
        let chunks = chunks.into_iter().flatten();
        (span, chunks.map(|(key, chunk)| (*key, *chunk)))
    }
}

impl<M: Meaning> Drop for Directory<M> {
    fn drop(&mut self) {
        for chunk in self.chunks.values().chain(&self.spare) {
            // SAFETY: each chunk is in the map once; the lock is being dropped, so no lookup runs.
            unsafe { Chunk::free(*chunk) };
        }
        if let Some(budget) = &self.budget {
            budget.give_back(self.chunks.len() + self.spare.len());
        }
        for table in &self.tables {
            // SAFETY: each table was leaked once; the lock is being dropped, so no lookup runs.
            drop(unsafe { Box::from_raw(table.0.as_ptr()) });
        }
    }
}
