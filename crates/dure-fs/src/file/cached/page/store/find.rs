//! Finding pages, and taking them out.

use std::ops::Range;

use dure_store::frames::Frame;
use dure_store::units::{to_u64, to_usize};
use dure_sync::atomic::Ordering;

use super::chunk::{CHUNK_PAGES, Chunk, bit, mask};
use super::{GROUP_PAGES, Group, Pages};

impl Pages {
    /// First dirty page in the range.
    pub(crate) fn next_dirty(&self, range: Range<u64>) -> Option<u64> {
        if self.dirty.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.next(range, Group::unclean, Chunk::dirty)
    }

    /// First page in the range that differs from its slot.
    pub(crate) fn next_unclean(&self, range: Range<u64>) -> Option<u64> {
        if self.is_clean() {
            return None;
        }
        self.next(range, Group::unclean, Chunk::unclean)
    }

    /// First page in the range that is in memory.
    pub(crate) fn next_present(&self, range: Range<u64>) -> Option<u64> {
        self.next(range, |_| u64::MAX, |chunk| chunk.present)
    }

    /// First page in the range whose bit is set, looking only into the chunks that `chunks` names.
    fn next(
        &self,
        range: Range<u64>,
        chunks: impl Fn(&Group) -> u64,
        bits: impl Fn(&Chunk) -> u64,
    ) -> Option<u64> {
        let found = |base: u64, chunk: &Chunk| {
            let hit = bits(chunk) & mask(base, range.start, range.end);
            (hit != 0).then(|| base + u64::from(hit.trailing_zeros()))
        };
        if range.is_empty() {
            return None;
        }
        if let Some(page) = found(0, &self.first) {
            return Some(page);
        }
        for (&key, group) in self.groups.range(range.start / GROUP_PAGES..) {
            if key * GROUP_PAGES >= range.end {
                return None;
            }
            let mut left = chunks(group);
            while left != 0 {
                let index = left.trailing_zeros();
                left &= left - 1;
                let base = key * GROUP_PAGES + u64::from(index) * CHUNK_PAGES;
                let chunk = &group.chunks[to_usize(u64::from(index))];
                if let Some(page) = chunk.as_ref().and_then(|chunk| found(base, chunk)) {
                    return Some(page);
                }
            }
        }
        None
    }

    /// Takes the pages of the range out; `taken` learns of each whether it was dirty, that is,
    /// whether a reserved block comes with it. No page of the range may be in write-back.
    pub(crate) fn remove_range(&mut self, range: Range<u64>, mut taken: impl FnMut(Frame, bool)) {
        let mut from = range.start;
        while let Some(page) = self.next_present(from..range.end) {
            let chunk = self.chunk_mut(page).expect("the page was found in it");
            assert_eq!(chunk.writing & bit(page), 0, "page {page} is in write-back");
            let dirty = chunk.dirty() & bit(page) != 0;
            let frame = chunk.remove(bit(page));
            self.present -= 1;
            *self.dirty.get_mut() -= u64::from(dirty);
            self.tidy_chunk(page);
            taken(frame, dirty);
            from = page + 1;
        }
    }

    /// CLOCK: takes up to `want` clean pages out that were not used since the hand passed last;
    /// looks at each page at most twice.
    pub(crate) fn evict(&mut self, want: usize, mut taken: impl FnMut(Frame)) -> usize {
        let mut evicted = 0;
        let mut steps = 2 * (self.present.div_ceil(CHUNK_PAGES) + to_u64(self.groups.len()) + 1);
        while evicted < want && self.present > 0 && steps > 0 {
            steps -= 1;
            let Some(page) = self.next(self.hand..u64::MAX, |_| u64::MAX, Chunk::clean) else {
                if self.hand == 0 {
                    break;
                }
                self.hand = 0;
                continue;
            };
            let base = page - page % CHUNK_PAGES;
            evicted += self.evict_chunk(base, want - evicted, &mut taken);
            self.hand = base + CHUNK_PAGES;
        }
        evicted
    }

    fn evict_chunk(&mut self, base: u64, want: usize, taken: &mut impl FnMut(Frame)) -> usize {
        let chunk = self.chunk_mut(base).expect("a clean page was found in it");
        // Relaxed: hints.
        let recent = chunk.referenced.swap(0, Ordering::Relaxed);
        let mut victims = chunk.clean() & !recent;
        let mut evicted = 0;
        while victims != 0 && evicted < want {
            let page = victims & victims.wrapping_neg();
            taken(chunk.remove(page));
            victims &= !page;
            evicted += 1;
        }
        self.present -= to_u64(evicted);
        self.tidy_chunk(base);
        evicted
    }
}
