//! Making files shorter and longer where pages may be in memory.
//!
//! **Structure.** Longer is a matter of memory, also under the shared inode lock
//! ([`super::write_shared`]): the size is pending until write-back logs it. So is shorter, where the
//! medium has nothing behind the new end: neither slots nor a logged size. A truncate to the present
//! size with nothing behind it changes times only, also under the shared lock. Else the page in
//! which the file is to end is written with a zero tail, then the slots go
//! ([`crate::file::truncate`]).
//!
//! **Invariants.** The tail is written out of place before the operation that names it, from a
//! page that no task is half way through writing.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::frames::{Fill, Frame};
use dure_store::placement::Target;
use dure_store::space::OpClass;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use crate::file::Files;
use crate::file::bytes::{pages_up_to, tail_bytes};
use crate::file::map::MapReader;
use crate::file::map::path::FILE_PAGES_MAX;
use crate::file::state::{FileState, Stamp};
use crate::inode::{Inode, InodeState};

impl Files {
    /// [`Body::truncate`](crate::file::body::Body::truncate).
    pub(in crate::file) fn truncate_cached(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        if self.stamp_end(inode, size)? {
            return Ok(());
        }
        inode.ranges_in(self);
        let range = inode.take_end(size);
        if let Some(range) = &range
            && self.grow_shared(inode, range, size)
        {
            return Ok(());
        }
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        if self.move_end(inode, size)? {
            return Ok(());
        }
        let tail = self.save_tail(inode, size)?;
        self.cut(inode, size, tail)
    }

    /// Sets a size that the medium need not know of yet: a greater one, or one behind which it has
    /// nothing. False: nothing done. The caller holds the write-back mutex, and no truncate is half
    /// done.
    fn move_end(&self, inode: &Arc<Inode>, size: u64) -> Result<bool> {
        let mut state = self.lock_exclusive(inode);
        if size <= state.file().size() {
            // *Crash scenario:* the medium has bytes behind the new end, the file grows over them
            // again in memory, and write-back logs that. No operation has freed them: they are back.
            let is_logged = size < state.file().logged_size();
            if is_logged || self.is_mapped(inode, pages_up_to(size)..FILE_PAGES_MAX)? {
                return Ok(false);
            }
            self.drop_behind(state.file_mut(), size);
        }
        state.file_mut().set_size(inode.state().seek_hint(), size);
        state.file().stamp(Stamp::Set, self.store.now());
        self.pages
            .note_dirty(self.store.partition(), inode, state.file_mut());
        Ok(true)
    }

    /// Whether one of these pages has a slot. The caller holds the inode.
    pub(in crate::file) fn is_mapped(&self, inode: &Inode, pages: Range<u64>) -> Result<bool> {
        let mut map = MapReader::new(self, inode);
        Ok(map.next_mapped(pages.start, pages.end)?.is_some())
    }

    /// [`Body::end_allocation`](crate::file::body::Body::end_allocation).
    pub(in crate::file) fn note_end(&self, inode: &Arc<Inode>, size: Option<u64>) {
        let mut state = inode.state().write();
        if let Some(size) = size {
            let size = state.file().size().max(size);
            state.file_mut().set_size(inode.state().seek_hint(), size);
        }
        state.file().stamp(Stamp::Set, self.store.now());
        self.pages
            .note_dirty(self.store.partition(), inode, state.file_mut());
    }

    /// Whether the file ends there, and has neither slots nor pages behind.
    pub(in crate::file) fn is_end(
        &self,
        inode: &Inode,
        state: &InodeState,
        size: u64,
    ) -> Result<bool> {
        let (file, behind) = (state.file(), pages_up_to(size));
        if file.size() != size || file.cut.is_some() {
            return Ok(false);
        }
        Ok(!self.is_mapped(inode, behind..FILE_PAGES_MAX)?
            && file.pages.next_present(behind..u64::MAX).is_none())
    }

    /// A truncate to the size that the file has, under the shared inode lock, if the inode is on
    /// the dirty list already. False: nothing done.
    fn stamp_end(&self, inode: &Inode, size: u64) -> Result<bool> {
        // A reader of the state would look like one of the tasks that contend for the file.
        if inode.state().seek_hint().size() != size {
            return Ok(false);
        }
        let state = inode.state().read();
        // Only a holder of the exclusive inode lock may list it.
        let waits = state.file().dirty_on.is_some();
        if !waits || inode.state().growth_waits() || !self.is_end(inode, &state, size)? {
            return Ok(false);
        }
        let change = state.file().stamp(Stamp::Set, self.store.now());
        inode.state().changed_shared(change);
        Ok(true)
    }

    /// [`Body::discard_behind`](crate::file::body::Body::discard_behind).
    pub(in crate::file) fn drop_behind(&self, file: &mut FileState, size: u64) {
        self.drop_pages(file, pages_up_to(size)..u64::MAX);
        if tail_bytes(size) > 0
            && let Some(page) = file.pages.get_mut(size / BLOCK_BYTES_U64)
        {
            // Clean or dirty, its slot has a zero tail too: rewritten now, or never longer than
            // this.
            page.bytes_mut()[tail_bytes(size)..].fill(0);
        }
    }

    /// If the file will end inside a page whose old bytes are on the device: writes that page with
    /// a zero tail to a new block.
    pub(in crate::file) fn save_tail(&self, inode: &Inode, size: u64) -> Result<Option<Target>> {
        let core = self.store.partition();
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
        self.store.reserve_blocks(core, 1, OpClass::Delete)?;
        let saved = self.save_frame(page, slot, &frame);
        self.pages.frames.give(core, frame);
        if saved.is_err() {
            self.unreserve(core, 1);
        }
        saved.map(Some)
    }

    fn save_frame(&self, page: u64, old: Slot, frame: &Frame) -> Result<Target> {
        let core = self.store.partition();
        let mut targets = [Target::new(
            page,
            old,
            dure_block::crc32c::crc32c(frame.bytes()),
        )];
        let written = self
            .store
            .placement
            .allocate(core, &mut targets, self.options.tier(true))
            .and_then(|()| self.store.place_pages(core, &mut targets, frame.bytes()));
        if written.is_err() {
            self.store.placement.release(&targets);
        }
        written.map(|()| targets[0])
    }
}
