//! Write-back: dirty pages become blocks, and slots that name them.
//!
//! **Structure.** Under the inode's write-back mutex, in batches: take dirty pages (inode
//! exclusive) and copy them (inode shared, concurrently with readers and with writers of other
//! pages), find their slots, allocate blocks, write the copies in long runs ([`super::blocks`]),
//! then one operation stores the slots with their CRCs, the size and the times. [`batch`] copies,
//! [`save`] writes and logs, [`inodes`] goes from inode to inode.
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

mod batch;
mod inodes;
mod save;

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::{Arc, CoreId};

use super::map::MapEdit;
use super::state::FileState;
use crate::inode::{Inode, InodeState};
use crate::volume::{DataMode, Volume};

pub(super) use batch::BATCH_PAGES;

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
