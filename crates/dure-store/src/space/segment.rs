//! One segment in memory: which blocks are allocated, which are live, and what the segment is for.
//!
//! **Problem.** A block must not be reused before the handle that freed it is valid, and the SIT
//! may name a block only once the handle that placed it is valid.
//!
//! **Structure.** Two bitmaps: *allocated*, which the allocator looks at, and *live*, the view of
//! valid handles that goes to the SIT.
//!
//! # Invariants
//! Live blocks are allocated. Effects of handles of different journals may be settled in the wrong
//! order: a block that a valid handle frees before the (also valid) handle that placed it was
//! settled waits in `early`, still allocated, until that one is settled too.
//!
//! **Crash.** Only `live` survives, through the SIT.
//!
//! What is settled names blocks that nodes and NAT of the medium point to: where that contradicts
//! the SIT, one of them is corrupt ([`Mismatch`]). The life of a block that dure allocates itself
//! is checked by assertions.
//!
//! Everything here is arithmetic under the segment's lock; `Segments` keeps what is known about a
//! segment outside of its lock in step.

use super::bitmap::{BITS, Bitmap};
use super::shared::Owners;
use super::summary::Overlay;
use crate::format::sit::SegmentUse;
use crate::format::summary::SummaryEntry;
use crate::format::volume::SlotCode;

/// What a segment is used for, and so which cores may allocate in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Belongs to no core: any may open it, wholly free or not.
    Closed,
    /// The open segment of a partition; others use it only when nothing else is left.
    Open,
    /// A victim of the cleaner; used for allocation only when nothing else is left.
    Cleaning,
    /// Part of a journal's ring.
    Log,
}

/// A block is not in the state that what points to it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Which block of the segment.
    pub(crate) index: u32,
    /// What is wrong with it.
    pub(crate) what: &'static str,
}

impl Mismatch {
    /// `Ok` when `wrong` is empty, else its first block.
    fn none_of(wrong: &Bitmap, what: &'static str) -> Result<(), Mismatch> {
        match wrong.iter().next() {
            None => Ok(()),
            Some(index) => Err(Mismatch { index, what }),
        }
    }
}

/// What became of blocks that a valid handle freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    /// So many are not live any more.
    pub(crate) dead: u32,
    /// So many of those may be handed out: no snapshot needs them.
    pub(crate) free: u32,
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
    /// Blocks that snapshots need: they stay allocated, live or not. `None`: there are no snapshots,
    /// or they need nothing here.
    pinned: Option<Box<Bitmap>>,
    /// Slots that name shared blocks. `None`: none was ever shared here.
    pub(crate) shared: Option<Box<Owners>>,
    /// Which cores may allocate here.
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
    pub(crate) counted: SegmentUse,
    /// Its free blocks that are counted as free in segments of data in persistent memory.
    pub(crate) counted_free: u32,
    /// Owners set since the last write of the summary.
    pub(crate) overlay: Option<Box<Overlay>>,
    /// What counts of each summary pair.
    pub(crate) summaries: [SlotCode; super::summary::PAIRS_MAX],
}

impl SegmentState {
    /// A segment that was never used.
    pub(crate) fn free_and_closed() -> SegmentState {
        SegmentState {
            allocated: Bitmap::EMPTY,
            live: Bitmap::EMPTY,
            early: None,
            pinned: None,
            shared: None,
            role: Role::Closed,
            usage: SegmentUse::Free,
            changed: 0,
            cursor: 0,
            sit_dirty: false,
            listed: true,
            counted: SegmentUse::Free,
            counted_free: 0,
            overlay: None,
            summaries: [SlotCode::Unwritten; super::summary::PAIRS_MAX],
        }
    }

    /// Mount: what the SIT says of it.
    pub(crate) fn load(
        &mut self,
        live: Bitmap,
        usage: SegmentUse,
        summaries: [SlotCode; super::summary::PAIRS_MAX],
        changed: u64,
    ) {
        assert!(self.allocated.is_empty(), "the SIT comes before all else");
        (self.allocated, self.live) = (live, live);
        // Whether it still is a log, the journal headers say.
        self.usage = match usage {
            SegmentUse::Log => SegmentUse::Data,
            usage => usage,
        };
        (self.summaries, self.changed) = (summaries, changed);
    }

