//! 64 neighbouring pages of a file.

use dure_store::frames::Frame;
use dure_sync::atomic::{AtomicU64, Ordering};

use super::super::Page;

/// Pages of a chunk.
pub(super) const CHUNK_PAGES: u64 = 64;

/// 64 neighbouring pages, bit i for page `64 * n + i`.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) present: u64,
    /// Set by holders of the exclusive inode lock, and of the shared one with the page's range;
    /// cleared under the exclusive one.
    pub(super) dirty: AtomicU64,
    pub(super) writing: u64,
    /// Pages that can be had again from where a read costs little. A hint: a page that has moved
    /// since keeps its bit.
    pub(super) cheap: u64,
    /// CLOCK bits. Set by readers, taken by eviction; Relaxed: hints.
    pub(super) referenced: AtomicU64,
    /// The present pages, in order.
    pub(super) pages: Vec<Page>,
}

impl Chunk {
    pub(super) const fn new() -> Chunk {
        Chunk {
            present: 0,
            dirty: AtomicU64::new(0),
            writing: 0,
            cheap: 0,
            referenced: AtomicU64::new(0),
            pages: Vec::new(),
        }
    }

    pub(super) fn position(&self, bit: u64) -> usize {
        // `bit - 1` has ones below the page.
        (self.present & (bit - 1)).count_ones() as usize
    }

    pub(super) fn get(&self, bit: u64) -> Option<&Page> {
        (self.present & bit != 0).then(|| &self.pages[self.position(bit)])
    }

    pub(super) fn touch(&self, bit: u64) {
        // Load first: a hot page's line stays shared among readers.
        if self.referenced.load(Ordering::Relaxed) & bit == 0 {
            self.referenced.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(super) fn insert(&mut self, bit: u64, frame: Frame) {
        assert_eq!(self.present & bit, 0, "a page is inserted twice");
        self.pages.insert(self.position(bit), frame.into());
        self.present |= bit;
    }

    pub(super) fn remove(&mut self, bit: u64) -> Frame {
        assert_ne!(
            self.present & bit,
            0,
            "a page is removed that is not in memory"
        );
        let page = self.pages.remove(self.position(bit));
        self.present &= !bit;
        *self.dirty.get_mut() &= !bit;
        self.writing &= !bit;
        self.cheap &= !bit;
        page.into_frame()
    }

    /// Takes over pages that it does not have.
    pub(super) fn absorb(&mut self, other: Chunk) {
        assert_eq!(self.present & other.present, 0, "a page is in both stores");
        let present = self.present | other.present;
        let mut own = std::mem::take(&mut self.pages).into_iter();
        let mut others = other.pages.into_iter();
        let mut left = present;
        self.pages.reserve_exact(present.count_ones() as usize);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left &= left - 1;
            let from = match self.present & bit {
                0 => &mut others,
                _ => &mut own,
            };
            self.pages
                .push(from.next().expect("there is a page for each bit"));
        }
        self.present = present;
        *self.dirty.get_mut() |= other.dirty.into_inner();
        self.writing |= other.writing;
        self.cheap |= other.cheap;
        *self.referenced.get_mut() |= other.referenced.into_inner();
    }

    pub(super) fn dirty(&self) -> u64 {
        // Acquire: pairs with the task that sets a bit under the shared inode lock.
        self.dirty.load(Ordering::Acquire)
    }

    pub(super) fn unclean(&self) -> u64 {
        self.dirty() | self.writing
    }

    pub(super) fn clean(&self) -> u64 {
        self.present & !self.unclean()
    }

    pub(super) fn clean_and_cheap(&self) -> u64 {
        self.cheap & self.clean()
    }
}

/// The bit of a page within its chunk.
pub(super) fn bit(page: u64) -> u64 {
    1 << (page % CHUNK_PAGES)
}

/// Bits of pages `from..to` in the chunk that starts at `base`.
pub(super) fn mask(base: u64, from: u64, to: u64) -> u64 {
    let low = from.saturating_sub(base).min(CHUNK_PAGES);
    let high = to.saturating_sub(base).min(CHUNK_PAGES);
    if low >= high {
        return 0;
    }
    let ones = u64::MAX >> (CHUNK_PAGES - (high - low));
    ones << low
}

/// The lowest `count` of the bits, or all if there are fewer.
pub(super) fn lowest(bits: u64, count: usize) -> u64 {
    let mut rest = bits;
    for _ in 0..count {
        if rest == 0 {
            break;
        }
        rest &= rest - 1;
    }
    bits & !rest
}
