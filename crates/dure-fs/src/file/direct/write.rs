//! Writing to persistent memory.
//!
//! **Structure.** A write goes in steps of at most 64 pages, each of which is one operation: find
//! the slots of its pages, make the content of those of which only a part is written, reserve and
//! take blocks, copy everything to them, then name them in one operation with the size and the
//! times. All of it under the inode's write-back lock, the copies without the inode's lock. Tasks
//! that overwrite pages of a contended file share both ([`overwrite`]).
//!
//! # Invariants
//! Copies go to blocks that no slot names, or whose slot says "unwritten". A step that fails has
//! changed nothing. Bytes of a page behind the end of the file are zero: a page of which a part is
//! written keeps the rest. Steps of one call follow each other with no other write, truncate or
//! allocation between them.
//!
//! **On a crash** a step is there wholly, or not at all: [`Files::write_held`] has the order.

mod overwrite;
mod times;

use std::ops::Range;

use dure_block::crc32c::crc32c;
use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::frames::{Fill, Frame};
use dure_store::op::Op;
use dure_store::placement::{Target, Tier};
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::{Arc, CoreId};
use smallvec::SmallVec;

use crate::file::Files;
use crate::file::bytes::pages_of;
use crate::file::map::{FILE_BYTES_MAX, MapEdit};
use crate::file::placing::{Needs, Plan};
use crate::file::ranges::Range as HeldRange;
use crate::file::state::Stamp;
use crate::file::write::Room;
use crate::inode::Inode;
use crate::quota::Charged;
use crate::volume::RangeRule;

use overwrite::is_overwrite;

/// Pages of one step.
const STEP_PAGES: u64 = 64;
/// Pages of one step of a write that is done wholly or not at all: 1 MiB at any offset.
const WHOLE_PAGES: u64 = 257;

/// The bytes of a step, and where they go.
#[derive(Clone, Copy, Debug)]
struct Bytes<'d> {
    offset: u64,
    data: &'d [u8],
}

/// Pages of which a step writes a part, with what they are to hold: the first and the last.
type Edges = SmallVec<[(u64, Frame); 2]>;

/// Blocks that are reserved. What is left of them when it is dropped goes back.
#[derive(Debug)]
struct Reserved<'v> {
    files: &'v Files,
    core: CoreId,
    blocks: u32,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.files.unreserve(self.core, self.blocks);
    }
}

impl Bytes<'_> {
    fn end(&self) -> u64 {
        self.offset + to_u64(self.data.len())
    }

    fn pages(&self) -> Range<u64> {
        pages_of(self.offset, self.data.len())
    }

    /// The bytes of a page that the step has, as a range of the page and one of the step's.
    fn of_page(&self, page: u64) -> (Range<usize>, Range<usize>) {
        let start = page * BLOCK_BYTES_U64;
        let (from, to) = (
            self.offset.max(start),
            self.end().min(start + BLOCK_BYTES_U64),
        );
        let within = |origin: u64| to_usize(from - origin)..to_usize(to - origin);
        (within(start), within(self.offset))
    }
}

