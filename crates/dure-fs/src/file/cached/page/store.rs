//! The pages of one file.
//!
//! **Problem.** A file may be 100 TiB with three pages in memory, or have all of its pages there; a
//! lookup must cost nanoseconds in both.
//!
//! **Structure.** Chunks of 64 pages with a bit per page and state, in rows of four, so that a chunk
//! with one page is small. Chunk 0 is in place; the others hang in groups of 64 below an ordered
//! map. Pages, rows and chunks are filled once, so any number of tasks can put pages in at once;
//! they leave, and groups come and go, under the exclusive inode lock.
//!
//! # Invariants
//! A page comes to its place once; a later task finds it there. It is present from then on. `dirty`
//! and `writing` pages are present. A page that is dirty holds one reserved block (the volume's,
//! counted by the caller that sets and takes the bit). A page that is neither dirty nor writing
//! equals what its slot says, so it may be dropped at any time. Owner: [inode.state]; holders of
//! the shared lock put pages in, note uses and copy bytes: out of pages with a check of
//! their sequence count (or, if the file has no range lock, without), into those of ranges that
//! they hold exclusively, which are dirty or become so before. A page in write-back that is not
//! dirty again keeps its bytes.
//!
//! **On a crash** it is gone.

mod chunk;
mod find;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};

use dure_store::frames::Frame;
use dure_store::units::to_usize;
use dure_sync::OnceLock;
use dure_sync::atomic::{AtomicU64, Ordering};

use super::Page;
use chunk::{CHUNK_PAGES, Chunk, bit};

const GROUP_CHUNKS: usize = 64;
/// Pages of a group.
const GROUP_PAGES: u64 = CHUNK_PAGES * 64;

/// In this order: tasks that find a page do not read the bits.
#[derive(Debug)]
#[repr(C, align(64))]
struct Group {
    chunks: [OnceLock<Box<Chunk>>; GROUP_CHUNKS],
    /// Bit i: chunk i may have pages that are dirty or in write-back. As the bits of dirty pages.
    unclean: AtomicU64,
}

impl Group {
    fn unclean(&self) -> u64 {
        self.unclean.load(Ordering::Relaxed)
    }
}

/// What a write to some pages lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Missing {
    /// Pages that are not in memory.
    pub(crate) frames: u32,
    /// Pages that are not dirty, so hold no reserved block.
    pub(crate) blocks: u32,
}

/// Where the content of a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The block that its slot names.
    Block,
    /// A write, which makes the page dirty next.
    Write,
}

/// The pages of one file that are in memory. A file without any has no [`Pages`].
#[derive(Debug, Default)]
pub(crate) struct PageStore(Option<Box<Pages>>);

static NO_PAGES: Pages = Pages::new();

impl Deref for PageStore {
    type Target = Pages;

    #[inline]
    fn deref(&self) -> &Pages {
        self.0.as_deref().unwrap_or(&NO_PAGES)
    }
}

impl DerefMut for PageStore {
    #[inline]
    fn deref_mut(&mut self) -> &mut Pages {
        self.0.get_or_insert_default()
    }
}

impl PageStore {
    /// Whether a page can be put in under the shared inode lock.
    pub(crate) fn has_place(&self, page: u64) -> bool {
        self.0.as_ref().is_some_and(|pages| pages.has_place(page))
    }

    /// Puts a page in where there is a place for it. It counts as used once it is used again:
    /// a page that is read or written once must not displace those that are used often.
    ///
    /// # Errors
    /// The frame, if another task has put the page in.
    pub(crate) fn insert(&self, page: u64, frame: Frame, origin: Origin) -> Result<(), Frame> {
        let pages = self.0.as_ref().expect("a page comes to a place");
        pages.insert(page, frame, origin)
    }

    /// Like [`Pages::get_mut`].
    pub(crate) fn get_mut(&mut self, page: u64) -> Option<&mut Page> {
        self.0.as_mut()?.get_mut(page)
    }

    /// Like [`Pages::remove_range`].
    pub(crate) fn remove_range(&mut self, range: Range<u64>, taken: impl FnMut(Frame, bool)) {
        if let Some(pages) = &mut self.0 {
            pages.remove_range(range, taken);
        }
    }

