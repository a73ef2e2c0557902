//! Overwrites: writes that only give other blocks to pages.
//!
//! **Problem.** Nothing changes but slots, and times that tick rarely: a copy of the inode's data would
//! cost more than the change. Writers of different pages of one file change different slots, and need
//! not wait for each other. **Structure.** An operation stores the bytes of its slots, and the times if
//! they are others. In a contended file it holds the range of its pages exclusively, and write-back and
//! the inode shared; else both exclusively. What else a write may change (size, holes, preallocated
//! pages, the tree) it leaves to the exclusive way, having changed nothing. Of the shared overwrites
//! within a tick of the clock one stores the times ([`super::times`]).
//!
//! # Invariants
//! These are of a contended file. The range covers whole pages and is held from the first look at
//! the old page to the end: of two writes of parts of one page the second keeps what the first
//! wrote. A task that changes the map in another way holds write-back exclusively, so size, tree
//! and cut stay as they are all the while. Readers hold the range shared, or the inode exclusively:
//! the old block is free, and perhaps another file's, once the operation is valid.
//!
//! | | core 0 overwrites page 3 | core 1 reads page 3 | core 2 makes the file shorter |
//! |---|---|---|---|
//! | 1 | range of page 3 exclusively, write-back shared | | |
//! | 2 | copies to a free block, fence | waits for the range | waits for write-back |
//! | 3 | the inode shared; names the block, commits | | |
//! | 4 | lets go | copies from the new block | |
//! | 5 | | | holds all exclusively |
//!
//! **On a crash** as of other writes ([`Files::write_held`]). That changes of an inode survive in their
//! order is said by marks: this operation depends on the last ones of data and attributes, and later
//! ones of these on it. One that holds the inode exclusively counts as the last writer of the data for
//! that ([`Op::follow`]). Those that share it have no granule in common, so theirs are noted
//! ([`Inode::overwrite_marks`]).

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::op::Op;
use dure_store::placement::{Target, Tier};
use dure_store::space::OpClass;
use dure_store::units::{to_u64, to_usize};
use dure_sync::range_lock::{Access, ByteRange};

use super::{Bytes, Edges, Reserved, STEP_PAGES, times};
use crate::file::Files;
use crate::file::map::MapOverwrite;
use crate::file::placing::Plan;
use crate::file::ranges::Range as HeldRange;
use crate::file::state::Stamp;
use crate::inode::{Inode, InodeState};
use crate::volume::RangeRule;

impl Files {
    /// Overwrites pages under the shared inode lock. False: nothing has changed, the write is one
    /// for the exclusive lock, or failed.
    pub(super) fn rewrite_shared(
        &self,
        inode: &Inode,
        range: &HeldRange<'_>,
        bytes: Bytes<'_>,
        stamp: Stamp,
    ) -> bool {
        let (offset, len) = self.body.claim(bytes.offset, bytes.data.len());
        debug_assert!(
            ByteRange::new(offset, to_u64(len))
                .is_some_and(|bytes| range.allows(bytes, Access::Exclusive))
                || matches!(self.options.rules.ranges, RangeRule::Broken(_)),
            "pages are overwritten whose range is not held"
        );
        let pages = bytes.pages();
        if pages.end - pages.start > STEP_PAGES {
            return false;
        }
        let Some(_writeback) = inode.share_writeback() else {
            return false;
        };
        if !is_overwrite(&inode.state().read(), bytes) {
            return false;
        }
        let core = self.store.partition();
        let mut edges = Edges::new();
        let plan = self.plan_bytes(inode, bytes, &mut edges);
        let done = plan.is_ok_and(|(mut plan, adds, _)| {
            let elsewhere = !plan.targets.iter().any(Target::is_in_place);
            !adds && elsewhere && self.overwrite_plan((inode, bytes), &edges, &mut plan, stamp)
        });
        for (_, frame) in edges {
            self.pages.give_frame(core, frame);
        }
        done
    }