impl Files {
    /// [`Body::write`](crate::file::body::Body::write).
    pub(in crate::file) fn write_direct(
        &self,
        (inode, range): (&Arc<Inode>, Option<HeldRange<'_>>),
        (offset, data): (u64, &[u8]),
        room: Room,
        stamp: Stamp,
    ) -> Result<usize> {
        if let Some(range) = &range
            && self.rewrite_shared(inode, range, Bytes { offset, data }, stamp)
        {
            return Ok(data.len());
        }
        let free = inode.try_lock_writeback();
        let waited = free.is_none();
        let held = free.unwrap_or_else(|| inode.lock_writeback());
        self.finish_cut(inode)?;
        let written = self.write_held(inode, room, (offset, data), stamp);
        // A task that writes again and again has the lock back before those that sleep are awake: it
        // sees to it that they need not come first.
        let contended =
            waited || held.is_awaited() || self.options.rules.ranges != RangeRule::WhenContended;
        if contended && !inode.ranges().are_locked() {
            // After the last change: from now on overwrites share the file.
            inode.make_contended(&mut inode.state().write_keep_cached(), self);
        }
        drop(held);
        written
    }

    /// [`Body::append`](crate::file::body::Body::append).
    pub(in crate::file) fn append_direct(
        &self,
        inode: &Arc<Inode>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        let end = inode.state().read().file().size();
        if to_u64(data.len()) > FILE_BYTES_MAX - end {
            return Err(Error::TooLarge);
        }
        let done = self.write_held(inode, Room::Part, (end, data), Stamp::Set)?;
        Ok((end, done))
    }

    /// Writes in steps. The caller holds the write-back mutex, and no truncate is half done.
    ///
    /// | step | crash | what is there |
    /// |---|---|---|
    /// | pages copied to free blocks | during it | the old slots; the blocks are free |
    /// | fence | after it | the same |
    /// | the operation joins | after it | the same, until its record is fenced |
    /// | record and fence (`strict`), or a later commit | after it | all of the step |
    /// | old blocks become free | after it | all of the step, as these are not named any more |
    pub(super) fn write_held(
        &self,
        inode: &Arc<Inode>,
        room: Room,
        (offset, data): (u64, &[u8]),
        stamp: Stamp,
    ) -> Result<usize> {
        let mut done = 0;
        let mut step = match room {
            Room::Part => STEP_PAGES,
            Room::Whole | Room::Promised => WHOLE_PAGES,
        };
        while done < data.len() {
            let at = offset + to_u64(done);
            let end = (at / BLOCK_BYTES_U64 + step) * BLOCK_BYTES_U64;
            let len = (data.len() - done).min(to_usize(end - at));
            let bytes = Bytes {
                offset: at,
                data: &data[done..done + len],
            };
            match self.write_bytes(inode, room, bytes, stamp) {
                Ok(()) => done += len,
                // The last free blocks may do for a part.
                Err(Error::NoSpace { .. } | Error::Quota { .. })
                    if step > 1
                        && (room.takes_parts()
                            || self.is_rewrite(inode, at, offset + to_u64(data.len()))) =>
                {
                    step /= 4;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// One step.
    fn write_bytes(&self, inode: &Inode, room: Room, bytes: Bytes<'_>, stamp: Stamp) -> Result<()> {
        let core = self.store.partition();
        let mut edges = Edges::new();
        let written = self
            .plan_bytes(inode, bytes, &mut edges)
            .and_then(|(plan, adds, holes)| {
                let class = match adds {
                    true => room.class(),
                    false => OpClass::Rewrite,
                };
                let charged = self.charge(inode, holes)?;
                self.write_plan((inode, bytes), &edges, (plan, class, charged), stamp)
            });
        for (_, frame) in edges {
            self.pages.give_frame(core, frame);
        }
        written
    }

    /// Finds where the pages of a step are to go, and puts the pages together of which it writes a
    /// part. Also says whether it takes more blocks than it gives back,
    /// and how many holes it fills.
    fn plan_bytes(
        &self,
        inode: &Inode,
        bytes: Bytes<'_>,
        edges: &mut Edges,
    ) -> Result<(Plan, bool, u32)> {
        let (mut adds, mut holes) = (false, 0);
        // Shared: the cleaner takes no block away meanwhile.
        let _state = inode.state().read();
        let Range { start, end } = bytes.pages();
        let count = to_usize(end - start);
        let pages = (0..count).map(|n| start + to_u64(n));
        let plan = self.plan(inode, pages, |page, slot| {
            holes += u32::from(slot.is_hole());
            adds |= slot.is_hole() || self.store.space.is_shared(slot.block());
            let (within, part) = bytes.of_page(page);
            let part = &bytes.data[part];
            if part.len() == BLOCK_BYTES {
                return Ok(crc32c(part));
            }
            let frame = self.merge(inode, (page, slot), (within, part))?;
            let crc = crc32c(frame.bytes());
            edges.push((page, frame));
            Ok(crc)
        })?;
        Ok((plan, adds, holes))
    }

    /// The page as it is, with `part` in it.
    fn merge(
        &self,
        inode: &Inode,
        (page, slot): (u64, Slot),
        (within, part): (Range<usize>, &[u8]),
    ) -> Result<Frame> {
        let core = self.store.partition();
        let mut frame = self.pages.frame(core, Fill::Any);
        if let Err(error) = self.read_page(inode, page, &slot, frame.bytes_mut()) {
            self.pages.give_frame(core, frame);
            return Err(error);
        }
        frame.bytes_mut()[within].copy_from_slice(part);
        Ok(frame)
    }

    /// Carries a plan out: reserves, allocates, copies, names. On an error nothing has changed.
    fn write_plan(
        &self,
        (inode, bytes): (&Inode, Bytes<'_>),
        edges: &Edges,
        (mut plan, class, mut charged): (Plan, OpClass, Charged<'_>),
        stamp: Stamp,
    ) -> Result<()> {
        let core = self.store.partition();
        let mut reserved = self.reserve_plan(core, &plan, class)?;
        let targets = &mut plan.targets[..];
        let written = self
            .store
            .placement
            .allocate(core, targets, Tier::Home)
            .and_then(|()| {
                let taken = (&mut reserved, &mut charged);
                self.copy_and_name((inode, bytes), edges, &mut plan, (taken, stamp))
            });
        match written {
            // Its blocks are in use.
            Ok(()) => reserved.blocks = 0,
            // They are reserved again.
            Err(_) => self.store.placement.release(&plan.targets),
        }
        written
    }

    /// Blocks for a plan, its new nodes included. On a full volume pages that have a block can be
    /// rewritten all the same: the old block is freed.
    fn reserve_plan(&self, core: CoreId, plan: &Plan, class: OpClass) -> Result<Reserved<'_>> {
        let elsewhere = plan.targets.iter().filter(|target| !target.is_in_place());
        let pages = u32::try_from(elsewhere.count()).expect("a step has few pages");
        let blocks = pages + plan.needs.new;
        if !self.store.space.reserve(core, blocks, OpClass::Normal) {
            if class == OpClass::Rewrite && u64::from(blocks) > self.store.space.rewrites_at_once()
            {
                return Err(Error::NoSpace {
                    what: "blocks to rewrite so many pages at once",
                });
            }
            self.store.reserve_blocks(core, blocks, class)?;
        }
        Ok(Reserved {
            files: self,
            core,
            blocks,
        })
    }

    /// Copies the pages of a plan to its blocks, and names them. The nodes that the operation makes
    /// take their blocks from `reserved`.
    fn copy_and_name(
        &self,
        (inode, bytes): (&Inode, Bytes<'_>),
        edges: &Edges,
        plan: &mut Plan,
        ((reserved, charged), stamp): ((&mut Reserved<'_>, &mut Charged<'_>), Stamp),
    ) -> Result<()> {
        // Crash scenario if the operation joined first: its record is fenced, and named as durable
        // by the next one; the copy is not complete, and the page is neither old nor new.
        let copies_first = self.options.rules.data_before_log.holds();
        if copies_first {
            self.copy_pages(bytes, edges, &mut plan.targets)?;
        }
        let Needs { rewritten, new } = plan.needs;
        let op = self.store.op_holding(OpKind::Write, (rewritten, new), 0)?;
        reserved.blocks -= new;
        self.name_pages(op, (inode, bytes), &plan.targets, (charged, stamp))?;
        if !copies_first {
            self.copy_pages(bytes, edges, &mut plan.targets)?;
        }
        Ok(())
    }

    /// Copies the content of pages to the blocks of their targets.
    fn copy_pages(&self, bytes: Bytes<'_>, edges: &Edges, targets: &mut [Target]) -> Result<()> {
        let core = self.store.partition();
        let is_edge = |target: &Target| edges.iter().any(|(page, _)| *page == target.page);
        // The whole pages are one run of the caller's bytes.
        for pages in targets.chunk_by_mut(|a, b| !is_edge(a) && !is_edge(b)) {
            let (first, count) = (pages[0].page, pages.len());
            match edges.iter().find(|(page, _)| *page == first) {
                Some((_, frame)) => self.store.place_pages(core, pages, frame.bytes())?,
                None => {
                    let start = bytes.of_page(first).1.start;
                    let run = &bytes.data[start..start + count * BLOCK_BYTES];
                    self.store.place_pages(core, pages, run)?;
                }
            }
        }
        Ok(())
    }

    /// Names the blocks of pages that were copied, with the size and the times.
    fn name_pages<'v>(
        &'v self,
        mut op: Op<'v>,
        (inode, bytes): (&Inode, Bytes<'_>),
        targets: &[Target],
        (charged, stamp): (&mut Charged<'_>, Stamp),
    ) -> Result<()> {
        let mut state = inode.state().write();
        if is_overwrite(&state, bytes) && targets.iter().all(Target::is_overwrite) {
            self.name_overwrite(op, (inode, &mut state), targets, stamp)?;
            self.store.owners.add(self.store.partition(), targets.len());
            return Ok(());
        }
        let mut data = inode.data_draft(&state);
        let size = state.file().size().max(bytes.end());
        data.size = size.into();
        if stamp == Stamp::Set {
            (data.mtime, data.ctime) = (op.time(), op.time());
        }
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        for target in targets {
            edit.set(target.page, Slot::written(target.block, target.crc))?;
        }
        edit.end();
        // Nothing can fail from here on.
        let (first, last) = (&targets[0], &targets[targets.len() - 1]);
        let pages = first.page..last.page + 1;
        inode.state().seek_hint().data_comes(&pages);
        charged.hand_over(state.charge(), u32::MAX);
        inode.data_stored(&mut state, &data, op.finish());
        state.file_mut().set_size(inode.state().seek_hint(), size);
        self.store.owners.add(self.store.partition(), targets.len());
        Ok(())
    }
}