    /// Like [`Pages::remove_clean`].
    pub(crate) fn remove_clean(&mut self, range: Range<u64>, taken: impl FnMut(Frame)) -> usize {
        let pages = self.0.as_mut();
        pages.map_or(0, |pages| pages.remove_clean(range, taken))
    }

    /// Like [`Pages::evict`].
    pub(crate) fn evict(&mut self, want: usize, taken: impl FnMut(Frame)) -> usize {
        let pages = self.0.as_mut();
        pages.map_or(0, |pages| pages.evict(want, taken))
    }

    /// Like [`Pages::evict_cheap`].
    pub(crate) fn evict_cheap(&mut self, want: usize, taken: impl FnMut(Frame)) -> usize {
        let pages = self.0.as_mut();
        pages.map_or(0, |pages| pages.evict_cheap(want, taken))
    }

    /// Like [`Pages::remove_cheap`].
    pub(crate) fn remove_cheap(&mut self, taken: impl FnMut(Frame)) -> usize {
        let pages = self.0.as_mut();
        pages.map_or(0, |pages| pages.remove_cheap(taken))
    }

    /// Gives the memory back that a store without pages needs no more.
    pub(crate) fn tidy(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}

/// What a [`PageStore`] with pages has. In this order: tasks that find a page do not read the counts.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pages {
    /// Pages from 64 on, by page / 4096.
    groups: BTreeMap<u64, Box<Group>>,
    /// Pages 0..64.
    first: Chunk,
    /// As the bits of dirty pages.
    dirty: AtomicU64,
    writing: u64,
    /// Unclean pages that a writer has put in: those that may have no block. Others have had one
    /// since they were clean. As the bits.
    new: AtomicU64,
    /// Pages that can be had again from where a read costs little. Relaxed: a count, which
    /// publishes nothing.
    cheap: AtomicU64,
    /// Where eviction goes on.
    hand: u64,
    /// Where eviction of cheap pages goes on.
    cheap_hand: u64,
}

impl Pages {
    const fn new() -> Pages {
        Pages {
            groups: BTreeMap::new(),
            first: Chunk::new(),
            dirty: AtomicU64::new(0),
            writing: 0,
            new: AtomicU64::new(0),
            cheap: AtomicU64::new(0),
            hand: 0,
            cheap_hand: 0,
        }
    }

