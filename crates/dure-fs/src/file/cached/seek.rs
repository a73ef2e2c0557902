//! Finding data and holes where pages may be in memory.
//!
//! Dirty pages are data, besides what written slots name. A walk holds the inode shared, some
//! pages at a time.

use dure_store::error::Result;
use dure_store::units::BLOCK_BYTES_U64;

use super::growth::Growth;
use crate::file::Files;
use crate::file::map::MapReader;
use crate::file::seek::{STEP_PAGES, stretch};
use crate::file::seek_hint::SeekTarget;
use crate::inode::{Inode, InodeState};

impl Files {
    /// [`Body::seek`](crate::file::body::Body::seek).
    pub(in crate::file) fn seek_cached(
        &self,
        inode: &Inode,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>> {
        let mut page = offset / BLOCK_BYTES_U64;
        loop {
            let state = inode.state().read();
            let mut map = MapReader::new(self, inode);
            // No writer adds pages or moves the end until what was found is stored.
            let _growth = inode.state().growth().map(Growth::share);
            let size = inode.state().seek_hint().size();
            if offset >= size {
                return Ok(None);
            }
            let end = size.div_ceil(BLOCK_BYTES_U64);
            if page >= end {
                return Ok((target == SeekTarget::Hole).then_some(size));
            }
            let step = end.min(page + STEP_PAGES);
            let found = match target {
                SeekTarget::Data => next_data(&state, &mut map, page, step)?,
                SeekTarget::Hole => next_hole(&state, &mut map, page, step)?,
            };
            let last = step == end;
            let found = match (found, target) {
                (Some(found), _) => found * BLOCK_BYTES_U64,
                (None, SeekTarget::Hole) if last => size,
                (None, SeekTarget::Data) if last => return Ok(None),
                (None, _) => {
                    page = step;
                    continue;
                }
            };
            // Nothing is kept of a small file: programs that copy one ask once.
            if end > 1
                && let Some(stretch) = stretch(page, found, size, target)
            {
                inode.sharing().stretches.show(target, &stretch);
            }
            return Ok(Some(offset.max(found)));
        }
    }
}

/// The first page of data from `from` on. The caller holds the inode.
fn next_data(
    state: &InodeState,
    map: &mut MapReader<'_>,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let file = state.file();
    let dirty = file.pages.next_unclean(from..to);
    let to = dirty.unwrap_or(to).min(file.map_end());
    let mut page = from;
    while let Some((mapped, slot)) = map.next_mapped(page, to)? {
        if slot.is_written() {
            return Ok(Some(mapped));
        }
        page = mapped + 1;
    }
    Ok(dirty)
}

/// The first page of a hole from `from` on. The caller holds the inode.
fn next_hole(
    state: &InodeState,
    map: &mut MapReader<'_>,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let file = state.file();
    for page in from..to {
        let mut written =
            || -> Result<bool> { Ok(!file.is_cut(page) && map.slot(page)?.is_written()) };
        if !file.pages.is_unclean(page) && !written()? {
            return Ok(Some(page));
        }
    }
    Ok(None)
}
