//! Reading what lies in persistent memory.
//!
//! **Structure.** The inode is held shared for all of the call, and in a contended file the range of
//! its pages, or if that is taken the inode exclusively; for each page its slot is looked up and the
//! caller's bytes are copied from the block ([`dure_store::placement`] says when they are compared
//! with their checksum). Holes and unwritten slots read as zeroes.
//! **Invariants.** A read is of one moment: no operation changes the slots of its pages meanwhile. A
//! line that the medium has lost fails its page, and no other. **On a crash** nothing is lost by a
//! reader.

use dure_store::error::Result;
use dure_store::units::{BLOCK_BYTES, to_u64};

use crate::file::Files;
use crate::file::bytes::split;
use crate::file::map::MapReader;
use crate::file::state::FileState;
use crate::inode::{Inode, InodeState};

impl Files {
    /// [`Body::read`](crate::file::body::Body::read).
    pub(in crate::file) fn read_direct(
        &self,
        inode: &Inode,
        (offset, buf): (u64, &mut [u8]),
    ) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let (from, len) = self.body.claim(offset, buf.len());
        let range = inode.ranges_in(self).share(from, len);
        let state = inode.state().read();
        // A file becomes contended under the exclusive inode lock only, so not while this task
        // holds the inode.
        if range.is_some() || !inode.ranges().are_locked() {
            return self.read_under(inode, &state, (offset, buf));
        }
        drop(state);
        let state = inode.state().write_keep_cached();
        self.read_under(inode, &state, (offset, buf))
    }

    /// Like [`Files::read_direct`]. The caller holds the inode; of a contended file exclusively, or
    /// the range of its pages.
    fn read_under(
        &self,
        inode: &Inode,
        state: &InodeState,
        (offset, buf): (u64, &mut [u8]),
    ) -> Result<usize> {
        inode.note_read(&self.inodes, state);
        let left = state.file().size().saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut map = MapReader::new(self, inode);
        let mut done = 0;
        while done < len {
            let (page, within) = split(offset + to_u64(done));
            let part = (BLOCK_BYTES - within).min(len - done);
            let out = &mut buf[done..done + part];
            match self.copy_from_page((inode, state.file()), &mut map, page, (within, out)) {
                Ok(()) => done += part,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies bytes of a page, from its byte `within` on. The caller holds the inode.
    fn copy_from_page(
        &self,
        (inode, file): (&Inode, &FileState),
        map: &mut MapReader<'_>,
        page: u64,
        (within, out): (usize, &mut [u8]),
    ) -> Result<()> {
        let slot = map.slot(page)?;
        if !slot.is_written() || file.is_cut(page) {
            out.fill(0);
            return Ok(());
        }
        let what = || format!("checksum of page {page} of inode {}", inode.ino);
        self.store.placement.read_part(&slot, (within, out), what)
    }
}
