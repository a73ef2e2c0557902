//! The cached answers of seek, found without the file's lock.
//!
//! **Problem.** A seek that takes the inode's lock contends with every task that holds the file
//! exclusively to write, allocate or rename it, although most of these change neither where the
//! file ends nor the data and holes it asks for.
//!
//! **Structure.** A [`SeekHint`] has the size of the file, and a [`Stretch`] for each target: a
//! hole and the data behind it, as the last seek found them that had to look. Size and stretches
//! are on different lines: appends change one, and seeks read both.
//!
//! # Invariants
//! A task that holds the inode exclusively, or the inode shared and the growth
//! ([`super::Growth`]) exclusively, says here what it is about to change, before others can
//! see it: first whether pages get data or become holes, then the size. So a stretch is true when
//! it is read, and what a seek has returned is there for the next call, whatever that locks. A
//! stretch is stored only where none is, or a page of a hole, by a holder of the shared inode lock that keeps out
//! writers that add pages: seeks that walk a file of many holes write nothing.
//!
//! **On a crash** it is gone.

use std::ops::Range;

use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::SequenceCount;
use dure_sync::atomic::{AtomicU64, Ordering};

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Bytes that were written.
    Data,
    /// Bytes that were not.
    Hole,
}

/// What comes behind the data of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// A hole, or the end of the file.
    Hole,
    /// Not known: no seek has looked.
    Unknown,
}

/// Pages of a hole, perhaps none, and the data behind them; none if only a hole is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first page.
    pub(super) hole: u64,
    /// The first page that is data.
    pub(super) data: u64,
    /// Bytes up to which it is data. At most the size of the file.
    pub(super) end: u64,
    pub(super) behind: Behind,
}

const WORDS: usize = 3;

impl Stretch {
    fn encode(&self) -> [u64; WORDS] {
        let behind = u64::from(self.behind == Behind::Hole);
        [self.hole, self.data << 1 | behind, self.end]
    }

    /// None: no stretch was put in.
    fn decode([hole, data, end]: [u64; WORDS]) -> Option<Stretch> {
        let behind = match data & 1 {
            0 => Behind::Unknown,
            _ => Behind::Hole,
        };
        let data = data >> 1;
        (end > 0).then_some(Stretch {
            hole,
            data,
            end,
            behind,
        })
    }

    /// Whether it is known where data begins behind the hole.
    fn has_data(&self) -> bool {
        self.data * BLOCK_BYTES_U64 < self.end
    }

    fn answer(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        let data = self.data * BLOCK_BYTES_U64;
        if !(self.hole * BLOCK_BYTES_U64..self.end).contains(&offset) {
            return None;
        }
        match target {
            SeekTarget::Data => self.has_data().then(|| offset.max(data)),
            SeekTarget::Hole if offset < data => Some(offset),
            SeekTarget::Hole => (self.behind == Behind::Hole).then_some(self.end),
        }
    }

    /// Whether it is still so when the file has another size.
    fn survives_size(&self, size: u64) -> bool {
        let within_page = !self.end.is_multiple_of(BLOCK_BYTES_U64);
        let ends_file = within_page && self.behind == Behind::Hole;
        self.end <= size && (!ends_file || self.end == size)
    }

    /// Whether it is still so when pages get data.
    fn survives_data(&self, pages: &Range<u64>) -> bool {
        let in_hole = pages.start < self.data && pages.end > self.hole;
        // Within a page the end of the data is that of the file.
        let behind = self.end.is_multiple_of(BLOCK_BYTES_U64)
            && self.behind == Behind::Hole
            && pages.contains(&(self.end / BLOCK_BYTES_U64));
        !in_hole && !behind
    }

    /// Whether it is still so when pages become holes.
    fn survives_hole(&self, pages: &Range<u64>) -> bool {
        pages.start >= self.end.div_ceil(BLOCK_BYTES_U64) || pages.end <= self.data
    }
}

/// One for each target. On a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Stretches {
    version: SequenceCount,
    /// Written as `version` says, by holders of the inode lock, shared or exclusive; read by any
    /// task. Relaxed: the sequence count orders them.
    words: [[AtomicU64; WORDS]; 2],
}

impl Stretches {
    fn get(&self, at: usize) -> Option<Stretch> {
        Stretch::decode(std::array::from_fn(|n| {
            self.words[at][n].load(Ordering::Relaxed)
        }))
    }

