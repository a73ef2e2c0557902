//! Whether a read, a write or an fsync would wait.
//!
//! **Problem.** A task that serves several callers must not wait for one of them. **Structure.** It
//! asks before, and lets another task do what would wait. **Invariants.** An answer is a guess:
//! pages come and go meanwhile. It writes nothing, and waits for nothing itself. **On a crash**
//! nothing remains.

use dure_store::units::{BLOCK_BYTES_U64, to_u64};

use crate::file::Files;
use crate::file::bytes::split;
use crate::inode::{Inode, InodeState};

/// An fsync of at most so many pages takes some tens of microseconds where the medium is memory.
const PROMPT_PAGES: u64 = 8;

impl Files {
    /// [`Body::read_waits`](crate::file::body::Body::read_waits).
    pub(in crate::file) fn read_cached_waits(
        &self,
        inode: &Inode,
        (offset, len): (u64, usize),
    ) -> bool {
        if !self.store.reads_wait() {
            return false;
        }
        let Some(state) = inode.state().try_read() else {
            return true;
        };
        let end = offset.saturating_add(to_u64(len));
        let end = end.min(inode.size_up_to(&state, end));
        // Pages of holes count as missing: to know them, the map would have to be read.
        let is_missing = |page: u64| !state.file().pages.contains(page);
        offset < end && (split(offset).0..end.div_ceil(BLOCK_BYTES_U64)).any(is_missing)
    }

    /// [`Body::write_waits`](crate::file::body::Body::write_waits).
    pub(in crate::file) fn write_cached_waits(
        &self,
        inode: &Inode,
        (offset, len): (u64, usize),
    ) -> bool {
        if self.writers_pause() {
            return true;
        }
        if !self.store.reads_wait() {
            return false;
        }
        let Some(state) = inode.state().try_read() else {
            return true;
        };
        let mut lacking = pages_lacking(inode, &state, (offset, len));
        lacking.next().is_some()
    }

    /// [`Body::fsync_waits`](crate::file::body::Body::fsync_waits).
    pub(in crate::file) fn fsync_cached_waits(&self, inode: &Inode) -> bool {
        if self.store.reads_wait() {
            return true;
        }
        let state = inode.state().try_read();
        state.is_none_or(|state| state.file().pages.unclean() > PROMPT_PAGES)
    }
}

/// The pages of which a write keeps a part that is not in memory: it is read first.
pub(super) fn pages_lacking(
    inode: &Inode,
    state: &InodeState,
    (offset, len): (u64, usize),
) -> impl Iterator<Item = u64> {
    let end = offset.saturating_add(to_u64(len));
    let size = inode.size_up_to(state, end);
    let lacks = |at: u64, is_kept: bool| {
        let (page, within) = split(at);
        let lacks = within != 0 && is_kept && !state.file().pages.contains(page);
        lacks.then_some(page)
    };
    let (first, _) = split(offset);
    let first = lacks(offset, first * BLOCK_BYTES_U64 < size);
    let last = lacks(end, end < size).filter(|last| Some(*last) != first);
    first.into_iter().chain(last)
}
