//! Clones: files that share blocks.

use dure_store::error::{Error, Result};

use crate::file::{Deduped, regular};
use crate::inode::InodeRef;
use crate::volume::FileSystem;

impl FileSystem {
    /// Whether files can share blocks: not without a page cache.
    #[must_use]
    pub fn can_clone(&self) -> bool {
        self.0.files.can_clone()
    }

    /// Blocks that clones spare: as many more there would be, if each file had its own. Looks at all
    /// segments with shared blocks.
    #[must_use]
    pub fn blocks_shared(&self) -> u64 {
        self.0.store.space.spared_blocks()
    }

    /// Makes `len` bytes of `target` from `to` on what `source` has from `from` on, by naming the same
    /// blocks. Returns how many bytes, from the start of the range, are cloned: what is behind them is
    /// unchanged, and the caller may copy it. Nothing is cloned if `from` or `to` is no multiple of 4096,
    /// or the volume has no page cache, or both are one file; of the last page, if it is not whole,
    /// only the end of the source, at the end of the target. The clone is no more durable than a write.
    ///
    /// # Errors
    /// `Invalid` unless both are regular files of this volume; `TooLarge`; if nothing is cloned: `Corrupt`, `Stopped`,
    /// `ReadOnly`, device errors. That there is no room is no error: less is cloned.
    pub fn clone_range(
        &self,
        (source, from): (&InodeRef, u64),
        (target, to): (&InodeRef, u64),
        len: u64,
    ) -> Result<u64> {
        let (source, target) = (regular(source)?, regular(target)?);
        let files = &self.0.files;
        match files.clone_range((source, from), (target, to), len) {
            Err(Error::NoSpace { .. }) => Ok(0),
            done => done,
        }
    }

    /// Lets `len` bytes of `target` from `to` on name the blocks of `source` from `from` on, as far as
    /// their bytes are the same, compared from the start of the range on. No reader sees a difference,
    /// in times neither. Nothing is compared if `from` or `to` is no multiple of 4096, or the volume has no page
    /// cache, or both are one file; the last page, if it is not whole, only if both files end in it.
    ///
    /// # Errors
    /// `Invalid` unless both are regular files of this volume; `TooLarge`; if nothing is shared: `Corrupt`,
    /// `Stopped`, `ReadOnly`, device errors. That there is no room is no error: less is shared.
    pub fn dedupe_range(
        &self,
        (source, from): (&InodeRef, u64),
        (target, to): (&InodeRef, u64),
        len: u64,
    ) -> Result<Deduped> {
        let (source, target) = (regular(source)?, regular(target)?);
        let files = &self.0.files;
        match files.dedupe_range((source, from), (target, to), len) {
            Err(Error::NoSpace { .. }) => Ok(Deduped::default()),
            done => done,
        }
    }
}
