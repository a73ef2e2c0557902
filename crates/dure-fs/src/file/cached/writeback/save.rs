//! A batch on its way to blocks, or into the log, and the operation that stores its slots.

use dure_store::OpKind;
use dure_store::data_log::Room;
use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::frames::Fill;
use dure_store::op::Op;
use dure_store::placement::{Target, Tier};
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, to_usize};
use dure_sync::{Arc, CoreId};

use super::batch::{Batch, Copies};
use super::{Left, Way};
use crate::file::Files;
use crate::file::map::MapEdit;
use crate::file::placing::{Needs, Plan};
use crate::file::state::FileState;
use crate::inode::Inode;
use crate::volume::DataMode;

/// Checkpoints a batch makes at most to get room in the data log's table of blocks.
const TABLE_ROUNDS: u32 = 3;

impl Files {
    /// Writes a batch and logs its slots. Returns what is left. On an error nothing has changed.
    pub(super) fn save(
        &self,
        inode: &Arc<Inode>,
        batch: &mut Batch,
        plan: Plan,
        (way, tier): (Way, Tier),
    ) -> Result<Left> {
        let core = self.store.partition();
        let Plan { mut targets, needs } = plan;
        let saved = self
            .store
            .placement
            .allocate(core, &mut targets, tier)
            .and_then(|()| self.save_to(core, inode, batch, (&mut targets, needs), way));
        self.end_targets(tier, &targets, saved.is_ok());
        saved
    }

    /// The slots of these targets are logged, or never will be.
    pub(super) fn end_targets(&self, tier: Tier, targets: &[Target], are_logged: bool) {
        match are_logged {
            true => self.unreserve_in_place(targets),
            false => self.store.placement.release(targets),
        }
        self.moves_if_many(tier, targets);
    }

    /// Pages that went to persistent memory are to move to the device once they are many.
    pub(super) fn moves_if_many(&self, tier: Tier, targets: &[Target]) {
        if tier == Tier::Memory {
            self.want_moves_if_many(self.store.partition(), targets);
        }
    }

    /// Preallocated blocks were filled in place, so the reserved ones are not needed.
    pub(super) fn unreserve_in_place(&self, targets: &[Target]) {
        let spare = targets.iter().filter(|target| target.is_in_place()).count();
        let spare = u32::try_from(spare).expect("a batch has few pages");
        self.unreserve(self.store.partition(), spare);
    }

    /// Like [`Files::save`], to blocks that are allocated.
    fn save_to(
        &self,
        core: CoreId,
        inode: &Inode,
        batch: &mut Batch,
        (targets, needs): (&mut [Target], Needs),
        way: Way,
    ) -> Result<Left> {
        if self.options.data == DataMode::Journal {
            let room = self.room_for_all(targets.len())?;
            return self.log_slots(inode, batch, targets, needs, Some(room));
        }
        if let Some(room) = self.room_in_log(way, targets.len(), needs) {
            return self.log_slots(inode, batch, targets, needs, Some(room));
        }
        let pages = targets.len();
        if !self.options.rules.data_before_log.holds() {
            let left = self.log_slots(inode, batch, targets, needs, None)?;
            let bytes = batch.copies.bytes(pages);
            self.store.placement.write(core, targets, bytes)?;
            return Ok(left);
        }
        self.store
            .place_pages(core, targets, batch.copies.bytes(pages))?;
        self.log_slots(inode, batch, targets, needs, None)
    }

    /// Begins the operation of a batch. Blocks for new nodes come from those the file holds; also
    /// returns how many.
    fn op_for_batch(&self, inode: &Inode, needs: Needs, pages: usize) -> Result<(Op<'_>, u32)> {
        let held = match needs.new {
            0 => 0,
            new => inode.state().write_keep_cached().file_mut().room.take(new),
        };
        let nodes = (needs.all() - held, held);
        match self.store.op_holding(OpKind::Write, nodes, pages) {
            Ok(op) => Ok((op, held)),
            Err(error) => {
                if held > 0 {
                    inode.state().write_keep_cached().file_mut().room.give(held);
                }
                Err(error)
            }
        }
    }

    /// Logs the slots of a batch; with `room` its data as well, which then is in the data log only.
    pub(super) fn log_slots(
        &self,
        inode: &Inode,
        batch: &mut Batch,
        targets: &[Target],
        needs: Needs,
        room: Option<Room<'_>>,
    ) -> Result<Left> {
        let pages = if room.is_some() { targets.len() } else { 0 };
        let (op, held) = self.op_for_batch(inode, needs, pages)?;
        let logged = self.finish_batch(op, inode, batch, targets, room);
        // What the operation held went back with it: the pages are dirty again and need it.
        if logged.is_err()
            && held > 0
            && self
                .store
                .space
                .reserve(self.store.partition(), held, OpClass::Delete)
        {
            inode.state().write_keep_cached().file_mut().room.give(held);
        }
        logged
    }

