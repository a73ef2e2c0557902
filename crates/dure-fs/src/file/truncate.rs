//! Making files shorter and longer.
//!
//! **Structure.** The [body](super::body) knows how a file becomes longer, and how the page in
//! which a shorter one ends gets a zero tail. What it calls then, [`Files::cut`], is one operation
//! if few slots go (see `map::free`); else the first one also logs an intent {inode, size} in the
//! orphan list, and further ones free the rest. The end of an inode is freed likewise.
//!
//! # Invariants
//! The first operation has the new size and, if the end is inside a page, that page with a zero
//! tail, written out of place beforehand: there is no state in which old bytes lie behind the end.
//! While slots behind the end remain, `FileState::cut` hides them and the write-back mutex keeps
//! the map from growing there.
//!
//! **On a crash** the intent is found and the rest is freed by the mount.

use dure_store::IMAGES_MIN;
use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::placement::Target;
use dure_store::space::OpClass;
use dure_sync::Arc;

use super::bytes::pages_up_to;
use super::map::path::{FILE_PAGES_MAX, HEIGHT_MAX};
use super::map::{FILE_BYTES_MAX, FREE_NODES_MAX, MapEdit};
use super::state::Cut;
use crate::file::Files;
use crate::inode::{Inode, InodeRef, OrphanPlace};

/// Nodes an entry in the orphan list makes dirty at most: an orphan node, and a new one after it.
const ORPHAN_NODES: u32 = 2;
/// Nodes of the first operation: what it frees, the leaf of the rewritten page, the intent.
const CUT_NODES: u32 = FREE_NODES_MAX + HEIGHT_MAX + ORPHAN_NODES;
const _: () = assert!(
    CUT_NODES <= IMAGES_MIN,
    "the first operation of a truncate fits the smallest log"
);

impl Files {
    /// Sets the size of a regular file. The caller holds no inode lock.
    ///
    /// # Errors
    /// `TooLarge`, `NoSpace`, `Stopped`; `Corrupt` or a device error when the page in which the
    /// file is to end cannot be read.
    pub(crate) fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let inode = super::regular(inode)?;
        self.store.check_writable()?;
        if size > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        self.body.truncate(self, inode, size)?;
        self.end_data_call(inode)
    }

    /// Makes a file shorter. If it is to end inside a page that has a block, `tail` is that page
    /// with zeroes behind the end, in another one. The caller holds the write-back mutex; on an
    /// error of the first operation the tail's block is free again.
    pub(super) fn cut(&self, inode: &Arc<Inode>, size: u64, tail: Option<Target>) -> Result<()> {
        let cut = self.cut_first(inode, size, tail.as_ref());
        if let (Some(target), Err(_)) = (tail, &cut) {
            self.store.placement.release(&[target]);
            self.unreserve(self.store.partition(), 1);
        }
        if cut? { self.finish_cut(inode) } else { Ok(()) }
    }

    /// The first operation of a truncate; true when slots are left to be freed.
    fn cut_first(&self, inode: &Arc<Inode>, size: u64, tail: Option<&Target>) -> Result<bool> {
        let gone = pages_up_to(size);
        let slot = self.inodes.orphan_slot()?;
        let mut op = self
            .store
            .op(OpKind::Truncate, OpClass::Delete, CUT_NODES)?;
        let mut state = inode.state().write();
        let now = op.time();
        let mut data = inode.data_draft(&state);
        data.size = data.size.get().min(size).into();
        (data.mtime, data.ctime) = (now, now);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        if let Some(tail) = tail {
            edit.set(tail.page, Slot::written(tail.block, tail.crc))?;
        }
        let left = edit.free(gone..FILE_PAGES_MAX)?.is_some();
        edit.end();
        if left {
            slot.fill(&mut op, inode.ino, size);
        }
        // Nothing can fail from here on.
        inode.data_stored(&mut state, &data, op.finish());
        let file = state.file_mut();
        file.cut = left.then(|| {
            let intent = slot.used();
            Box::new(Cut { from: gone, intent })
        });
        file.set_size(inode.state().seek_hint(), size);
        self.body.discard_behind(self, file, size);
        Ok(left)
    }

    /// Frees what a truncate has left, if one is half done. The caller holds the write-back mutex.
    pub(super) fn finish_cut(&self, inode: &Inode) -> Result<()> {
        loop {
            if inode.state().read().file().cut.is_none() {
                return Ok(());
            }
            let mut op = self.store.op(
                OpKind::Truncate,
                OpClass::Delete,
                FREE_NODES_MAX + ORPHAN_NODES,
            )?;
            let mut state = inode.state().write();
            let mut data = inode.data_draft(&state);
            // Only the holder of the write-back mutex ends a truncate.
            let cut = state
                .file()
                .cut
                .as_ref()
                .expect("only the holder of the write-back mutex ends a truncate");
            let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
            let done = edit.free(cut.from..FILE_PAGES_MAX)?.is_none();
            edit.end();
            if done {
                cut.intent.clear(&mut op);
            }
            inode.data_stored(&mut state, &data, op.finish());
            if done && let Some(cut) = state.file_mut().cut.take() {
                self.inodes.orphans.give(cut.intent);
            }
        }
    }

    /// Frees everything a deleted inode has in blocks and pages, in steps.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, `Stopped`, device errors.
    pub(crate) fn free_contents(&self, inode: &Inode) -> Result<()> {
        {
            let _held = inode.lock_writeback();
            self.finish_cut(inode)?;
        }
        while self.shrink(inode, 0)? {}
        Ok(())
    }

    /// Goes on with a truncate whose intent the mount has found. Where that fails, the slots behind
    /// the end stay hidden, as between two steps of a truncate.
    ///
    /// # Errors
    /// Those of [`Files::free_contents`].
    pub(crate) fn resume_truncate(
        &self,
        inode: &InodeRef,
        size: u64,
        intent: OrphanPlace,
    ) -> Result<()> {
        let inode = super::regular(inode).map_err(|_| Error::Corrupt {
            what: format!("intent to truncate inode {}, which is no file", inode.ino()),
            at: inode.ino().nid().0,
            want: 0,
            got: size,
        })?;
        let _held = inode.lock_writeback();
        let from = pages_up_to(size);
        inode.state().write().file_mut().cut = Some(Box::new(Cut { from, intent }));
        self.finish_cut(inode)
    }

    /// One step of freeing all slots from `to_page` on; true when more are left. Pages in memory go
    /// too.
    fn shrink(&self, inode: &Inode, to_page: u64) -> Result<bool> {
        let _held = inode.lock_writeback();
        let mut op = self
            .store
            .op(OpKind::Truncate, OpClass::Delete, FREE_NODES_MAX)?;
        let mut state = inode.state().write();
        let mut data = inode.data_draft(&state);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        let left = edit.free(to_page..FILE_PAGES_MAX)?.is_some();
        edit.end();
        inode.state().seek_hint().data_goes(&(to_page..u64::MAX));
        inode.data_stored(&mut state, &data, op.finish());
        self.body.discard(self, state.file_mut(), to_page..u64::MAX);
        Ok(left)
    }
}
