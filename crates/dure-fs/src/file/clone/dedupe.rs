//! Deduplication: a file shares the pages of another one that are the same, byte for byte.
//!
//! **Structure.** A clone that looks first. A step finds the slots of both files, leaves out what
//! their checksums tell apart, reads the rest of both, and compares. What is equal goes to the
//! operation of a clone. Pages of zeroes that are a hole in one of the files stay as they are.
//!
//! **Invariants.** What is compared is what is shared: nothing live is overwritten, so a slot that
//! has not changed has the content that was read. Under the write-back lock of the target nobody but
//! the cleaner changes its slots, and a page that moves keeps its content. The slots of the source are
//! looked at again with both inodes held, and a write to one of the two that is in memory only sends
//! the step back. Times, size and charge of the target stay: a reader sees no difference.
//!
//! **On a crash** each step is there wholly or not at all, and the content is the same.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::Arc;

use super::{Clone, Found, Step};
use crate::file::Files;
use crate::file::map::MapReader;
use crate::inode::Inode;

/// What a deduplication came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Deduped {
    /// Bytes from the start of the range that are the same in both files.
    pub same: u64,
    /// The page behind them differs. If not, and they are not all: a page soon behind them cannot be
    /// shared, was changed again and again, or met an error, which the next call from there on
    /// returns; or no block was free to list the slots in.
    pub differs: bool,
}

/// What one of the files has in a step, from its first page on.
struct Side {
    pages: u64,
    /// None in a hole.
    slots: Vec<Slot>,
}

impl Side {
    fn new(found: Found, start: u64) -> Side {
        match found {
            Found::Hole(end) => Side {
                pages: end - start,
                slots: Vec::new(),
            },
            Found::Slots(slots) => Side {
                pages: to_u64(slots.len()),
                slots,
            },
        }
    }

    fn is_hole(&self) -> bool {
        self.slots.is_empty()
    }

    /// As many slots, from the first on.
    fn cut(mut self, pages: u64) -> Vec<Slot> {
        self.slots.resize(to_usize(pages), Slot::HOLE);
        self.slots
    }
}

impl Files {
    /// See [`FileSystem::dedupe_range`](crate::volume::FileSystem::dedupe_range).
    pub(crate) fn dedupe_range(
        &self,
        source: (&Arc<Inode>, u64),
        (target, to): (&Arc<Inode>, u64),
        len: u64,
    ) -> Result<Deduped> {
        self.store.check_writable()?;
        let mut deduped = Deduped::default();
        let left = |inode: &Inode, at: u64| inode.state().seek_hint().size().saturating_sub(at);
        let (ours, theirs) = (left(source.0, source.1), left(target, to));
        let mut len = len.min(ours).min(theirs);
        if len < ours || len < theirs {
            len -= len % BLOCK_BYTES_U64;
        }
        let Some(mut clone) = self.plan_clone(source, (target, to), len)? else {
            return Ok(deduped);
        };
        clone.compares = true;
        target.ranges_in(self);
        let _range = target.take_span(to, clone.size_up_to(clone.pages.end));
        let page = self.clone_pages(&clone)?;
        deduped.differs = clone.differs.get();
        if page > clone.pages.start {
            deduped.same = clone.size_up_to(page) - to;
            self.end_data_call(target)?;
        }
        Ok(deduped)
    }

    /// Compares pages from `page` on, where the source has `found`, and shares what is equal. The
    /// caller holds the write-back lock of the target.
    pub(super) fn dedupe_step(&self, clone: &Clone<'_>, page: u64, found: Found) -> Result<Step> {
        let ours = Side::new(found, page);
        let to = clone.target_of(&(page..page + ours.pages));
        let Some(found) = self.find_slots(clone.target, to.clone())? else {
            return Ok(Step::Dirty);
        };
        let theirs = Side::new(found, to.start);
        let count = ours.pages.min(theirs.pages);
        if ours.is_hole() && theirs.is_hole() {
            return Ok(Step::Done(page + count));
        }
        let has_hole = ours.is_hole() || theirs.is_hole();
        // A hole can be longer than what is compared at once.
        let (ours, theirs) = (ours.cut(count), theirs.cut(count));
        let Some(equal) = self.count_equal(clone, page, (&ours, &theirs))? else {
            return Ok(Step::Dirty);
        };
        if equal == 0 {
            clone.differs.set(true);
            return Ok(Step::Stop);
        }
        let (ours, theirs) = (&ours[..equal], &theirs[..equal]);
        let pages = page..page + to_u64(equal);
        if has_hole || is_shared(ours, theirs) {
            return Ok(Step::Done(pages.end));
        }
        if !self.store.space.may_share() {
            return Ok(Step::Unannounced);
        }
        self.clone_slots(clone, page, ours)
    }