    /// Like [`Files::log_slots`], in an operation that has begun.
    fn finish_batch<'v>(
        &'v self,
        mut op: Op<'v>,
        inode: &Inode,
        batch: &mut Batch,
        targets: &[Target],
        room: Option<Room<'_>>,
    ) -> Result<Left> {
        let mut state = inode.state().write_keep_cached();
        let shown = inode.data_part(&state);
        let mut data = inode.data_draft(&state);
        data.size = FileState::loggable_size(&data, batch.size, batch.next);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        for (n, target) in targets.iter().enumerate() {
            let slot = match (self.options.data, &room) {
                (DataMode::Writeback, None) => Slot::written_unordered(target.block, target.crc),
                _ => Slot::written(target.block, target.crc),
            };
            match room {
                Some(_) => {
                    let bytes = &batch.copies.bytes(targets.len())[n * BLOCK_BYTES..];
                    edit.set_with_data(target.page, slot, &bytes[..BLOCK_BYTES])?;
                }
                None => drop(edit.set(target.page, slot)?),
            }
        }
        edit.end();
        // Nothing can fail from here on. The content must be in the table before the handle joins:
        // a checkpoint with the handle in its cut lets the log go, and writes to its blocks what it
        // finds in the table.
        if let Some(room) = room {
            self.keep_logged(&mut batch.copies, targets, room);
        }
        inode.data_stored(&mut state, &data, op.finish());
        let absorbs = self.store.absorb().is_some();
        for (&page, target) in batch.pages.iter().zip(targets) {
            let pages = &mut state.file_mut().pages;
            pages.end_writing(page);
            if absorbs {
                pages.set_cheap(page, self.store.layout.is_in_nvm(target.block));
            }
        }
        let written = u32::try_from(batch.pages.len()).expect("a batch has few pages");
        self.pages
            .dirty_pages
            .release(self.store.partition(), state.file(), written);
        self.unreserve(self.store.partition(), state.file_mut().spare_room());
        self.cap_charge(state.file_mut());
        inode.hide_unless(&state, &shown);
        Ok(Left::of(&state))
    }

    /// Room for a batch that is to go into the log, if it may: it is short, and fits a handle and
    /// the data log's table.
    fn room_in_log(&self, way: Way, pages: usize, needs: Needs) -> Option<Room<'_>> {
        let short = pages <= to_usize(self.options.pages_in_log.into());
        let fits = way == Way::Log && short && pages <= self.store.data_pages_max(needs.all());
        if !fits {
            return None;
        }
        // Does not wait for room: pages that find none are not rewritten so soon that a place in
        // the table would spare them a write.
        self.store
            .data_log
            .room_that_pays(self.store.partition(), pages)
    }

    /// Room for a batch that has to go into the log (`data=journal`): a checkpoint empties the
    /// table. No inode lock is held.
    fn room_for_all(&self, pages: usize) -> Result<Room<'_>> {
        let core = self.store.partition();
        for _ in 0..TABLE_ROUNDS {
            if let Some(room) = self.store.data_log.room_of_all(core, pages) {
                return Ok(room);
            }
            self.store.checkpoint()?;
        }
        // Other tasks took the room each time. The size of the log bounds the table, too.
        Ok(self.store.data_log.room_beyond(core, pages))
    }

    /// Moves the copies of a batch into the data log's table.
    fn keep_logged(&self, copies: &mut Copies, targets: &[Target], mut room: Room<'_>) {
        let core = self.store.partition();
        match std::mem::replace(copies, Copies::Gone) {
            Copies::One(frame) => self
                .store
                .data_log
                .insert(&mut room, targets[0].block, frame),
            Copies::Many(buf) => {
                let pages = buf.as_slice().chunks_exact(BLOCK_BYTES);
                for (target, bytes) in targets.iter().zip(pages) {
                    let mut frame = self.pages.frame(core, Fill::Any);
                    frame.bytes_mut().copy_from_slice(bytes);
                    self.store.data_log.insert(&mut room, target.block, frame);
                }
                *copies = Copies::Many(buf);
            }
            Copies::Gone => unreachable!("copies are given away once"),
        }
    }
}
