//! Making files shorter and longer.
//!
//! **Structure.** Longer is a matter of memory, also under the shared inode lock
//! ([`super::cached::cached::write_shared`]): the size is pending until write-back logs it. A truncate to the
//! present size with nothing behind it changes times only, also under the shared lock. Shorter is
//! one operation if few slots go (see `map::free`); else the first one also logs an intent {inode,
//! size} in the orphan list, and further ones free the rest.
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
use dure_store::frames::{Fill, Frame};
use dure_store::placement::Target;
use dure_store::space::OpClass;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use super::cached::writeback::{pages_up_to, tail_bytes};
use super::map::path::{FILE_PAGES_MAX, HEIGHT_MAX};
use super::map::{FILE_BYTES_MAX, FREE_NODES_MAX, MapEdit, MapReader};
use super::state::{Cut, Stamp};
use crate::inode::{Inode, InodeRef, InodeState, OrphanPlace};
use crate::volume::Volume;

/// Nodes an entry in the orphan list makes dirty at most: an orphan node, and a new one after it.
const ORPHAN_NODES: u32 = 2;
/// Nodes of the first operation: what it frees, the leaf of the rewritten page, the intent.
const CUT_NODES: u32 = FREE_NODES_MAX + HEIGHT_MAX + ORPHAN_NODES;
const _: () = assert!(
    CUT_NODES <= IMAGES_MIN,
    "the first operation of a truncate fits the smallest log"
);

