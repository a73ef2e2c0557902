//! Making files shorter and longer, and zeroes, where no page is in memory.
//!
//! **Structure.** Longer: one operation with the size and the times. Shorter: the page in which the
//! file is to end is written with a zero tail to another block, then the slots go
//! ([`crate::file::truncate`]). Zeroes within a page are a write of it.
//! **Invariants.** As of writes. **On a crash** the size is the old or the new one, with the bytes
//! that belong to it.

use std::ops::Range;

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_usize};
use dure_sync::Arc;

use crate::file::Files;
use crate::file::map::MapReader;
use crate::file::state::Stamp;
use crate::file::write::Room;
use crate::inode::Inode;

impl Files {
    /// [`Body::truncate`](crate::file::body::Body::truncate).
    pub(in crate::file) fn truncate_direct(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        let (longer, same) = {
            let state = inode.state().read();
            let longer = size > state.file().size();
            (longer, !longer && self.is_end(inode, &state, size)?)
        };
        if longer || same {
            return self.log_end(inode, longer.then_some(size));
        }
        let tail = self.save_tail(inode, size)?;
        self.cut(inode, size, tail)
    }

    /// [`Body::end_allocation`](crate::file::body::Body::end_allocation), and the end of a file
    /// that becomes longer: logs the time of now, and a size unless the file is longer.
    pub(in crate::file) fn log_end(&self, inode: &Inode, size: Option<u64>) -> Result<()> {
        let mut op = self.store.op(OpKind::Size, OpClass::Delete, 1)?;
        let mut state = inode.state().write();
        let mut data = inode.data_draft(&state);
        let size = size.unwrap_or(0).max(state.file().size());
        data.size = size.into();
        (data.mtime, data.ctime) = (op.time(), op.time());
        inode.store_data(&mut op, &data);
        inode.data_stored(&mut state, &data, op.finish());
        state.file_mut().set_size(inode.state().seek_hint(), size);
        Ok(())
    }

    /// [`Body::zero`](crate::file::body::Body::zero).
    pub(in crate::file) fn zero_direct(
        &self,
        inode: &Arc<Inode>,
        Range { start, end }: Range<u64>,
    ) -> Result<()> {
        let _held = inode.lock_writeback();
        self.finish_cut(inode)?;
        let end = {
            let state = inode.state().read();
            let page = start / BLOCK_BYTES_U64;
            let end = end.min(state.file().size());
            if start >= end || !MapReader::new(self, inode).slot(page)?.is_written() {
                return Ok(());
            }
            end
        };
        let zeroes = &[0; BLOCK_BYTES][..to_usize(end - start)];
        self.write_held(inode, Room::Part, (start, zeroes), Stamp::Keep)
            .map(drop)
    }
}
