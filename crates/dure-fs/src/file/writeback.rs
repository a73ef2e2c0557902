//! Write-back: dirty pages become blocks, and slots that name them.
//!
//! **Structure.** Under the inode's write-back mutex, in batches: take dirty pages (inode
//! exclusive) and copy them (inode shared, concurrently with readers and with writers of other
//! pages), find their slots, allocate blocks, write the copies in long runs ([`super::blocks`]),
//! then one operation stores the slots with their CRCs, the size and the times.
//!
//! # Invariants
//! Data is written out of place, or into a block that was preallocated and never counted: a page is
//! old or new after a crash, never a mixture. The CRC is of the private copy, so it is of what was
//! written (model case 12). The logged size never covers a page that is not on the device: batches
//! go upwards and a batch logs no size beyond the next dirty page. A failed batch leaves its pages
//! dirty, with their reserved blocks.
//!
//! **On a crash** before the operation is durable the old slots count, and the new blocks are free;
//! the rule `flush=two` also keeps the log from being durable before the data.

use std::ops::Range;

use dure_block::BlockBuf;
use dure_store::OpKind;
use dure_store::data_log::Room;
use dure_store::error::Result;
use dure_store::format::slot::{DIRECT_SLOTS, Slot};
use dure_store::frames::{Fill, Frame};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, nth_core, to_u64, to_usize};
use dure_sync::{Arc, CoreId, RwLockWriteGuard};

use super::blocks::Target;
use super::map::path::{HEIGHT_MAX, node_start};
use super::map::room::extend;
use super::map::{MapEdit, MapReader, NodePlaces};
use super::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::volume::{DataMode, FlushRule, Volume};

/// Pages of one batch: 1 MiB of private copies.
pub(super) const BATCH_PAGES: usize = 256;
/// Leaves one batch touches at most; bounds the nodes its operation makes dirty.
const BATCH_LEAVES: usize = 16;
/// Nodes that a batch within one leaf touches at most: the inode's, the leaf, new roots, a new
/// branch.
const ONE_LEAF_NODES: u32 = 2 + 2 * HEIGHT_MAX;
/// Checkpoints a batch makes at most to get room in the data log's table of blocks.
const TABLE_ROUNDS: u32 = 3;
/// Log bytes a page may take besides its slot: two notes about blocks.
const NOTE_BYTES: usize = 56;
/// Log bytes an operation is given per node.
const NODE_RECORD_BYTES: usize = 4400;

/// How much write-back is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Pages, and the size they need.
    Data,
    /// Times too.
    All,
}

/// Where data goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To its blocks: for write-back that no caller waits for.
    Blocks,
    /// Into the log together with the slots, if it is little: one device write before the flush of
    /// a fsync instead of two (see [`dure_store::data_log`]).
    Log,
}

/// Private copies of pages, in page order.
#[derive(Debug)]
enum Copies {
    One(Frame),
    Many(BlockBuf),
    /// The only one was given away.
    Gone,
}

impl Copies {
    fn bytes(&self, pages: usize) -> &[u8] {
        match self {
            Copies::One(frame) => frame.bytes(),
            Copies::Many(buf) => &buf.as_slice()[..pages * BLOCK_BYTES],
            Copies::Gone => {
                unreachable!("the copy was given to the data log, and is asked for again")
            }
        }
    }
}

/// How long a batch may be.
#[derive(Clone, Copy, Debug)]
struct Limits {
    pages: usize,
    leaves: usize,
}

/// Nodes that the operation of a batch makes dirty, at most.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// Those that exist: their images come back with the next checkpoint.
    rewritten: u32,
    /// Those it makes.
    new: u32,
}

impl Needs {
    fn all(self) -> u32 {
        self.rewritten + self.new
    }
}

/// Pages on their way to the device.
#[derive(Debug)]
struct Batch {
    pages: Vec<u64>,
    copies: Copies,
    /// The file's size when they were copied.
    size: u64,
    /// The first dirty page behind them.
    next: Option<u64>,
}

