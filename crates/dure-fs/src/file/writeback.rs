//! Write-back: dirty pages become blocks, and slots that name them.
//!
//! **Structure.** Under the inode's write-back mutex, in batches: copy dirty pages (under the inode lock,
//! for a memcpy), find their slots, allocate blocks, write the copies in long runs ([`super::blocks`]),
//! then one operation stores the slots with their CRCs, the size and the times.
//!
//! **Invariants.** Data is written out of place, or into a block that was preallocated and never counted:
//! a page is old or new after a crash, never a mixture. The CRC is of the private copy, so it is of what
//! was written (model case 12). The logged size never covers a page that is not on the device: batches go
//! upwards and a batch logs no size beyond the next dirty page. A failed batch leaves its pages dirty,
//! with their reserved blocks. **On a crash** before the operation is durable the old slots count, and the
//! new blocks are free; the rule `flush=two` also keeps the log from being durable before the data.

use std::ops::Range;

use dure_block::BlockBuf;
use dure_sync::{Arc, CoreId};

use super::blocks::Target;
use super::map::path::node_start;
use super::map::{MapEdit, MapReader};
use super::page::{Fill, Frame};
use super::state::FileState;
use crate::error::{Error, Result};
use crate::format::slot::{DIRECT_SLOTS, Slot};
use crate::inode::{Inode, InodeState};
use crate::op::{Op, OpKind};
use crate::space::OpClass;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use crate::volume::{FlushRule, Volume};

/// Pages of one batch: 1 MiB of private copies.
pub(super) const BATCH_PAGES: usize = 256;
/// Leaves one batch touches at most; bounds the nodes its operation makes dirty.
const BATCH_LEAVES: usize = 16;
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

/// Private copies of pages, in page order.
#[derive(Debug)]
enum Copies {
    One(Frame),
    Many(BlockBuf),
}

impl Copies {
    fn bytes(&self, pages: usize) -> &[u8] {
        match self {
            Copies::One(frame) => frame.bytes(),
            Copies::Many(buf) => &buf.as_slice()[..pages * BLOCK_BYTES],
        }
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
        self.write_back_range(inode, 0..u64::MAX, Extent::All)
            .map(|_| ())
    }

    /// Writes the dirty pages of a range, and below it what a longer size needs. Gives how many.
    ///
    /// # Errors
    /// As [`Volume::write_back`].
    pub(crate) fn write_back_range(
        &self,
        inode: &Arc<Inode>,
        pages: Range<u64>,
        extent: Extent,
    ) -> Result<u64> {
        let _held = inode.writeback.lock();
        self.finish_cut(inode)?;
        self.write_back_held(inode, pages, extent)
    }

    /// The same; the caller holds the write-back mutex, and no truncate is half done.
    pub(super) fn write_back_held(
        &self,
        inode: &Arc<Inode>,
        pages: Range<u64>,
        extent: Extent,
    ) -> Result<u64> {
        let size = inode.state.read().file.size;
        let mut written = self.write_batches(inode, pages.clone())?;
        self.log_ahead(inode, extent)?;
        // A page written meanwhile into a hole below the size holds the logged size back; its own round
        // brings the size along, as no page that is written later does.
        if pages.end == u64::MAX && self.is_behind(inode, size) {
            written += self.write_batches(inode, pages)?;
            self.log_ahead(inode, extent)?;
            assert!(
                !self.is_behind(inode, size),
                "a batch of all dirty pages logs the size it has seen"
            );
        }
        self.pages
            .counters
            .written_back
            .add(i64::try_from(written).expect("pages in memory"));
        Ok(written)
    }

    /// Whether a crash could leave fewer bytes than `size`, which the file had and has.
    fn is_behind(&self, inode: &Inode, size: u64) -> bool {
        let state = inode.state.read();
        !state.record.is_free() && state.record.size.get() < size.min(state.file.size)
    }