impl Volume {
    /// Sets the size of a regular file. The caller holds no inode lock.
    ///
    /// # Errors
    /// `TooLarge`, `NoSpace`, `Stopped`; `Corrupt` or a device error when the page in which the
    /// file is to end cannot be read.
    pub(crate) fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let inode = super::regular(inode)?;
        self.check_writable()?;
        if size > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        if self.stamp_end(inode, size)? {
            return Ok(());
        }
        let range = inode.take_end(size);
        if let Some(range) = &range
            && self.grow_shared(inode, range, size)
        {
            return Ok(());
        }
        let _held = inode.writeback().lock();
        self.finish_cut(inode)?;
        {
            let mut state = inode.state().write();
            if size > state.file().size() || self.is_end(inode, &state, size)? {
                state.file_mut().set_size(inode.state().seek_hint(), size);
                state.file().stamp(Stamp::Set, self.now());
                self.pages
                    .note_dirty(self.partition(), inode, state.file_mut());
                return Ok(());
            }
        }
        self.cut(inode, size)
    }

    /// Whether the file ends there, and has neither slots nor pages behind.
    fn is_end(&self, inode: &Inode, state: &InodeState, size: u64) -> Result<bool> {
        let (file, behind) = (state.file(), pages_up_to(size));
        if file.size() != size || file.cut.is_some() {
            return Ok(false);
        }
        let mut map = MapReader::new(self, inode);
        let mapped = map.next_mapped(behind, FILE_PAGES_MAX)?;
        Ok(mapped.is_none() && file.pages.next_present(behind..u64::MAX).is_none())
    }

    /// A truncate to the size that the file has, under the shared inode lock, if the inode is on
    /// the dirty list already. False: nothing done.
    fn stamp_end(&self, inode: &Inode, size: u64) -> Result<bool> {
        let state = inode.state().read();
        // Only a holder of the exclusive inode lock may list it.
        let waits = state.file().dirty_on.is_some();
        if !waits || inode.state().pages_wait() || !self.is_end(inode, &state, size)? {
            return Ok(false);
        }
        let change = state.file().stamp(Stamp::Set, self.now());
        inode.state().changed_shared(change);
        Ok(true)
    }

    /// Makes a file shorter. The caller holds the write-back mutex.
    fn cut(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let tail = self.save_tail(inode, size)?;
        let cut = self.cut_first(inode, size, tail.as_ref());
        if let (Some(target), Err(_)) = (tail, &cut) {
            self.placement.release(&[target]);
            self.unreserve(self.partition(), 1);
        }
        if cut? { self.finish_cut(inode) } else { Ok(()) }
    }

    /// The first operation of a truncate; true when slots are left to be freed.
    fn cut_first(&self, inode: &Arc<Inode>, size: u64, tail: Option<&Target>) -> Result<bool> {
        let gone = pages_up_to(size);
        let slot = self.orphan_slot()?;
        let mut op = self.op(OpKind::Truncate, OpClass::Delete, CUT_NODES)?;
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
        file.map_changes += 1;
        file.cut = left.then(|| {
            let intent = slot.used();
            Box::new(Cut { from: gone, intent })
        });
        file.set_size(inode.state().seek_hint(), size);
        self.drop_pages(file, gone..u64::MAX);
        if tail_bytes(size) > 0
            && let Some(page) = file.pages.get_mut(size / BLOCK_BYTES_U64)
        {
            // Clean or dirty, its slot has a zero tail too: rewritten now, or never longer than
            // this.
            page.bytes_mut()[tail_bytes(size)..].fill(0);
        }
        Ok(left)
    }

    /// If the file will end inside a page whose old bytes are on the device: writes that page with
    /// a zero tail to a new block.
    fn save_tail(&self, inode: &Inode, size: u64) -> Result<Option<Target>> {
        let core = self.partition();
        let page = size / BLOCK_BYTES_U64;
        let mut frame;
        let slot;
        {
            // Exclusive: no task may be half way through writing into the page.
            let state = inode.state().write();
            if tail_bytes(size) == 0 || state.file().logged_size() <= size {
                return Ok(None);
            }
            slot = MapReader::new(self, inode).slot(page)?;
            if !slot.is_written() {
                return Ok(None);
            }
            frame = self.pages.frame(core, Fill::Any);
            match state.file().pages.get(page) {
                Some(cached) => cached.load(0, frame.bytes_mut()),
                None => self.read_page(inode, page, &slot, frame.bytes_mut())?,
            }
        }
        frame.bytes_mut()[tail_bytes(size)..].fill(0);
        self.reserve_blocks(core, 1, OpClass::Delete)?;
        let saved = self.save_frame(page, slot, &frame);
        self.pages.frames.give(core, frame);
        if saved.is_err() {
            self.unreserve(core, 1);
        }
        saved.map(Some)
    }

    fn save_frame(&self, page: u64, old: Slot, frame: &Frame) -> Result<Target> {
        let core = self.partition();
        let mut targets = [Target::new(
            page,
            old,
            dure_block::crc32c::crc32c(frame.bytes()),
        )];
        let written = self
            .placement
            .allocate(core, &mut targets)
            .and_then(|()| self.place_pages(core, &mut targets, frame.bytes()));
        if written.is_err() {
            self.placement.release(&targets);
        }
        written.map(|()| targets[0])
    }

    /// Frees what a truncate has left, if one is half done. The caller holds the write-back mutex.
    pub(super) fn finish_cut(&self, inode: &Inode) -> Result<()> {
        loop {
            if inode.state().read().file().cut.is_none() {
                return Ok(());
            }
            let mut op = self.op(
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
            state.file_mut().map_changes += 1;
            if done && let Some(cut) = state.file_mut().cut.take() {
                self.orphans.give(cut.intent);
            }
        }
    }

    /// Frees everything a deleted inode has in blocks and pages, in steps.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, `Stopped`, device errors.
    pub(crate) fn free_contents(&self, inode: &Inode) -> Result<()> {
        {
            let _held = inode.writeback().lock();
            self.finish_cut(inode)?;
        }
        while self.shrink(inode, 0)? {}
        Ok(())
    }

    /// Goes on with a truncate whose intent the mount has found. Where that fails, the slots behind
    /// the end stay hidden, as between two steps of a truncate.
    ///
    /// # Errors
    /// As [`Volume::free_contents`].
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
        let _held = inode.writeback().lock();
        let from = pages_up_to(size);
        inode.state().write().file_mut().cut = Some(Box::new(Cut { from, intent }));
        self.finish_cut(inode)
    }

    /// One step of freeing all slots from `to_page` on; true when more are left. Pages in memory go
    /// too.
    fn shrink(&self, inode: &Inode, to_page: u64) -> Result<bool> {
        let _held = inode.writeback().lock();
        let mut op = self.op(OpKind::Truncate, OpClass::Delete, FREE_NODES_MAX)?;
        let mut state = inode.state().write();
        let mut data = inode.data_draft(&state);
        let mut edit = MapEdit::new(self, &mut op, inode, &mut data);
        let left = edit.free(to_page..FILE_PAGES_MAX)?.is_some();
        edit.end();
        inode.state().seek_hint().data_goes(&(to_page..u64::MAX));
        inode.data_stored(&mut state, &data, op.finish());
        state.file_mut().map_changes += 1;
        self.drop_pages(state.file_mut(), to_page..u64::MAX);
        Ok(left)
    }
}