    fn put(&self, at: usize, words: [u64; WORDS]) {
        for (word, value) in self.words[at].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn answer(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        let seen = self.version.look()?;
        let mut all = [0, 1].into_iter().filter_map(|at| self.get(at));
        let answer = all.find_map(|stretch| stretch.answer(offset, target));
        self.version.is_still(seen).then_some(answer)?
    }

    /// Stores what a seek for `target` has found. The caller holds the inode and its growth,
    /// if it has any, shared, and held them while it looked.
    #[cold]
    pub(super) fn show(&self, target: SeekTarget, stretch: &Stretch) {
        assert!(
            stretch.hole <= stretch.data,
            "a hole ends where data begins"
        );
        let at = match target {
            SeekTarget::Data => 0,
            SeekTarget::Hole => 1,
        };
        // One page of a hole gives way to a stretch that says more.
        let gives_way = |old: Stretch| !old.has_data() && stretch.has_data();
        if self.get(at).is_none_or(gives_way) {
            // If another task is storing one, that is as good.
            let _ = self.version.try_change(|| self.put(at, stretch.encode()));
        }
    }

    /// Takes out what does not survive. The caller holds the inode, or the growth,
    /// exclusively.
    fn keep(&self, survives: impl Fn(&Stretch) -> bool) {
        for at in 0..self.words.len() {
            if self.get(at).is_some_and(|stretch| !survives(&stretch)) {
                self.version.change(|| self.put(at, [0; WORDS]));
            }
        }
    }
}

/// The size of a file, as users see it. Written by a holder of the inode, or of the growth,
/// exclusively; read by any task. Publishes what was said of the stretches, and the pages below it.
/// On a line of its own: appends change it, and calls within the settled size do not read it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct VisibleSize(AtomicU64);

impl VisibleSize {
    /// The size of a file of `size` bytes.
    pub(crate) fn new(size: u64) -> VisibleSize {
        VisibleSize(AtomicU64::new(size))
    }
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeekHint<'i> {
    pub(crate) size: &'i VisibleSize,
    /// None: nothing was ever kept.
    pub(crate) stretches: Option<&'i Stretches>,
}

impl SeekHint<'_> {
    /// The size of the file.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        // Acquire: pairs with the Release in `resize`; a reader that sees a size sees what came
        // before it.
        self.size.0.load(Ordering::Acquire)
    }

    /// Where data or a hole is from `offset` on, if that is known.
    pub(super) fn answer(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        self.stretches?.answer(offset, target)
    }

    /// Takes out the stretches that do not survive.
    #[inline]
    fn keep(&self, survives: impl Fn(&Stretch) -> bool) {
        if let Some(stretches) = self.stretches {
            stretches.keep(survives);
        }
    }

    /// Pages are about to get data. The caller holds the inode, or the growth, exclusively.
    #[inline]
    pub(super) fn data_comes(&self, pages: &Range<u64>) {
        self.keep(|stretch| stretch.survives_data(pages));
    }

    /// Pages are about to become holes. The caller holds the inode exclusively.
    pub(super) fn data_goes(&self, pages: &Range<u64>) {
        self.keep(|stretch| stretch.survives_hole(pages));
    }

    /// The size changes. The caller holds the inode exclusively, or, to make the size greater, the
    /// growth; it has said before what becomes of pages.
    #[inline]
    pub(super) fn resize(&self, size: u64) {
        // Relaxed: no other task changes it now. Nothing is stored where nothing changes: others
        // read the line.
        if self.size.0.load(Ordering::Relaxed) != size {
            self.keep(|stretch| stretch.survives_size(size));
            // Release: pairs with the Acquire in `size`.
            self.size.0.store(size, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK_BYTES_U64;

    #[test]
    fn a_stretch_answers_within_itself() {
        let one = Stretch {
            hole: 2,
            data: 4,
            end: 6 * B,
            behind: Behind::Hole,
        };
        assert_eq!(Stretch::decode(one.encode()), Some(one));
        assert_eq!(Stretch::decode([0; WORDS]), None);
        let answers =
            |offset| [SeekTarget::Data, SeekTarget::Hole].map(|target| one.answer(offset, target));
        assert_eq!(answers(2 * B - 1), [None, None]);
        assert_eq!(answers(2 * B + 7), [Some(4 * B), Some(2 * B + 7)]);
        assert_eq!(answers(4 * B), [Some(4 * B), Some(6 * B)]);
        assert_eq!(answers(6 * B - 1), [Some(6 * B - 1), Some(6 * B)]);
        assert_eq!(answers(6 * B), [None, None]);
        let page = Stretch { end: 4 * B, ..one };
        assert_eq!(page.answer(3 * B, SeekTarget::Hole), Some(3 * B));
        assert_eq!(page.answer(3 * B, SeekTarget::Data), None, "not known");
        let open = Stretch {
            behind: Behind::Unknown,
            ..one
        };
        assert_eq!(Stretch::decode(open.encode()), Some(open));
        assert_eq!(open.answer(5 * B, SeekTarget::Hole), None);
        assert_eq!(open.answer(3 * B, SeekTarget::Hole), Some(3 * B));
    }

    #[test]
    fn a_stretch_goes_with_what_it_says() {
        let one = Stretch {
            hole: 2,
            data: 4,
            end: 6 * B,
            behind: Behind::Hole,
        };
        for (pages, data, hole) in [
            (0..2, true, true),
            (1..3, false, true),
            (3..4, false, true),
            (4..6, true, false),
            (5..6, true, false),
            (6..7, false, true),
            (7..9, true, true),
        ] {
            assert_eq!(one.survives_data(&pages), data, "data in {pages:?}");
            assert_eq!(one.survives_hole(&pages), hole, "no data in {pages:?}");
        }
        assert!(one.survives_size(6 * B) && one.survives_size(9 * B));
        assert!(!one.survives_size(6 * B - 1));
        let to_end = Stretch {
            end: 5 * B + 1,
            ..one
        };
        assert!(to_end.survives_size(5 * B + 1) && !to_end.survives_size(5 * B + 2));
        assert!(to_end.survives_data(&(5..6)) && !to_end.survives_hole(&(5..6)));
        let page = Stretch {
            end: 4 * B,
            behind: Behind::Unknown,
            ..one
        };
        assert!(page.survives_hole(&(4..9)) && page.survives_hole(&(0..4)));
        assert!(page.survives_data(&(4..9)) && !page.survives_data(&(3..4)));
        assert!(page.survives_size(4 * B) && !page.survives_size(4 * B - 1));
        let open = Stretch {
            behind: Behind::Unknown,
            ..to_end
        };
        assert!(open.survives_size(8 * B) && open.survives_data(&(6..7)));
        assert!(!open.survives_size(5 * B));
    }
}