impl Volume {
    /// Writes all of an inode's dirty pages, its size and times.
    ///
    /// # Errors
    /// `NoSpace`, `Stopped`, device errors; what was not written stays dirty.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_back_by(inode, Way::Blocks, Extent::All)
            .map(|_| ())
    }

    /// Writes all dirty pages, and the size they need. Returns how many.
    ///
    /// # Errors
    /// As [`Volume::write_back`].
    pub(crate) fn write_back_by(
        &self,
        inode: &Arc<Inode>,
        way: Way,
        extent: Extent,
    ) -> Result<u64> {
        {
            // While its last page is being written and is not logged, the inode does not count as
            // clean.
            let state = inode.state().read();
            if !inode.state().pages_wait() && state.file().is_clean() {
                return Ok(0);
            }
        }
        let _held = inode.writeback().lock();
        self.finish_cut(inode)?;
        self.write_back_held(inode, way, extent)
    }

    /// The same; the caller holds the write-back mutex, and no truncate is half done.
    pub(super) fn write_back_held(
        &self,
        inode: &Arc<Inode>,
        way: Way,
        extent: Extent,
    ) -> Result<u64> {
        let size = inode.state().seek_hint().size();
        let mut written = self.write_batches(inode, way)?;
        self.log_ahead(inode, extent)?;
        // A page written meanwhile into a hole below the size holds the logged size back; a second
        // round takes that page and logs the size with it; pages written later still cannot hold it
        // back.
        if self.is_behind(inode, size) {
            written += self.write_batches(inode, way)?;
            self.log_ahead(inode, extent)?;
            assert!(
                !self.is_behind(inode, size),
                "a batch of all dirty pages logs the size it has seen"
            );
        }
        self.pages
            .counters
            .written_back
            .add(i64::try_from(written).expect("a file has fewer than 2^63 pages in memory"));
        self.owners.add(self.partition(), to_usize(written));
        Ok(written)
    }

    /// Whether a crash could leave fewer bytes than `size`, which the file had and has.
    fn is_behind(&self, inode: &Inode, size: u64) -> bool {
        let state = inode.state().read();
        !state.gone && state.file().logged_size() < size.min(state.file().size())
    }

    /// Writes the dirty pages, batch by batch.
    fn write_batches(&self, inode: &Arc<Inode>, way: Way) -> Result<u64> {
        let mut written = 0;
        let (mut from, mut end) = (0, u64::MAX);
        let limits = self.batch_limits();
        while let Some(mut batch) = self.copy_dirty(inode, from..end, limits) {
            let copied = batch.pages.len();
            from = batch.pages[copied - 1] + 1;
            // What is appended from now on is not waited for.
            end = end.min(pages_up_to(batch.size));
            let more = batch.next.is_some_and(|next| next < end);
            let way = match self.options.data {
                DataMode::Journal => Way::Log,
                DataMode::Ordered | DataMode::Writeback if more => Way::Blocks,
                DataMode::Ordered | DataMode::Writeback => way,
            };
            let saved = self.save(inode, &mut batch, way);
            if saved.is_err() {
                self.give_up(inode, &batch);
            }
            self.give_copies(batch.copies);
            saved?;
            written += to_u64(copied);
            if !more {
                break;
            }
        }
        Ok(written)
    }

    /// How long a batch may be.
    fn batch_limits(&self) -> Limits {
        match self.options.data {
            DataMode::Ordered | DataMode::Writeback => Limits {
                pages: BATCH_PAGES,
                leaves: BATCH_LEAVES,
            },
            // All of it must fit one handle.
            DataMode::Journal => {
                let pages = self.data_pages_max(ONE_LEAF_NODES).min(BATCH_PAGES);
                let pages = pages.min(to_usize(self.data_log.pages_max()));
                assert!(pages > 0, "a log that takes no page");
                Limits { pages, leaves: 1 }
            }
        }
    }

    /// Copies the next dirty pages of the range and takes them in write-back.
    fn copy_dirty(&self, inode: &Inode, range: Range<u64>, limits: Limits) -> Option<Batch> {
        let core = self.partition();
        let mut held = inode.state().write_keep_cached();
        let state = &mut *held;
        let file = state.file_mut();
        // No slot may be filled beyond the logged size while a page below it is missing: a crash
        // would leave data behind the end, and a later extension would bring it to light.
        let start = range.start.min(file.logged_size() / BLOCK_BYTES_U64);
        let range = start..range.end;
        let mut pages = Vec::new();
        let mut leaves = 0;
        let mut leaf = 0;
        let mut next = file.pages.next_dirty(range.clone());
        while let Some(page) = next.filter(|&page| page < range.end && pages.len() < limits.pages) {
            let at = if page < DIRECT_SLOTS {
                0
            } else {
                node_start(page, 1)
            };
            if pages.is_empty() || at != leaf {
                leaves += 1;
                leaf = at;
                if leaves > limits.leaves {
                    break;
                }
            }
            pages.push(page);
            next = file.pages.next_dirty(page + 1..u64::MAX);
        }
        if pages.is_empty() {
            return None;
        }
        for &page in &pages {
            file.pages.begin_writing(page);
        }
        // During the copies only tasks that need the inode exclusively are kept out. Holders of the
        // shared lock write to dirty pages only, so not to these; and the pages they add are
        // pending: neither the size here nor what else is dirty changes before the last byte is
        // copied.
        let state = RwLockWriteGuard::downgrade(held);
        let file = state.file();
        let copies = match pages[..] {
            [page] => {
                let mut frame = self.pages.frame(core, Fill::Any);
                file.pages.taken(page).load(0, frame.bytes_mut());
                Copies::One(frame)
            }
            _ => {
                let mut buf = self.pages.take_scratch(core);
                for (&page, copy) in pages
                    .iter()
                    .zip(buf.as_mut_slice().chunks_exact_mut(BLOCK_BYTES))
                {
                    file.pages.taken(page).load(0, copy);
                }
                Copies::Many(buf)
            }
        };
        Some(Batch {
            pages,
            copies,
            size: file.size(),
            next,
        })
    }

    fn give_copies(&self, copies: Copies) {
        let core = self.partition();
        match copies {
            Copies::One(frame) => self.pages.frames.give(core, frame),
            Copies::Many(buf) => self.pages.give_scratch(core, buf),
            Copies::Gone => {}
        }
    }

    /// Writes a batch and logs its slots. On an error nothing has changed.
    fn save(&self, inode: &Arc<Inode>, batch: &mut Batch, way: Way) -> Result<()> {
        let core = self.partition();
        let (mut targets, needs) = self.plan(inode, batch)?;
        let saved = self
            .allocate(core, &mut targets)
            .and_then(|()| self.save_to(core, inode, batch, (&mut targets, needs), way));
        match saved {
            // Preallocated blocks were filled in place, so these reserved ones are not needed.
            Ok(()) => {
                let spare = targets.iter().filter(|target| target.is_in_place()).count();
                self.unreserve(core, u32::try_from(spare).expect("a batch has few pages"));
            }
            Err(_) => self.release(&targets),
        }
        saved
    }

    /// The same, to blocks that are allocated.
    fn save_to(
        &self,
        core: CoreId,
        inode: &Inode,
        batch: &mut Batch,
        (targets, needs): (&mut [Target], Needs),
        way: Way,
    ) -> Result<()> {
        if self.options.data == DataMode::Journal {
            let room = self.room_for_all(targets.len())?;
            return self.log_slots(inode, batch, targets, needs, Some(room));
        }
        if let Some(room) = self.room_in_log(way, targets.len(), needs) {
            return self.log_slots(inode, batch, targets, needs, Some(room));
        }
        let pages = targets.len();
        if !self.options.volume_rules.data_before_log.holds() {
            self.log_slots(inode, batch, targets, needs, None)?;
            return self.write_blocks(core, targets, batch.copies.bytes(pages));
        }
        self.write_blocks(core, targets, batch.copies.bytes(pages))?;
        if self.options.flush == FlushRule::Two {
            self.flush_data()?;
        }
        self.log_slots(inode, batch, targets, needs, None)
    }

    /// Finds the slots of the batch, and the nodes an operation on them makes dirty.
    fn plan(&self, inode: &Inode, batch: &Batch) -> Result<(Vec<Target>, Needs)> {
        let bytes = batch.copies.bytes(batch.pages.len());
        let _held = inode.state().read();
        let mut map = MapReader::new(self, inode);
        let mut rewritten = 1;
        let mut new = NodePlaces::new();
        let mut leaf = 0;
        let mut targets = Vec::with_capacity(batch.pages.len());
        for (&page, bytes) in batch.pages.iter().zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let slot = map.slot(page)?;
            targets.push(Target::new(page, slot, dure_block::crc32c::crc32c(bytes)));
            if page >= DIRECT_SLOTS && node_start(page, 1) != leaf {
                leaf = node_start(page, 1);
                // A leaf that exists, or new nodes and the index (or inode) they hang on.
                rewritten += 1;
                extend(&mut new, map.missing_nodes(leaf)?);
            }
        }
        let notes = batch.pages.len() * NOTE_BYTES / NODE_RECORD_BYTES;
        let count = |count: usize| u32::try_from(count).expect("a batch has few pages");
        let needs = Needs {
            rewritten: rewritten + count(notes),
            new: count(new.len()),
        };
        Ok((targets, needs))
    }

    /// Begins the operation of a batch. Blocks for new nodes come from those the file holds; also
    /// returns how many.
    fn op_for_batch(&self, inode: &Inode, needs: Needs, pages: usize) -> Result<(Op<'_>, u32)> {
        let held = match needs.new {
            0 => 0,
            new => inode.state().write_keep_cached().file_mut().room.take(new),
        };
        let nodes = (needs.all() - held, held);
        match self.op_holding(OpKind::Write, nodes, pages) {
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
    fn log_slots(
        &self,
        inode: &Inode,
        batch: &mut Batch,
        targets: &[Target],
        needs: Needs,
        room: Option<Room<'_>>,
    ) -> Result<()> {
        let pages = if room.is_some() { targets.len() } else { 0 };
        let (op, held) = self.op_for_batch(inode, needs, pages)?;
        let logged = self.finish_batch(op, inode, batch, targets, room);
        // What the operation held went back with it: the pages are dirty again and need it.
        if logged.is_err()
            && held > 0
            && self.space.reserve(self.partition(), held, OpClass::Delete)
        {
            inode.state().write_keep_cached().file_mut().room.give(held);
        }
        logged
    }

    /// The same in an operation that has begun.
    fn finish_batch<'v>(
        &'v self,
        mut op: Op<'v>,
        inode: &Inode,
        batch: &mut Batch,
        targets: &[Target],
        room: Option<Room<'_>>,
    ) -> Result<()> {
        let mut state = inode.state().write_keep_cached();
        let shown = inode.data_part(&state);
        let mut data = inode.data_draft(&state);
        data.size = FileState::loggable_size(&data, batch.size, batch.next);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        let bytes = batch.copies.bytes(targets.len());
        for (target, bytes) in targets.iter().zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let slot = match (self.options.data, &room) {
                (DataMode::Writeback, None) => Slot::written_unordered(target.block, target.crc),
                _ => Slot::written(target.block, target.crc),
            };
            match room {
                Some(_) => edit.set_with_data(target.page, slot, bytes)?,
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
        state.file_mut().map_changes += 1;
        for &page in &batch.pages {
            state.file_mut().pages.end_writing(page);
        }
        self.unreserve(self.partition(), state.file_mut().spare_room());
        inode.hide_unless(&state, &shown);
        Ok(())
    }

    /// Room for a batch that is to go into the log, if it may: it is short, and fits a handle and
    /// the data log's table.
    fn room_in_log(&self, way: Way, pages: usize, needs: Needs) -> Option<Room<'_>> {
        let short = pages <= to_usize(self.options.log_data_pages.into());
        let fits = way == Way::Log && short && pages <= self.data_pages_max(needs.all());
        if !fits {
            return None;
        }
        // Does not wait for room: pages that find none are not rewritten so soon that a place in
        // the table would spare them a write.
        self.data_log.room_that_pays(self.partition(), pages)
    }

    /// Room for a batch that has to go into the log (`data=journal`): a checkpoint empties the
    /// table. No inode lock is held.
    fn room_for_all(&self, pages: usize) -> Result<Room<'_>> {
        let core = self.partition();
        for _ in 0..TABLE_ROUNDS {
            if let Some(room) = self.data_log.room_of_all(core, pages) {
                return Ok(room);
            }
            self.checkpoint()?;
        }
        // Other tasks took the room each time. The size of the log bounds the table, too.
        Ok(self.data_log.room_beyond(core, pages))
    }

    /// Moves the copies of a batch into the data log's table.
    fn keep_logged(&self, copies: &mut Copies, targets: &[Target], mut room: Room<'_>) {
        let core = self.partition();
        match std::mem::replace(copies, Copies::Gone) {
            Copies::One(frame) => self.data_log.insert(&mut room, targets[0].block, frame),
            Copies::Many(buf) => {
                let pages = buf.as_slice().chunks_exact(BLOCK_BYTES);
                for (target, bytes) in targets.iter().zip(pages) {
                    let mut frame = self.pages.frame(core, Fill::Any);
                    frame.bytes_mut().copy_from_slice(bytes);
                    self.data_log.insert(&mut room, target.block, frame);
                }
                *copies = Copies::Many(buf);
            }
            Copies::Gone => unreachable!("copies are given away once"),
        }
    }

    /// Makes the pages of a failed batch dirty again.
    fn give_up(&self, inode: &Inode, batch: &Batch) {
        let mut state = inode.state().write_keep_cached();
        let shown = inode.data_part(&state);
        let mut surplus = 0;
        for &page in &batch.pages {
            // A page that was changed meanwhile has reserved another block.
            surplus += u32::from(!state.file_mut().pages.fail_writing(page));
        }
        inode.hide_unless(&state, &shown);
        drop(state);
        self.unreserve(self.partition(), surplus);
    }

    /// Logs a size and times that no page brought along.
    fn log_ahead(&self, inode: &Inode, extent: Extent) -> Result<()> {
        // Write-back holds no pin on the inode: it may have been deleted since it was listed, also
        // while the operation began, and its granule may hold the next inode by now.
        let needed = |state: &InodeState| match extent {
            _ if state.gone => false,
            Extent::Data => state.file().is_longer(),
            Extent::All => state.file().is_ahead(),
        };
        if !needed(&inode.state().read()) {
            return Ok(());
        }
        let mut op = self.op(OpKind::Size, OpClass::Delete, 1)?;
        let mut state = inode.state().write_keep_cached();
        if !needed(&state) {
            return Ok(());
        }
        let shown = inode.data_part(&state);
        let mut data = inode.data_draft(&state);
        let from = data.size.get() / BLOCK_BYTES_U64;
        let next = state.file().pages.next_unclean(from..u64::MAX);
        data.size = FileState::loggable_size(&data, state.file().size(), next);
        MapEdit::new(self, &mut op, inode, &mut data).end();
        inode.data_stored(&mut state, &data, op.finish());
        inode.hide_unless(&state, &shown);
        Ok(())
    }

    /// Writes back inodes until `pages` pages were written, or each was visited once. Skips inodes
    /// whose write-back is under way. Returns how many pages.
    ///
    /// # Errors
    /// The last failure, when nothing could be written.
    pub(crate) fn write_back_some(&self, pages: u64) -> Result<u64> {
        let own = self.partition().index();
        let lists = self.pages.lists();
        let mut written = 0;
        let mut failed = None;
        for n in 0..lists {
            let core = nth_core(own + n, lists);
            for _ in 0..self.pages.dirty_inode_count(core) {
                if written >= pages {
                    return Ok(written);
                }
                let Some(inode) = self.pages.next_dirty(core) else {
                    break;
                };
                let Some(_held) = inode.writeback().try_lock() else {
                    continue;
                };
                let done = self
                    .finish_cut(&inode)
                    .and_then(|()| self.write_back_held(&inode, Way::Blocks, Extent::All));
                match done {
                    Ok(pages) => written += pages,
                    Err(error) => failed = Some(error),
                }
                self.unlist_clean(&inode);
            }
        }
        match failed {
            Some(error) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }

    /// Writes back everything that was dirty when this began.
    ///
    /// # Errors
    /// The first failure; the other inodes are written back all the same.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut result = Ok(());
        for n in 0..self.pages.lists() {
            for inode in self.pages.dirty_inodes(nth_core(n, self.pages.lists())) {
                let written = self.write_back(&inode);
                self.unlist_clean(&inode);
                result = result.and(written);
            }
        }
        result
    }

    /// Writes an inode back and drops its pages, so that it can leave memory; does nothing if its
    /// write-back is under way. What fails stays, and is reported by an fsync.
    pub(crate) fn settle_file(&self, inode: &Arc<Inode>) {
        let Some(_held) = inode.writeback().try_lock() else {
            return;
        };
        let written = self
            .finish_cut(inode)
            .and_then(|()| self.write_back_held(inode, Way::Blocks, Extent::All));
        self.unlist_clean(inode);
        if written.is_ok() {
            self.drop_clean_pages(inode);
        }
    }

    fn unlist_clean(&self, inode: &Inode) {
        let mut state = inode.state().write_keep_cached();
        let state = &mut *state;
        if state.file().is_clean() {
            self.pages.unlist(inode, state.file_mut(), true);
        }
    }

    /// Gives reserved blocks back.
    pub(super) fn unreserve(&self, core: CoreId, blocks: u32) {
        if blocks > 0 {
            self.space.unreserve(core, blocks);
        }
    }
}

/// Pages that this many bytes take.
pub(super) fn pages_up_to(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES_U64)
}

/// The part of the last page that belongs to a file of `size` bytes.
pub(super) fn tail_bytes(size: u64) -> usize {
    to_usize(size % BLOCK_BYTES_U64)
}