    /// Takes up to `want` free blocks in a row, the first found behind the last ones taken. Returns
    /// the first block and their number; `None` when the segment is full.
    pub(crate) fn allocate(&mut self, segment_blocks: u32, want: u32) -> Option<(u32, u32)> {
        assert!(want > 0, "an allocation has at least one block");
        assert!(
            self.role != Role::Log,
            "log segments are not allocated from"
        );
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

    /// Takes all runs of at least `least` free blocks, if no task allocates here. Returns their
    /// first blocks and lengths.
    pub(crate) fn take_runs(&mut self, segment_blocks: u32, least: u32) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        if self.role != Role::Closed {
            return runs;
        }
        let mut at = 0;
        while let Some(first) = self.allocated.next_absent(at, segment_blocks) {
            let end = self.allocated.next_present(first, segment_blocks);
            at = end.unwrap_or(segment_blocks);
            if at - first >= least {
                runs.push((first, at - first));
            }
        }
        for &(first, count) in &runs {
            self.allocated.insert(&Bitmap::of(first, count));
        }
        runs
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

    /// A valid handle placed these blocks. Returns how many of them are free now, because a valid
    /// handle had freed them already.
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

    /// A valid handle freed these blocks. Those that are not live yet wait for
    /// [`SegmentState::settle_live`].
    ///
    /// # Errors
    /// The first block that cannot be freed; nothing has changed then.
    pub(crate) fn settle_free(
        &mut self,
        first: u32,
        count: u32,
        now: u64,
    ) -> Result<Freed, Mismatch> {
        let run = Bitmap::of(first, count);
        if self.role == Role::Log {
            return Err(Mismatch {
                index: first,
                what: "a file frees it, but it is part of a log",
            });
        }
        let unallocated = run.without(&self.allocated);
        Mismatch::none_of(&unallocated, "a file frees it, but it is free")?;
        let freed = run.and(&self.live);
        let early = run.without(&self.live);
        if !early.is_empty() {
            if let Some(waiting) = self.early.as_deref() {
                Mismatch::none_of(&waiting.and(&early), "files free it twice")?;
            }
            self.early.get_or_insert_default().insert(&early);
        }
        self.live.remove(&freed);
        let free = self.free_unpinned(&freed);
        self.touch(now);
        Ok(Freed {
            dead: freed.count(),
            free,
        })
    }

    /// These blocks are dead: those that no snapshot needs may be handed out. Returns how many.
    fn free_unpinned(&mut self, dead: &Bitmap) -> u32 {
        let free = match self.pinned.as_deref() {
            None => *dead,
            Some(pinned) => dead.without(pinned),
        };
        self.allocated.remove(&free);
        free.count()
    }

    /// Blocks whose content counts: live ones, and those that snapshots need.
    pub(crate) fn in_use(&self) -> Bitmap {
        let mut blocks = self.live;
        if let Some(pinned) = self.pinned.as_deref() {
            blocks.insert(pinned);
        }
        blocks
    }

    /// Whether snapshots need something here.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Whether several slots name this block.
    pub(crate) fn is_shared(&self, index: u32) -> bool {
        let shared = self.shared.as_deref();
        shared.is_some_and(|shared| shared.is_shared(index))
    }

    /// Whether something here has to stay where it is: snapshots need it, or several slots name it.
    pub(crate) fn is_fixed(&self) -> bool {
        let shared = self.shared.as_deref();
        self.is_pinned() || shared.is_some_and(|shared| shared.shared() > 0)
    }

    /// Blocks that only snapshots need.
    pub(crate) fn pinned_only(&self) -> u32 {
        let pinned = self.pinned.as_deref();
        pinned.map_or(0, |pinned| pinned.without(&self.live).count())
    }

    /// Snapshots need these blocks. Returns how many of them were not allocated before.
    pub(crate) fn pin(&mut self, blocks: &Bitmap) -> u32 {
        if blocks.is_empty() {
            return 0;
        }
        let taken = blocks.without(&self.allocated).count();
        self.allocated.insert(blocks);
        self.pinned.get_or_insert_default().insert(blocks);
        taken
    }

    /// Snapshots do not need this block any more; it stays allocated until
    /// [`SegmentState::release`].
    pub(crate) fn unpin(&mut self, index: u32) {
        if let Some(pinned) = self.pinned.as_deref_mut() {
            pinned.remove(&Bitmap::of(index, 1));
            if pinned.is_empty() {
                self.pinned = None;
            }
        }
    }

    /// Snapshots need these blocks, in place of those before. Returns how many are free now.
    pub(crate) fn pin_only(&mut self, blocks: &Bitmap) -> u32 {
        let Some(before) = self.pinned.take() else {
            return 0;
        };
        let kept = before.and(blocks);
        if !kept.is_empty() {
            self.pinned = Some(Box::new(kept));
        }
        let dead = before.without(&kept).without(&self.live);
        self.free_unpinned(&dead)
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

    /// Nothing points to this block any more; it stays allocated until [`SegmentState::release`].
    /// Says whether a snapshot needs it: then it is not to be released.
    ///
    /// # Errors
    /// The block, when it is not live; `what` says so.
    pub(crate) fn retire(
        &mut self,
        index: u32,
        now: u64,
        what: &'static str,
    ) -> Result<bool, Mismatch> {
        if !self.live.contains(index) {
            return Err(Mismatch { index, what });
        }
        self.live.remove(&Bitmap::of(index, 1));
        self.touch(now);
        let pinned = self.pinned.as_deref();
        Ok(pinned.is_some_and(|pinned| pinned.contains(index)))
    }

    /// Mount: these blocks are live. Returns how many of them were not allocated before.
    pub(crate) fn mend_live(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let taken = self.fence(first, count);
        let run = Bitmap::of(first, count);
        if !self.live.covers(&run) {
            self.live.insert(&run);
            self.touch(now);
        }
        taken
    }

    /// Mount: these blocks are free. Returns how many of them were allocated before.
    pub(crate) fn mend_dead(&mut self, first: u32, count: u32, now: u64) -> u32 {
        let run = Bitmap::of(first, count);
        let given = self.allocated.and(&run);
        if !self.live.and(&run).is_empty() {
            self.live.remove(&run);
            self.touch(now);
        }
        self.free_unpinned(&given)
    }

    /// Mount: these blocks must not be handed out. Returns how many of them were not allocated
    /// before.
    pub(crate) fn fence(&mut self, first: u32, count: u32) -> u32 {
        let run = Bitmap::of(first, count);
        let taken = run.without(&self.allocated).count();
        self.allocated.insert(&run);
        taken
    }

    /// Mount: makes these blocks available again if nothing live is in them. Returns how many.
    pub(crate) fn lift_fence(&mut self, first: u32, count: u32) -> u32 {
        let idle = Bitmap::of(first, count)
            .and(&self.allocated)
            .without(&self.live);
        self.free_unpinned(&idle)
    }

    /// The segment joins a journal's ring: no file and no node owns its blocks any more.
    pub(crate) fn become_log(&mut self) {
        assert!(self.role != Role::Log, "a segment is in one ring at most");
        self.allocated = Bitmap::of(0, BITS);
        self.live = Bitmap::EMPTY;
        self.early = None;
        self.overlay = None;
        self.role = Role::Log;
        self.usage = SegmentUse::Log;
        self.sit_dirty = true;
    }

    /// The segment has left its ring, and no durable header lists it: all of it is free.
    pub(crate) fn leave_log(&mut self) {
        assert!(self.role == Role::Log, "the segment is in a ring");
        self.allocated = Bitmap::EMPTY;
        self.role = Role::Closed;
        self.cursor = 0;
        self.sit_dirty = true;
    }

    /// Notes the owner of block `index` for the summary.
    pub(crate) fn set_owner(&mut self, index: u32, owner: SummaryEntry, segment_blocks: u32) {
        assert!(self.role != Role::Log, "a block of a log has no owner");
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
            "every live block is allocated"
        );
    }
}
