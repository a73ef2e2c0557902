//! Write-back: dirty pages become blocks, and slots that name them.
//!
//! **Structure.** Under the inode's write-back mutex, in batches: take dirty pages (inode
//! exclusive), copy them and find their slots (inode shared, concurrently with readers and with
//! writers of other pages), allocate blocks, write the copies in long runs
//! ([`dure_store::placement`]), then one operation stores the slots with their CRCs, the size and
//! the times (inode exclusive), and sees what is left to do. [`batch`] copies, [`batches`] goes
//! from one to the next, with several at the device, [`save`] writes and logs, [`inodes`] goes from inode to inode, [`round`] writes pages of many of them together.
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

mod absorbed;
mod batch;
mod batches;
mod inodes;
mod round;
mod save;

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES_U64, to_u64};
use dure_sync::Arc;

use crate::file::Files;
use crate::file::map::MapEdit;
use crate::file::marks::PendingMarks;
use crate::file::state::FileState;
use crate::file::sync::SyncScope;
use crate::inode::{Inode, InodeState};

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

/// What write-back did.
#[derive(Debug)]
pub(crate) struct Written {
    /// Pages written.
    pub(crate) pages: u64,
    /// The operations that concerned the inode, apart from the last writers of its granules.
    pub(crate) marks: PendingMarks,
}

/// What of an inode was not logged at one moment, pages aside.
#[derive(Debug)]
struct Left {
    is_longer: bool,
    is_ahead: bool,
    /// Bytes that a crash leaves at least, and bytes of the file; both 0 if it was deleted.
    logged: u64,
    size: u64,
    marks: PendingMarks,
}

impl Left {
    /// The caller holds the state.
    fn of(state: &InodeState) -> Left {
        let file = (!state.gone).then(|| state.file());
        Left {
            is_longer: file.is_some_and(FileState::is_longer),
            is_ahead: file.is_some_and(FileState::is_ahead),
            logged: file.map_or(0, FileState::logged_size),
            size: file.map_or(0, FileState::size),
            marks: state.marks.clone(),
        }
    }

    /// Whether there is something to log.
    fn needs(&self, extent: Extent) -> bool {
        match extent {
            Extent::Data => self.is_longer,
            Extent::All => self.is_ahead,
        }
    }

    /// Whether a crash could leave fewer bytes than `size`, which the file had and has.
    fn is_behind(&self, size: u64) -> bool {
        self.logged < size.min(self.size)
    }
}

impl Files {
    /// [`Body::sync`](crate::file::body::Body::sync).
    pub(in crate::file) fn sync_cached(
        &self,
        inode: &Arc<Inode>,
        scope: SyncScope,
    ) -> Result<PendingMarks> {
        let extent = match scope {
            SyncScope::Data => Extent::Data,
            SyncScope::All => Extent::All,
        };
        Ok(self.write_back_by(inode, Way::Log, extent)?.marks)
    }

    /// [`Body::place_reserved`](crate::file::body::Body::place_reserved): dirty pages hold blocks.
    pub(in crate::file) fn place_dirty(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_back_held(inode, Way::Blocks, Extent::Data)
            .map(drop)
    }

    /// Writes all of an inode's dirty pages, its size and times. Returns how many pages.
    ///
    /// # Errors
    /// `NoSpace`, `Stopped`, device errors; what was not written stays dirty.
    pub(in crate::file) fn write_back(&self, inode: &Arc<Inode>) -> Result<u64> {
        let written = self.write_back_by(inode, Way::Blocks, Extent::All)?;
        Ok(written.pages)
    }

    /// Writes all dirty pages, and the size they need.
    ///
    /// # Errors
    /// Those of [`Files::write_back`].
    pub(crate) fn write_back_by(
        &self,
        inode: &Arc<Inode>,
        way: Way,
        extent: Extent,
    ) -> Result<Written> {
        if let Some(marks) = self.marks_if_clean(inode) {
            return Ok(Written { pages: 0, marks });
        }
        let _held = inode.lock_writeback();
        self.write_back_held(inode, way, extent)
    }

    /// The operations that concerned the inode, apart from the last writers of its granules, if it
    /// has nothing to write back.
    pub(in crate::file) fn marks_if_clean(&self, inode: &Inode) -> Option<PendingMarks> {
        // While its last page is being written and is not logged, the inode does not count as clean.
        let state = inode.state().read();
        let is_clean = !inode.state().growth_waits() && state.file().is_clean();
        is_clean.then(|| state.marks.clone())
    }

    /// Like [`Files::write_back_by`]; the caller holds the write-back mutex.
    pub(in crate::file) fn write_back_held(
        &self,
        inode: &Arc<Inode>,
        way: Way,
        extent: Extent,
    ) -> Result<Written> {
        let size = inode.state().seek_hint().size();
        let mut pages = 0;
        // A page written meanwhile into a hole below the size holds the logged size back; a second
        // round takes that page and logs the size with it; pages written later still cannot hold it
        // back.
        for _ in 0..2 {
            let (written, left) = self.write_batches(inode, way)?;
            pages += written;
            let left = match left {
                Some(left) => left,
                None => Left::of(&inode.state().read()),
            };
            let left = match left.needs(extent) {
                true => self.log_ahead(inode, extent)?,
                false => left,
            };
            if !left.is_behind(size) {
                let marks = left.marks;
                return Ok(Written { pages, marks });
            }
        }
        panic!("a batch of all dirty pages logs the size it has seen")
    }

    /// Pages were written and their slots logged.
    fn count_written(&self, pages: usize) {
        let core = self.store.partition();
        self.pages.dirty_pages.written(core, to_u64(pages));
        let counter = &self.pages.counters.written_back;
        counter.add(i64::try_from(pages).expect("a batch has few pages"));
        self.store.owners.add(core, pages);
    }

    /// Logs a size and times that no page brought along. Returns what is left.
    fn log_ahead(&self, inode: &Inode, extent: Extent) -> Result<Left> {
        let mut op = self.store.op(OpKind::Size, OpClass::Delete, 1)?;
        let mut state = inode.state().write_keep_cached();
        // Write-back holds no pin on the inode: it may have been deleted since it was listed, also
        // while the operation began, and its granule may hold the next inode by now.
        let left = Left::of(&state);
        if !left.needs(extent) {
            return Ok(left);
        }
        let shown = inode.data_part(&state);
        let mut data = inode.data_draft(&state);
        let from = data.size.get() / BLOCK_BYTES_U64;
        let next = state.file().pages.next_unclean(from..u64::MAX);
        data.size = FileState::loggable_size(&data, state.file().size(), next);
        MapEdit::new(self, &mut op, inode, &mut data).end();
        inode.data_stored(&mut state, &data, op.finish());
        inode.hide_unless(&state, &shown);
        Ok(Left::of(&state))
    }
}
