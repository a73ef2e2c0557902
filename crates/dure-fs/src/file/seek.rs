//! Finding data and holes.
//!
//! **Structure.** A hint answers most seeks ([`super::seek_hint`]); else the [body](super::body)
//! looks, and keeps what it found for the next. Data is what a written slot names, and what waits
//! to get one. Preallocated pages are holes until they are written. The end of the file is a hole.

use dure_store::error::Result;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use super::Files;
use super::seek_hint::{Behind, SeekTarget, Stretch};
use crate::inode::Inode;

/// Pages looked at before the inode lock is released for a moment.
pub(super) const STEP_PAGES: u64 = 1 << 16;

/// The answer, if it takes no lock: see [`super::seek_hint`].
fn known(inode: &Inode, offset: u64, target: SeekTarget) -> Option<Option<u64>> {
    let found = inode.state().seek_hint().answer(offset, target);
    let is_behind = || offset >= inode.state().seek_hint().size();
    found.map(Some).or_else(|| is_behind().then_some(None))
}

/// The stretch to store when the first data, or hole, from the beginning of `page` on is at
/// `found`.
pub(super) fn stretch(page: u64, found: u64, size: u64, target: SeekTarget) -> Option<Stretch> {
    let start = page * BLOCK_BYTES_U64;
    match target {
        SeekTarget::Data => Some(Stretch {
            hole: page,
            data: found / BLOCK_BYTES_U64,
            end: size.min(found + BLOCK_BYTES_U64),
            behind: Behind::Unknown,
        }),
        SeekTarget::Hole if found > start => Some(Stretch {
            hole: page,
            data: page,
            end: found,
            behind: Behind::Hole,
        }),
        // The page itself, if it is not the last.
        SeekTarget::Hole => (start + BLOCK_BYTES_U64 <= size).then_some(Stretch {
            hole: page,
            data: page + 1,
            end: start + BLOCK_BYTES_U64,
            behind: Behind::Unknown,
        }),
    }
}

impl Files {
    /// See [`FileSystem::seek`](crate::volume::FileSystem::seek).
    pub(crate) fn seek(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>> {
        if let Some(known) = known(inode, offset, target) {
            return Ok(known);
        }
        self.body.seek(self, inode, offset, target)
    }
}
