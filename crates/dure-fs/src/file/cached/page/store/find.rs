//! Finding pages, and taking them out.

use std::ops::Range;

use dure_store::frames::Frame;
use dure_store::units::to_usize;
use dure_sync::atomic::Ordering;

use super::super::Page;
use super::chunk::{CHUNK_PAGES, Chunk, bit, lowest, mask};
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
        self.next(range, |_| u64::MAX, Chunk::present)
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
                if let Some(page) = chunk.get().and_then(|chunk| found(base, chunk)) {
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
            let cheap = chunk.cheap() & bit(page) != 0;
            let new = *chunk.new.get_mut() & bit(page) != 0;
            let frame = chunk.remove(bit(page));
            *self.cheap.get_mut() -= u64::from(cheap);
            *self.new.get_mut() -= u64::from(new);
            *self.dirty.get_mut() -= u64::from(dirty);
            self.tidy_chunk(page);
            taken(frame, dirty);
            from = page + 1;
        }
    }

    /// Removes the pages of the range that equal what their slots say; returns how many.
    pub(crate) fn remove_clean(
        &mut self,
        range: Range<u64>,
        mut taken: impl FnMut(Frame),
    ) -> usize {
        let (mut from, mut removed) = (range.start, 0);
        while let Some(page) = self.next_present(from..range.end) {
            if !self.is_unclean(page) {
                self.remove_range(page..page + 1, |frame, _| taken(frame));
                removed += 1;
            }
            from = page + 1;
        }
        removed
    }

    /// CLOCK: takes up to `want` clean pages out that were not used since the hand passed last. The
    /// hand goes no further than to the last page, and then stands at the first ([`Pages::is_swept`]).
    pub(crate) fn evict(&mut self, want: usize, mut taken: impl FnMut(Frame)) -> usize {
        let mut evicted = 0;
        while evicted < want {
            let Some(page) = self.next(self.hand..u64::MAX, |_| u64::MAX, Chunk::clean) else {
                self.hand = 0;
                break;
            };
            evicted += self.evict_from_hand(page, want - evicted, &mut taken);
        }
        evicted
    }

    /// Whether the hand of eviction has passed all pages.
    pub(crate) fn is_swept(&self) -> bool {
        self.hand == 0
    }

    /// Takes up to `want` clean and cheap pages out, of a group at most: a look at all chunks of a
    /// large file would cost more than another page.
    pub(crate) fn evict_cheap(&mut self, want: usize, mut taken: impl FnMut(Frame)) -> usize {
        let mut evicted = 0;
        if *self.cheap.get_mut() == 0 {
            return 0;
        }
        let end = self.cheap_hand.saturating_add(GROUP_PAGES);
        while evicted < want {
            let range = self.cheap_hand..end;
            let Some(page) = self.next(range, |_| u64::MAX, Chunk::clean_and_cheap) else {
                // Behind the last page the hand begins anew.
                let more = self.next_present(end..u64::MAX);
                self.cheap_hand = more.map_or(0, |page| page - page % CHUNK_PAGES);
                break;
            };
            let chunk = self.chunk_mut(page).expect("a page was found in it");
            let victims = lowest(chunk.clean_and_cheap(), want - evicted);
            evicted += self.take_pages(page, victims, &mut taken);
            self.cheap_hand = page;
        }
        evicted
    }

    /// Takes all clean and cheap pages out; returns how many.
    pub(crate) fn remove_cheap(&mut self, mut taken: impl FnMut(Frame)) -> usize {
        let (mut from, mut removed) = (0, 0);
        while *self.cheap.get_mut() > 0
            && let Some(page) = self.next(from..u64::MAX, |_| u64::MAX, Chunk::clean_and_cheap)
        {
            let chunk = self.chunk_mut(page).expect("a page was found in it");
            let victims = chunk.clean_and_cheap();
            removed += self.take_pages(page, victims, &mut taken);
            from = page + 1;
        }
        removed
    }

    /// The hand goes from `page` on, within its chunk: behind the last page it takes, or to the next
    /// chunk if there are fewer to take. What it passes counts as not used from then on. A hand that
    /// left each chunk with one page would clear the marks of 64 for each page it takes, and hardly
    /// find out which are in use.
    fn evict_from_hand(&mut self, page: u64, want: usize, taken: &mut impl FnMut(Frame)) -> usize {
        let base = page - page % CHUNK_PAGES;
        let chunk = self.chunk_mut(page).expect("a clean page was found in it");
        let (clean, mut victims) = (chunk.clean(), 0_u64);
        let mut rest = chunk.present() & mask(base, page, u64::MAX);
        while rest != 0 && to_usize(victims.count_ones().into()) < want {
            let one = rest & rest.wrapping_neg();
            rest &= !one;
            let used = chunk.get_mut(one).is_some_and(Page::take_used);
            if !used {
                victims |= one & clean;
            }
        }
        self.hand = match rest {
            0 => base + CHUNK_PAGES,
            rest => base + u64::from(rest.trailing_zeros()),
        };
        self.take_pages(page, victims, taken)
    }

    /// Takes the pages `victims` out of the chunk of `page`; returns how many they are.
    fn take_pages(&mut self, page: u64, mut victims: u64, taken: &mut impl FnMut(Frame)) -> usize {
        let chunk = self.chunk_mut(page).expect("the victims are in it");
        let cheap = (chunk.cheap() & victims).count_ones();
        let count = victims.count_ones();
        while victims != 0 {
            let victim = victims & victims.wrapping_neg();
            taken(chunk.remove(victim));
            victims &= !victim;
        }
        *self.cheap.get_mut() -= u64::from(cheap);
        self.tidy_chunk(page);
        to_usize(count.into())
    }
}
