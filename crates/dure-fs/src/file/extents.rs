//! How a file lies on the device.

use dure_store::error::Result;
use dure_store::units::{BLOCK_BYTES_U64, BlockNo};
use dure_sync::Arc;

use super::Files;
use super::map::MapReader;
use super::seek::STEP_PAGES;
use crate::inode::Inode;

/// The blocks of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Runs of blocks that are neighbours on the device and in the file: as few as can be read with
    /// one request each.
    pub runs: u64,
    /// Blocks of 4 KiB, preallocated ones too.
    pub blocks: u64,
}

impl Files {
    /// See [`FileSystem::extents`](crate::volume::FileSystem::extents).
    pub(crate) fn extents(&self, inode: &Arc<Inode>) -> Result<Extents> {
        let mut extents = Extents::default();
        // The page and the block that would go on with the last run.
        let mut next = None;
        let mut from = 0;
        loop {
            let state = inode.state().read();
            // A reader remembers a leaf, which may be freed once the lock is released.
            let mut map = MapReader::new(self, inode);
            let end = state
                .file()
                .size()
                .div_ceil(BLOCK_BYTES_U64)
                .min(state.file().map_end());
            let step = end.min(from + STEP_PAGES);
            while let Some((page, slot)) = map.next_mapped(from, step)? {
                let block = slot.block().0;
                extents.blocks += 1;
                extents.runs += u64::from(next != Some((page, block)));
                next = Some((page + 1, block + 1));
                from = page + 1;
            }
            if step == end {
                return Ok(extents);
            }
            from = step;
        }
    }

    /// The page of a file that lies in this block, if one does. Looks at all of the map.
    ///
    /// # Errors
    /// Those of reading nodes.
    pub(crate) fn page_in(&self, inode: &Arc<Inode>, block: BlockNo) -> Result<Option<u64>> {
        let mut from = 0;
        loop {
            let state = inode.state().read();
            let mut map = MapReader::new(self, inode);
            // What was written lies within the size: behind it is only what was preallocated.
            let size_pages = state.file().size().div_ceil(BLOCK_BYTES_U64);
            let end = size_pages.min(state.file().map_end());
            let step = end.min(from + STEP_PAGES);
            while let Some((page, slot)) = map.next_mapped(from, step)? {
                if slot.block() == block {
                    return Ok(Some(page));
                }
                from = page + 1;
            }
            if step >= end {
                return Ok(None);
            }
            from = step;
        }
    }

    /// Copies a page that is in memory; false if it is not, or a writer tears the copy.
    pub(crate) fn copy_cached(&self, inode: &Inode, page: u64, out: &mut [u8]) -> bool {
        let state = inode.state().read();
        let cached = state.file().pages.get(page);
        cached.is_some_and(|cached| cached.load_versioned(0, out))
    }
}