    /// Whether no page is in memory. They are not counted: a task that puts one in would write to a
    /// line that all others read.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |group: &Group| group.chunks.iter().all(|chunk| chunk.get().is_none());
        self.first.present() == 0 && self.groups.values().all(|group| is_empty(group))
    }

    /// Pages in memory.
    #[cfg(test)]
    pub(crate) fn present(&self) -> u64 {
        let chunks = self.groups.values().flat_map(|group| &group.chunks);
        let chunks = chunks.filter_map(|chunk| chunk.get()).map(|chunk| &**chunk);
        let count = |chunk: &Chunk| u64::from(chunk.present().count_ones());
        count(&self.first) + chunks.map(count).sum::<u64>()
    }

    /// Pages that wait for write-back.
    #[cfg(test)]
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Pages that wait for write-back or are in one; twice if they are both.
    pub(crate) fn unclean(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed) + self.writing
    }

    /// How many of them may have no block.
    pub(crate) fn new_pages(&self) -> u64 {
        self.new.load(Ordering::Relaxed)
    }

    /// Whether no page waits for write-back or is in one.
    pub(crate) fn is_clean(&self) -> bool {
        self.unclean() == 0
    }

    fn chunk(&self, page: u64) -> Option<&Chunk> {
        if page < CHUNK_PAGES {
            return Some(&self.first);
        }
        let group = self.groups.get(&(page / GROUP_PAGES))?;
        let chunk = group.chunks[to_usize(page / CHUNK_PAGES % 64)].get();
        chunk.map(|chunk| &**chunk)
    }

    fn chunk_mut(&mut self, page: u64) -> Option<&mut Chunk> {
        if page < CHUNK_PAGES {
            return Some(&mut self.first);
        }
        let group = self.groups.get_mut(&(page / GROUP_PAGES))?;
        let chunk = group.chunks[to_usize(page / CHUNK_PAGES % 64)].get_mut();
        chunk.map(|chunk| &mut **chunk)
    }

    /// Whether there is a group for the page.
    fn has_place(&self, page: u64) -> bool {
        page < CHUNK_PAGES || self.groups.contains_key(&(page / GROUP_PAGES))
    }

    /// Makes a place for a page.
    pub(crate) fn make_place(&mut self, page: u64) {
        let empty = || {
            Box::new(Group {
                chunks: [const { OnceLock::new() }; GROUP_CHUNKS],
                unclean: AtomicU64::new(0),
            })
        };
        if page >= CHUNK_PAGES {
            self.groups.entry(page / GROUP_PAGES).or_insert_with(empty);
        }
    }

    /// The chunk of a page for which there is a place.
    fn chunk_or_new(&self, page: u64) -> &Chunk {
        if page < CHUNK_PAGES {
            return &self.first;
        }
        let group = self.groups.get(&(page / GROUP_PAGES));
        let group = group.expect("a page comes to a place that was made");
        group.chunks[to_usize(page / CHUNK_PAGES % 64)].get_or_init(Box::default)
    }

    /// Frees the chunk of `page` when nothing is left in it.
    fn tidy_chunk(&mut self, page: u64) {
        if page < CHUNK_PAGES {
            return;
        }
        let key = page / GROUP_PAGES;
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let chunk = &mut group.chunks[to_usize(page / CHUNK_PAGES % 64)];
        if chunk.get_mut().is_some_and(|chunk| chunk.present() == 0) {
            *chunk = OnceLock::new();
            if group.chunks.iter().all(|chunk| chunk.get().is_none()) {
                self.groups.remove(&key);
            }
        }
    }

    /// The page, if it is in memory; notes the use.
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Option<&Page> {
        let found = self.chunk(page)?.get(bit(page))?;
        found.touch();
        Some(found)
    }

    /// The page, to be changed. It must be dirty, or become so before the lock is released.
    pub(crate) fn get_mut(&mut self, page: u64) -> Option<&mut Page> {
        let found = self.chunk_mut(page)?.get_mut(bit(page))?;
        found.touch();
        Some(found)
    }

    /// The page if it is dirty: then its bytes may be changed without any change of state.
    #[inline]
    pub(crate) fn get_dirty(&self, page: u64) -> Option<&Page> {
        let found = self.chunk(page)?.get(bit(page))?;
        if !found.dirty.load(Ordering::Acquire) {
            return None;
        }
        found.touch();
        Some(found)
    }

    /// Whether the page is in memory.
    pub(crate) fn contains(&self, page: u64) -> bool {
        self.chunk(page)
            .is_some_and(|chunk| chunk.get(bit(page)).is_some())
    }

    /// Whether the page differs from its slot.
    pub(crate) fn is_unclean(&self, page: u64) -> bool {
        let unclean = |chunk: &Chunk| chunk.unclean() & bit(page) != 0;
        self.chunk(page).is_some_and(unclean)
    }

    /// Whether a write-back has taken the page.
    pub(crate) fn is_writing(&self, page: u64) -> bool {
        let writing = |chunk: &Chunk| chunk.writing & bit(page) != 0;
        self.chunk(page).is_some_and(writing)
    }

    /// Whether a write-back has taken pages.
    pub(crate) fn any_writing(&self) -> bool {
        self.writing > 0
    }

    /// What a write to pages `range` lacks.
    pub(crate) fn missing(&self, range: Range<u64>) -> Missing {
        let mut missing = Missing::default();
        for page in range {
            let chunk = self.chunk(page);
            let has = |bits: fn(&Chunk) -> u64| chunk.is_some_and(|c| bits(c) & bit(page) != 0);
            missing.frames += u32::from(!has(Chunk::present));
            missing.blocks += u32::from(!has(Chunk::dirty));
        }
        missing
    }

    fn insert(&self, page: u64, frame: Frame, origin: Origin) -> Result<(), Frame> {
        let chunk = self.chunk_or_new(page);
        chunk.insert(bit(page), frame)?;
        if origin == Origin::Write {
            chunk.new.fetch_or(bit(page), Ordering::Relaxed);
            self.new.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Inserts a page that is written and not present, for the holder of the exclusive inode lock.
    pub(crate) fn insert_new(&mut self, page: u64, frame: Frame) {
        self.make_place(page);
        let inserted = self.insert(page, frame, Origin::Write);
        assert!(inserted.is_ok(), "a page is inserted twice");
    }

    /// The page counts as not used yet.
    pub(crate) fn set_unused(&mut self, page: u64) {
        let found = self.chunk_mut(page);
        if let Some(found) = found.and_then(|chunk| chunk.get_mut(bit(page))) {
            found.take_used();
        }
    }

    /// Makes a present page dirty; true when it was not, and so needs a reserved block. The caller
    /// holds the inode exclusively; or shared, and a range of the page exclusively, and no
    /// write-back has taken the page.
    pub(crate) fn set_dirty(&self, page: u64) -> bool {
        let chunk = self.chunk(page);
        let found = chunk.and_then(|chunk| Some((chunk, chunk.get(bit(page))?)));
        let (chunk, found) = found.expect("only a present page can become dirty");
        // The count first: a task that finds the page dirty may return, and an fsync that it makes
        // then must not find the file clean. AcqRel: a task that sees the bit sees the count.
        self.dirty.fetch_add(1, Ordering::Relaxed);
        if chunk.dirty.fetch_or(bit(page), Ordering::AcqRel) & bit(page) != 0 {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if let Some(group) = self.groups.get(&(page / GROUP_PAGES)) {
            let chunk = 1 << (page / CHUNK_PAGES % 64);
            // Load first: the line stays shared.
            if group.unclean() & chunk == 0 {
                group.unclean.fetch_or(chunk, Ordering::Relaxed);
            }
        }
        found.dirty.store(true, Ordering::Release);
        true
    }

    /// Write-back takes a dirty page (and its reserved block). Its bytes stay as they are until it
    /// is dirty again.
    pub(crate) fn begin_writing(&mut self, page: u64) {
        let chunk = self.chunk_mut(page).expect("a dirty page is present");
        assert_ne!(
            chunk.dirty() & bit(page),
            0,
            "only a dirty page is written back"
        );
        assert_eq!(chunk.writing & bit(page), 0, "a page is in two write-backs");
        *chunk.dirty.get_mut() &= !bit(page);
        chunk.writing |= bit(page);
        let taken = chunk.get_mut(bit(page));
        *taken.expect("a dirty page is present").dirty.get_mut() = false;
        *self.dirty.get_mut() -= 1;
        self.writing += 1;
    }

    /// A page that the write-back has taken and no task has changed since, to be copied.
    pub(crate) fn taken(&self, page: u64) -> &Page {
        let chunk = self.chunk(page).expect("a page in write-back is present");
        assert_ne!(
            chunk.writing & bit(page),
            0,
            "a page that no write-back has taken"
        );
        assert_eq!(
            chunk.dirty() & bit(page),
            0,
            "a page in write-back was changed"
        );
        chunk
            .get(bit(page))
            .expect("a page in write-back is present")
    }

    /// The write-back of a page ended well: it is clean, unless it was changed meanwhile.
    pub(crate) fn end_writing(&mut self, page: u64) {
        self.stop_writing(page);
        let chunk = self.chunk_mut(page).expect("it was in write-back");
        let new = chunk.new.get_mut();
        let was_new = *new & bit(page) != 0;
        *new &= !bit(page);
        *self.new.get_mut() -= u64::from(was_new);
    }

    fn stop_writing(&mut self, page: u64) {
        let chunk = self
            .chunk_mut(page)
            .expect("a page in write-back is present");
        assert_ne!(
            chunk.writing & bit(page),
            0,
            "the page was not in write-back"
        );
        chunk.writing &= !bit(page);
        let clean = chunk.unclean() == 0;
        self.writing -= 1;
        if clean && let Some(group) = self.groups.get_mut(&(page / GROUP_PAGES)) {
            *group.unclean.get_mut() &= !(1 << (page / CHUNK_PAGES % 64));
        }
    }

    /// Says of a present page whether it can be had again from where a read costs little: it is
    /// evicted before others then ([`Pages::evict_cheap`]).
    pub(crate) fn set_cheap(&self, page: u64, cheap: bool) {
        let chunk = self.chunk(page).expect("a page that is present");
        match (chunk.set_cheap(bit(page), cheap), cheap) {
            (false, true) => drop(self.cheap.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.cheap.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// The write-back of a page failed: it is dirty again. False when it was changed meanwhile, and
    /// so holds a reserved block of its own: the one of the write-back is to be given back.
    pub(crate) fn fail_writing(&mut self, page: u64) -> bool {
        self.stop_writing(page);
        self.set_dirty(page)
    }
}