    /// Writes the dirty pages of a range, batch by batch.
    fn write_batches(&self, inode: &Arc<Inode>, pages: Range<u64>) -> Result<u64> {
        let mut written = 0;
        let Range {
            start: mut from,
            mut end,
        } = pages;
        while let Some(batch) = self.copy_dirty(inode, from..end) {
            let copied = batch.pages.len();
            from = batch.pages[copied - 1] + 1;
            // What is appended from now on is not waited for.
            end = end.min(pages_up_to(batch.size));
            let more = batch.next.is_some_and(|next| next < end);
            let saved = self.save(inode, &batch);
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

    /// Copies the next dirty pages of the range and takes them in write-back.
    fn copy_dirty(&self, inode: &Inode, range: Range<u64>) -> Option<Batch> {
        let core = self.partition();
        let mut state = inode.state.write();
        let state = &mut *state;
        let file = &mut state.file;
        // No slot may be filled beyond the logged size while a page below it is missing: a crash would
        // leave data behind the end, and a later extension would bring it to light.
        let start = range.start.min(state.record.size.get() / BLOCK_BYTES_U64);
        let range = start..range.end;
        let mut pages = Vec::new();
        let mut leaves = 0;
        let mut leaf = 0;
        let mut next = file.pages.next_dirty(range.clone());
        while let Some(page) = next.filter(|&page| page < range.end && pages.len() < BATCH_PAGES) {
            let at = if page < DIRECT_SLOTS {
                0
            } else {
                node_start(page, 1)
            };
            if pages.is_empty() || at != leaf {
                leaves += 1;
                leaf = at;
                if leaves > BATCH_LEAVES {
                    break;
                }
            }
            pages.push(page);
            next = file.pages.next_dirty(page + 1..u64::MAX);
        }
        if pages.is_empty() {
            return None;
        }
        let copies = match pages[..] {
            [page] => {
                let mut frame = self.pages.frame(core, Fill::Any);
                frame
                    .bytes_mut()
                    .copy_from_slice(file.pages.begin_writing(page).bytes());
                Copies::One(frame)
            }
            _ => {
                let mut buf = self.pages.take_scratch(core);
                for (&page, copy) in pages
                    .iter()
                    .zip(buf.as_mut_slice().chunks_exact_mut(BLOCK_BYTES))
                {
                    copy.copy_from_slice(file.pages.begin_writing(page).bytes());
                }
                Copies::Many(buf)
            }
        };
        Some(Batch {
            pages,
            copies,
            size: file.size,
            next,
        })
    }

    fn give_copies(&self, copies: Copies) {
        let core = self.partition();
        match copies {
            Copies::One(frame) => self.pages.frames.give(core, frame),
            Copies::Many(buf) => self.pages.give_scratch(core, buf),
        }
    }

    /// Writes a batch and logs its slots. On an error nothing has changed.
    fn save(&self, inode: &Arc<Inode>, batch: &Batch) -> Result<()> {
        let core = self.partition();
        let bytes = batch.copies.bytes(batch.pages.len());
        let (mut targets, nodes) = self.plan(inode, batch, bytes)?;
        let saved = self.allocate(core, &mut targets).and_then(|()| {
            if !self.options.volume_rules.data_before_log {
                self.log_slots(inode, batch, &targets, nodes)?;
                return self.write_blocks(core, &mut targets, bytes);
            }
            self.write_blocks(core, &mut targets, bytes)?;
            if self.options.flush == FlushRule::Two {
                self.queue.flush()?;
            }
            self.log_slots(inode, batch, &targets, nodes)
        });
        match saved {
            // Preallocated blocks were filled in place, so these reserved ones are not needed.
            Ok(()) => {
                let spare = targets.iter().filter(|target| target.is_in_place()).count();
                self.unreserve(core, u32::try_from(spare).expect("a batch is short"));
            }
            Err(_) => self.release(&targets),
        }
        saved
    }

    /// Finds the slots of the batch, and how many nodes an operation on them makes dirty.
    fn plan(&self, inode: &Inode, batch: &Batch, bytes: &[u8]) -> Result<(Vec<Target>, u32)> {
        let state = inode.state.read();
        let mut map = MapReader::new(self);
        let mut nodes = 1;
        let mut leaf = 0;
        let mut targets = Vec::with_capacity(batch.pages.len());
        for (&page, bytes) in batch.pages.iter().zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let slot = map.slot(&state.record, page)?;
            targets.push(Target::new(page, slot, crc32c::crc32c(bytes)));
            if page >= DIRECT_SLOTS && node_start(page, 1) != leaf {
                leaf = node_start(page, 1);
                // A leaf that exists, or new nodes and the index (or inode) they hang on.
                nodes += 1 + map.missing_nodes(&state.record, page)?;
            }
        }
        let notes = batch.pages.len() * NOTE_BYTES / NODE_RECORD_BYTES;
        Ok((
            targets,
            nodes + u32::try_from(notes).expect("a batch is short"),
        ))
    }

    fn log_slots(
        &self,
        inode: &Inode,
        batch: &Batch,
        targets: &[Target],
        nodes: u32,
    ) -> Result<()> {
        let mut op = self.op_for_data(OpKind::Write, nodes)?;
        let mut state = inode.state.write();
        let mut record = state.record;
        record.size = FileState::loggable_size(&record, batch.size, batch.next);
        state.file.merge_times(&mut record);
        inode.access_time.merge(&mut record);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut record);
        for target in targets {
            edit.set(target.page, Slot::written(target.block, target.crc))?;
        }
        edit.end();
        // Nothing can fail from here on.
        state.file.note_mark(op.finish());
        state.record = record;
        state.file.times_merged();
        inode.access_time.clear();
        state.file.map_changes += 1;
        for &page in &batch.pages {
            state.file.pages.end_writing(page);
        }
        Ok(())
    }