    /// How many pages are equal, from `page` of the source on; `None` if a block had another owner
    /// before it was read.
    fn count_equal(
        &self,
        clone: &Clone<'_>,
        page: u64,
        (ours, theirs): (&[Slot], &[Slot]),
    ) -> Result<Option<usize>> {
        let pairs = || ours.iter().zip(theirs);
        let told_apart = |(n, (a, b)): (usize, (&Slot, &Slot))| {
            let whole = clone.bytes_of(page + to_u64(n)) == BLOCK_BYTES;
            whole && a.is_written() && b.is_written() && a.crc != b.crc
        };
        let count = pairs().enumerate().position(told_apart);
        let count = count.unwrap_or(ours.len());
        if is_shared(&ours[..count], &theirs[..count]) {
            return Ok(Some(count));
        }
        let pages = page..page + to_u64(count);
        let Some(left) = self.read_slots(clone.source, pages.clone(), &ours[..count])? else {
            return Ok(None);
        };
        let to = clone.target_of(&pages);
        let Some(right) = self.read_slots(clone.target, to, &theirs[..count])? else {
            return Ok(None);
        };
        let sides = left.chunks(BLOCK_BYTES).zip(right.chunks(BLOCK_BYTES));
        let differs = |(n, (a, b)): (usize, (&[u8], &[u8]))| {
            let bytes = clone.bytes_of(page + to_u64(n));
            a[..bytes] != b[..bytes]
        };
        Ok(Some(sides.enumerate().position(differs).unwrap_or(count)))
    }

    /// Whether a file has these slots, or as little content as they say. The caller holds it.
    fn has_slots(&self, inode: &Inode, pages: Range<u64>, slots: &[Slot]) -> Result<bool> {
        let mut map = MapReader::new(self, inode);
        for (page, slot) in pages.zip(slots) {
            let now = map.slot(page)?;
            // What is only preallocated reads as a hole does.
            if now != *slot && (now.is_written() || slot.is_written()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The content of these slots, of the inode's pages; `None` if one has changed.
    fn read_slots(
        &self,
        inode: &Inode,
        pages: Range<u64>,
        slots: &[Slot],
    ) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; slots.len() * BLOCK_BYTES];
        let good = self.store.placement.read_pages(slots, &mut bytes);
        let state = inode.state().read();
        if !self.has_slots(inode, pages.clone(), slots)? {
            return Ok(None);
        }
        let mut bad = pages.zip(slots).zip(good).filter(|(_, good)| !good);
        if let Some(((page, slot), _)) = bad.next() {
            // It tells what is wrong, and where.
            self.read_page(inode, page, slot, &mut [0; BLOCK_BYTES])?;
            return Ok(None);
        }
        drop(state);
        Ok(Some(bytes))
    }
}

impl Clone<'_> {
    /// Bytes of a page of the source that are in the range.
    fn bytes_of(&self, page: u64) -> usize {
        let before = (page - self.pages.start) * BLOCK_BYTES_U64;
        to_usize((self.len - before).min(BLOCK_BYTES_U64))
    }
}

/// Whether these have the same blocks already.
fn is_shared(ours: &[Slot], theirs: &[Slot]) -> bool {
    let mut pairs = ours.iter().zip(theirs);
    pairs.all(|(a, b)| a.is_written() && b.is_written() && a.block() == b.block())
}
