//! Allocating and giving up blocks.

use dure_store::error::Result;

use crate::file::{AllocateMode, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

impl FileSystem {
    /// Allocates, punches or zeroes `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` for an empty range or another type of inode, `TooLarge`, `NoSpace` (nothing has
    /// changed), `ReadOnly`, `Stopped`, device errors (what was done so far stays).
    pub fn allocate(
        &self,
        inode: &InodeRef,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.0.files.allocate(regular(inode)?, mode, offset, len)
    }
}
