//! One segment in memory: which blocks are allocated, which are live, and what the segment is for.
//!
//! **Problem.** A block must not be reused before the handle that freed it is valid, and the SIT may
//! name a block only once the handle that placed it is valid. **Structure.** Two bitmaps:
//! *allocated*, which the allocator looks at, and *live*, the view of valid handles that goes to the
//! SIT. **Invariants.** Live blocks are allocated. Effects of handles of different journals may be
//! settled in the wrong order: a block that a valid handle frees before the (also valid) handle that
//! placed it was settled waits in `early`, still allocated, until that one is settled too.
//! **Crash.** Only `live` survives, through the SIT.
//!
//! Everything here is arithmetic under the segment's lock; `Segments` keeps what is known
//! about a segment outside of its lock in step.

use super::bitmap::{BITS, Bitmap};
use super::summary::Overlay;
use crate::format::sit::SegmentUse;
use crate::format::summary::SummaryEntry;

/// Who may allocate in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nobody's: may be taken, wholly free or not.
    Closed,
    /// The open segment of a partition; others use it only when nothing else is left.
    Open,
    /// A victim of the cleaner; used for allocation only when nothing else is left.
    Cleaning,
    /// Part of a journal's ring.
    Log,
}

/// What the lock of a segment protects.
#[derive(Debug)]
pub(crate) struct SegmentState {
    /// Blocks that must not be handed out.
    pub(crate) allocated: Bitmap,
    /// Blocks that valid handles, or the NAT, point to: the SIT's view.
    pub(crate) live: Bitmap,
    /// Blocks freed by a valid handle before the handle that placed them was settled.
    early: Option<Box<Bitmap>>,
    /// Who may allocate here.
    pub(crate) role: Role,
    /// What lies here, a hint that goes to the SIT.
    pub(crate) usage: SegmentUse,
    /// Seconds since 1970 of the youngest change of `live`.
    pub(crate) changed: u64,
    /// Where the next search for a free block starts.
    cursor: u32,
    /// `live` or `usage` differ from what the last SIT write said.
    pub(crate) sit_dirty: bool,
    /// It is on the lists of closed segments.
    pub(crate) listed: bool,
    /// The use it is counted under.
    pub(crate) counted: Option<SegmentUse>,
    /// Owners set since the last write of the summary.
    pub(crate) overlay: Option<Box<Overlay>>,
    /// Newest generation of each summary pair; 0 = not known, or never written.
    pub(crate) summary_generations: [u64; super::summary::PAIRS_MAX],
}

impl SegmentState {
    /// A segment as the SIT has it.
    pub(crate) fn new(live: Bitmap, usage: SegmentUse, changed: u64) -> SegmentState {
        SegmentState {
            allocated: live,
            live,
            early: None,
            role: Role::Closed,
            usage,
            changed,
            cursor: 0,
            sit_dirty: false,
            listed: false,
            counted: None,
            overlay: None,
            summary_generations: [0; super::summary::PAIRS_MAX],
        }
    }

    /// Takes up to `want` free blocks in a row, the first found behind the last ones taken.
    /// Gives the first block and their number; `None` when the segment is full.
    pub(crate) fn allocate(&mut self, segment_blocks: u32, want: u32) -> Option<(u32, u32)> {
        assert!(want > 0, "an allocation of nothing");
        assert!(self.role != Role::Log, "allocation in a log segment");
        let first = self
            .allocated
            .next_absent(self.cursor, segment_blocks)
            .or_else(|| self.allocated.next_absent(0, self.cursor))?;
        let end = segment_blocks.min(first.saturating_add(want));
        let end = self.allocated.next_present(first, end).unwrap_or(end);
        let count = end - first;
        self.allocated.insert(&Bitmap::of(first, count));
        self.cursor = if end == segment_blocks { 0 } else { end };
        Some((first, count))
    }

    /// Gives back blocks that were never placed.
    pub(crate) fn release(&mut self, first: u32, count: u32) {
        let run = Bitmap::of(first, count);
        assert!(
            self.allocated.covers(&run),
            "release of blocks {first} + {count}, not allocated"
        );
        assert!(
            self.live.and(&run).is_empty(),
            "release of live blocks {first} + {count}"
        );
        self.allocated.remove(&run);
    }

