//! Finding data and holes where pages may be in memory.
//!
//! Dirty pages are data, besides what written slots name. A walk holds the inode shared, some
//! pages at a time.

use dure_store::error::Result;
use dure_store::units::BLOCK_BYTES_U64;

use super::page::PageStore;
use super::pending_pages::PendingPages;
use crate::file::map::MapReader;
use crate::file::seek::{STEP_PAGES, SeekTarget, stretch};
use crate::inode::{Inode, InodeState};
use crate::volume::Volume;

impl Volume {
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
            let pending_pages = inode.state().pending_pages().map(PendingPages::share);
            let size = inode.state().seek_hint().size();
            if offset >= size {
                return Ok(None);
            }
            let end = size.div_ceil(BLOCK_BYTES_U64);
            if page >= end {
                return Ok((target == SeekTarget::Hole).then_some(size));
            }
            let step = end.min(page + STEP_PAGES);
            let view = View {
                state: &state,
                pending_pages: pending_pages.as_ref().map(|held| &held.pages),
            };
            let found = match target {
                SeekTarget::Data => view.next_data(&mut map, page, step)?,
                SeekTarget::Hole => view.next_hole(&mut map, page, step)?,
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

/// What a holder of the shared inode lock sees of the file's pages.
struct View<'a> {
    state: &'a InodeState,
    /// The pending pages, if the file has any.
    pending_pages: Option<&'a PageStore>,
}

impl View<'_> {
    fn next_data(&self, map: &mut MapReader<'_>, from: u64, to: u64) -> Result<Option<u64>> {
        let file = self.state.file();
        let dirty = file.pages.next_unclean(from..to);
        let end = dirty.unwrap_or(to);
        let pending_pages = self
            .pending_pages
            .and_then(|pending_pages| pending_pages.next_unclean(from..end));
        let dirty = pending_pages.or(dirty);
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

    fn next_hole(&self, map: &mut MapReader<'_>, from: u64, to: u64) -> Result<Option<u64>> {
        let file = self.state.file();
        for page in from..to {
            let mut written =
                || -> Result<bool> { Ok(!file.is_cut(page) && map.slot(page)?.is_written()) };
            let unclean = file.pages.is_unclean(page)
                || self
                    .pending_pages
                    .is_some_and(|pending_pages| pending_pages.is_unclean(page));
            if !unclean && !written()? {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }
}
