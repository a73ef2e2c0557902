//! Data and holes of files, some of whose pages only the kernel has.
//!
//! **Problem.** A page that waits in the kernel's cache may be data where dure has a hole yet, or lie
//! behind what dure takes for the end of the file. **Structure.** Before a hole is believed, the
//! kernel sends the pages that it has there, and drops them; then the answer is found anew, until it
//! is the same twice. Pages of data stay in the kernel's cache.
//!
//! **Invariants.** One call of a mount waits for the kernel at a time ([`super::asking`]). One that finds
//! no turn is answered ENOSYS, as are all that follow: the kernel takes each file of the mount for
//! data as a whole from then on, which is always right, and asks no more.
//!
//! **On a crash** nothing of this remains.

use std::ops::Range;

use dure_fs::{InodeRef, SeekTarget};
use dure_fuse_wire::{Knows, Question};
use dure_sync::atomic::Ordering;

use super::{Answer, Server, errno};

/// How often an answer is found at most. A caller that writes meanwhile may get either answer.
const ROUNDS_MAX: u32 = 8;
const PAGE: u64 = 4096;

impl Server {
    /// LSEEK for `SEEK_DATA` and `SEEK_HOLE`.
    ///
    /// # Errors
    /// ENXIO beyond the end; EINVAL for another `whence`; ENOSYS when too many ask at once, after
    /// which the kernel treats the whole of each file as data.
    pub fn seek(&self, node: u64, offset: u64, whence: i32, kernel: Knows<'_>) -> Answer<u64> {
        let target = match whence {
            libc::SEEK_DATA => SeekTarget::Data,
            libc::SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(libc::EINVAL),
        };
        let inode = self.inode(node)?;
        let find = || self.volume.seek(&inode, offset, target).map_err(errno);
        let mut found = find()?;
        if self.kernel_collects && !is_data(found, offset, target) {
            if self.seeks_ended.load(Ordering::Relaxed) {
                return Err(libc::ENOSYS);
            }
            let Some(_asking) = self.asks.begin() else {
                self.seeks_ended.store(true, Ordering::Relaxed);
                return Err(libc::ENOSYS);
            };
            for _ in 0..ROUNDS_MAX {
                let before = found;
                kernel(Question::Pages {
                    node,
                    bytes: self.doubtful(&inode, offset, (before, target))?,
                });
                found = find()?;
                if found == before {
                    break;
                }
            }
        }
        found.ok_or(libc::ENXIO)
    }

    /// What dure takes for a hole, or for behind the end, and has answered by.
    fn doubtful(
        &self,
        inode: &InodeRef,
        offset: u64,
        (found, target): (Option<u64>, SeekTarget),
    ) -> Answer<Range<u64>> {
        let data_from = |hole| self.volume.seek(inode, hole, SeekTarget::Data);
        let (start, end) = match (target, found) {
            (SeekTarget::Data, end) => (offset, end),
            (SeekTarget::Hole, None) => (offset, None),
            (SeekTarget::Hole, Some(hole)) => (hole, data_from(hole).map_err(errno)?),
        };
        Ok(start / PAGE * PAGE..end.unwrap_or(u64::MAX))
    }
}

/// Whether the answer is what dure has: data at the very place.
fn is_data(found: Option<u64>, offset: u64, target: SeekTarget) -> bool {
    target == SeekTarget::Data && found == Some(offset)
}