    /// Makes the pages of a failed batch dirty again.
    fn give_up(&self, inode: &Inode, batch: &Batch) {
        let mut state = inode.state.write();
        let mut surplus = 0;
        for &page in &batch.pages {
            // A page that was changed meanwhile has reserved another block.
            surplus += u32::from(!state.file.pages.fail_writing(page));
        }
        drop(state);
        self.unreserve(self.partition(), surplus);
    }

    /// Logs a size and times that no page brought along.
    fn log_ahead(&self, inode: &Inode, extent: Extent) -> Result<()> {
        // Nobody pins an inode for its write-back: it may have been deleted since it was listed, also
        // while the operation began, and its granule may hold the next inode by now.
        let needed = |state: &InodeState| match extent {
            _ if state.record.is_free() => false,
            Extent::Data => state.file.is_longer(&state.record),
            Extent::All => state.file.is_ahead(&state.record),
        };
        if !needed(&inode.state.read()) {
            return Ok(());
        }
        let mut op = self.op_for_data(OpKind::Size, 1)?;
        let mut state = inode.state.write();
        if !needed(&state) {
            return Ok(());
        }
        let mut record = state.record;
        let from = record.size.get() / BLOCK_BYTES_U64;
        let next = state.file.pages.next_unclean(from..u64::MAX);
        record.size = FileState::loggable_size(&record, state.file.size, next);
        state.file.merge_times(&mut record);
        inode.access_time.merge(&mut record);
        MapEdit::new(self, &mut op, inode, &mut record).end();
        state.file.note_mark(op.finish());
        state.record = record;
        state.file.times_merged();
        inode.access_time.clear();
        Ok(())
    }

    /// An operation for data that was accepted already: it may use what is kept for deletions when
    /// nothing else is left.
    pub(super) fn op_for_data(&self, kind: OpKind, nodes: u32) -> Result<Op<'_>> {
        match self.op(kind, OpClass::Normal, nodes) {
            Err(Error::NoSpace { .. }) => self.op(kind, OpClass::Delete, nodes),
            other => other,
        }
    }

    /// Writes back inodes until `pages` pages were written, or each was visited once. Waits for no
    /// write-back that is under way. Gives how many pages.
    ///
    /// # Errors
    /// The last failure, when nothing could be written.
    pub(super) fn write_back_some(&self, pages: u64) -> Result<u64> {
        let own = self.partition().index();
        let lists = self.pages.lists();
        let mut written = 0;
        let mut failed = None;
        for n in 0..lists {
            let core = super::cache::nth_core(own + n, lists);
            for _ in 0..self.pages.dirty_inode_count(core) {
                if written >= pages {
                    return Ok(written);
                }
                let Some(inode) = self.pages.next_dirty(core) else {
                    break;
                };
                let Some(_held) = inode.writeback.try_lock() else {
                    continue;
                };
                let done = self
                    .finish_cut(&inode)
                    .and_then(|()| self.write_back_held(&inode, 0..u64::MAX, Extent::All));
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
            for inode in self
                .pages
                .dirty_inodes(super::cache::nth_core(n, self.pages.lists()))
            {
                let written = self.write_back(&inode);
                self.unlist_clean(&inode);
                result = result.and(written);
            }
        }
        result
    }

    fn unlist_clean(&self, inode: &Inode) {
        let mut state = inode.state.write();
        let state = &mut *state;
        if state.file.is_clean(&state.record) {
            self.pages.unlist(inode, &mut state.file, true);
        }
    }

    /// Gives reserved blocks back.
    pub(super) fn unreserve(&self, core: CoreId, blocks: u32) {
        if blocks > 0 {
            self.space.unreserve(core, blocks);
        }
    }
}

/// Pages as a count of bytes' blocks, for callers that have bytes.
pub(super) fn pages_up_to(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES_U64)
}

/// The part of the last page that belongs to a file of `size` bytes.
pub(super) fn tail_bytes(size: u64) -> usize {
    to_usize(size % BLOCK_BYTES_U64)
}