    /// Carries a plan out. False: nothing has changed.
    fn overwrite_plan(
        &self,
        (inode, bytes): (&Inode, Bytes<'_>),
        edges: &Edges,
        plan: &mut Plan,
        stamp: Stamp,
    ) -> bool {
        let core = self.store.partition();
        let blocks = u32::try_from(plan.targets.len()).expect("a step has few pages");
        if !self.store.space.reserve(core, blocks, OpClass::Normal) {
            return false;
        }
        let mut reserved = Reserved {
            files: self,
            core,
            blocks,
        };
        let allocated = self
            .store
            .placement
            .allocate(core, &mut plan.targets, Tier::Home);
        let named = allocated
            .and_then(|()| self.copy_pages(bytes, edges, &mut plan.targets))
            .and_then(|()| {
                self.store
                    .op_holding(OpKind::Write, (plan.needs.rewritten, 0), 0)
            })
            .and_then(|op| self.rename_pages(op, (inode, bytes), &plan.targets, stamp));
        match named {
            // Its blocks are in use.
            Ok(true) => reserved.blocks = 0,
            // They are reserved again.
            _ => self.store.placement.release(&plan.targets),
        }
        matches!(named, Ok(true))
    }

    /// Names the blocks of pages that were copied.
    fn rename_pages<'v>(
        &'v self,
        mut op: Op<'v>,
        (inode, bytes): (&Inode, Bytes<'_>),
        targets: &[Target],
        stamp: Stamp,
    ) -> Result<bool> {
        let state = inode.state().read();
        if !is_overwrite(&state, bytes) || !self.edit_slots(&mut op, inode, targets)? {
            return Ok(false);
        }
        // Crash scenario without: a file is appended to, and overwritten within the same tick of the
        // clock by another core, whose log survives: the content is there, and size and time are not.
        if op.marks_reads() {
            op.depends_on(inode.data_writer());
        }
        let time = inode.time_to_store(self, stamp);
        if let Some(time) = &time {
            time.store(&mut op, inode);
        }
        // Nothing can fail from here on.
        let journals = to_usize(u64::from(self.store.layout.journals));
        let mark = op.finish();
        inode.overwritten(journals, mark);
        if let Some(time) = time {
            time.stored(inode, mark);
        }
        self.store.owners.add(self.store.partition(), targets.len());
        Ok(true)
    }

    /// Names the blocks of pages that were copied and had a block before, in a write that leaves the
    /// size as it is. The caller holds write-back and the inode exclusively.
    pub(super) fn name_overwrite<'v>(
        &'v self,
        mut op: Op<'v>,
        (inode, state): (&Inode, &mut InodeState),
        targets: &[Target],
        stamp: Stamp,
    ) -> Result<()> {
        let edited = self.edit_slots(&mut op, inode, targets)?;
        assert!(edited, "pages keep a block while write-back is held");
        let time = (stamp == Stamp::Set).then(|| op.time());
        let time = time.filter(|time| !inode.has_times(*time));
        if let Some(time) = time {
            times::store(&mut op, inode, time);
        }
        // Crash scenarios without, each with another core whose log survives: a file is appended to,
        // then overwritten within the same tick of the clock: the content is there, and size and time
        // are not; or it is overwritten, then renamed or appended to: name or size are there, and the
        // content is not.
        op.follow(&inode.node, inode.ino.data_index());
        // Nothing can fail from here on.
        let mark = op.finish();
        inode.data_granule_stored(mark);
        state.note_mark(mark);
        if let Some(time) = time {
            inode.access_time().change_stored(time);
        }
        Ok(())
    }

    /// Lets `op` change the slots of pages that have a block, and makes it depend on earlier changes
    /// of the attributes. False: one has none; the operation is to be dropped.
    fn edit_slots<'v>(
        &'v self,
        op: &mut Op<'v>,
        inode: &Inode,
        targets: &[Target],
    ) -> Result<bool> {
        let mut edit = MapOverwrite::new(self, op, inode);
        for target in targets {
            if !edit.set(target.page, Slot::written(target.block, target.crc))? {
                return Ok(false);
            }
        }
        edit.end();
        // Crash scenario without: a file loses its set-id bits, by an operation in another core's
        // log, and gets new content; the log of these bits is lost, the content survives with them.
        inode.depends(op);
        Ok(true)
    }
}

/// Whether a write leaves the size as it is, and no truncate is half done.
pub(super) fn is_overwrite(state: &InodeState, bytes: Bytes<'_>) -> bool {
    let file = state.file();
    bytes.end() <= file.size() && file.cut.is_none()
}
