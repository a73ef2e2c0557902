//! What a caller knows about its next reads (`posix_fadvise`).
//!
//! **Structure.** Pages that will be needed are submitted as windows of the read-ahead, as many as there
//! is room for; those that will not are dropped if they equal what the device has. Readers in order and
//! at random need no advice: the read-ahead tells them apart. **On a crash** nothing of this remains.

use std::ops::Range;

use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use super::Files;
use super::body::Body;
use super::bytes::pages_up_to;
use crate::inode::Inode;

/// What a caller says of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read soon.
    WillNeed,
    /// It will not be read again soon.
    DontNeed,
}

impl Files {
    /// See [`FileSystem::advise`](crate::volume::FileSystem::advise).
    pub(crate) fn advise(&self, inode: &Arc<Inode>, bytes: &Range<u64>, advice: Advice) {
        if self.body == Body::Direct {
            return;
        }
        let size = inode.state().seek_hint().size();
        match advice {
            Advice::WillNeed => self.read_ahead_of(inode, bytes.start..bytes.end.min(size)),
            Advice::DontNeed => {
                // A page of which a part is needed stays; the last one ends with the file.
                let behind = match bytes.end >= size {
                    true => pages_up_to(size),
                    false => bytes.end / BLOCK_BYTES_U64,
                };
                self.drop_clean_pages(inode, pages_up_to(bytes.start)..behind);
            }
        }
    }
}