    /// A valid handle placed these blocks. Gives the number of blocks that are free now, because a
    /// valid handle had freed them already.
    pub(crate) fn settle_live(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let run = Bitmap::of(first, count);
        assert!(
            self.allocated.covers(&run),
            "blocks {first} + {count} are live but not allocated"
        );
        assert!(
            self.live.and(&run).is_empty(),
            "blocks {first} + {count} became live twice"
        );
        let early = self
            .early
            .as_deref()
            .map_or(Bitmap::EMPTY, |early| early.and(&run));
        self.live.insert(&run.without(&early));
        self.allocated.remove(&early);
        if let Some(rest) = self.early.as_deref_mut() {
            rest.remove(&early);
            if rest.is_empty() {
                self.early = None;
            }
        }
        self.touch(now);
        early.count()
    }

    /// A valid handle freed these blocks. Gives the number of blocks that are free now; the others
    /// wait for [`SegmentState::settle_live`].
    pub(crate) fn settle_free(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let run = Bitmap::of(first, count);
        assert!(
            self.allocated.covers(&run),
            "blocks {first} + {count} are freed, not allocated"
        );
        let freed = run.and(&self.live);
        let early = run.without(&self.live);
        if !early.is_empty() {
            let waiting = self.early.get_or_insert_default();
            assert!(
                waiting.and(&early).is_empty(),
                "blocks {first} + {count} were freed twice"
            );
            waiting.insert(&early);
        }
        self.live.remove(&freed);
        self.allocated.remove(&freed);
        self.touch(now);
        freed.count()
    }

    /// The NAT points to this block now.
    pub(crate) fn image_live(&mut self, index: u32, now: u64) {
        assert!(
            self.allocated.contains(index),
            "an image in block {index}, not allocated"
        );
        assert!(!self.live.contains(index), "two images in block {index}");
        self.live.insert(&Bitmap::of(index, 1));
        self.touch(now);
    }

    /// The NAT no longer points to this block; it stays allocated until [`SegmentState::release`].
    pub(crate) fn image_dead(&mut self, index: u32, now: u64) {
        assert!(
            self.live.contains(index),
            "the image in block {index} is not live"
        );
        self.live.remove(&Bitmap::of(index, 1));
        self.touch(now);
    }

    /// Mount: these blocks are live. Gives the number of blocks that were not allocated before.
    pub(crate) fn mend_live(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let taken = self.fence(first, count);
        let run = Bitmap::of(first, count);
        if !self.live.covers(&run) {
            self.live.insert(&run);
            self.touch(now);
        }
        taken
    }

    /// Mount: these blocks are free. Gives the number of blocks that were allocated before.
    pub(crate) fn mend_dead(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let run = Bitmap::of(first, count);
        let given = self.allocated.and(&run).count();
        if !self.live.and(&run).is_empty() {
            self.live.remove(&run);
            self.touch(now);
        }
        self.allocated.remove(&run);
        given
    }

    /// Mount: these blocks must not be handed out. Gives the number that was not allocated before.
    pub(crate) fn fence(&mut self, first: u32, count: u32) -> u32 {
        let run = Bitmap::of(first, count);
        let taken = run.without(&self.allocated).count();
        self.allocated.insert(&run);
        taken
    }

    /// Mount: hands these blocks out again if nothing live is in them. Gives their number.
    pub(crate) fn lift_fence(&mut self, first: u32, count: u32) -> u32 {
        let idle = Bitmap::of(first, count)
            .and(&self.allocated)
            .without(&self.live);
        self.allocated.remove(&idle);
        idle.count()
    }

    /// The segment joins a journal's ring: its blocks are nobody's any more.
    pub(crate) fn become_log(&mut self) {
        assert!(self.role != Role::Log, "a segment in two rings");
        self.allocated = Bitmap::of(0, BITS);
        self.live = Bitmap::EMPTY;
        self.early = None;
        self.overlay = None;
        self.role = Role::Log;
        self.usage = SegmentUse::Log;
        self.sit_dirty = true;
    }

    /// Notes the owner of block `index` for the summary.
    pub(crate) fn set_owner(&mut self, index: u32, owner: SummaryEntry, segment_blocks: u32) {
        assert!(self.role != Role::Log, "an owner for a block of a log");
        let fresh = || Box::new(Overlay::new(segment_blocks));
        self.overlay.get_or_insert_with(fresh).set(index, owner);
    }

    /// Number of blocks that may be handed out.
    pub(crate) fn free(&self, segment_blocks: u32) -> u32 {
        Bitmap::of(0, segment_blocks)
            .without(&self.allocated)
            .count()
    }

    fn touch(&mut self, now: u64) {
        self.changed = self.changed.max(now);
        self.sit_dirty = true;
        debug_assert!(
            self.allocated.covers(&self.live),
            "a live block is not allocated"
        );
    }
}
