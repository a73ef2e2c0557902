//! Finding data and holes.
//!
//! Data is what a written slot names, and what is dirty in memory. Preallocated pages are holes
//! until they are written. The end of the file is a hole.

use dure_store::error::Result;
use dure_store::units::BLOCK_BYTES_U64;

use super::cached::page::PageStore;
use super::cached::pending_pages::PendingPages;
use super::map::MapReader;
use super::seek_hint::{Behind, Stretch};
use crate::inode::{Inode, InodeRef, InodeState};
use crate::volume::FileSystem;

/// Pages looked at before the inode lock is released for a moment.
pub(super) const STEP_PAGES: u64 = 1 << 16;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Bytes that were written.
    Data,
    /// Bytes that were not.
    Hole,
}

impl FileSystem {
    /// The size of a regular file. Cheaper than its attributes, and not kept waiting by tasks that
    /// change these.
    ///
    /// # Errors
    /// `Invalid` for another type of inode.
    pub fn size(&self, inode: &InodeRef) -> Result<u64> {
        Ok(super::regular(inode)?.state().seek_hint().size())
    }

    /// The first offset at or behind `offset` that is data, or a hole. `None` when there is none:
    /// the offset is at or behind the end of the file, or only a hole follows.
    ///
    /// # Errors
    /// `Corrupt` and device errors of reading the map; `Invalid` for another type of inode.
    pub fn seek(&self, inode: &InodeRef, offset: u64, target: SeekTarget) -> Result<Option<u64>> {
        let inode = super::regular(inode)?;
        if let Some(known) = known(inode, offset, target) {
            return Ok(known);
        }
        let mut page = offset / BLOCK_BYTES_U64;
        loop {
            let state = inode.state().read();
            let mut map = MapReader::new(&self.0, inode);
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

/// The answer, if it takes no lock: see [`super::seek_hint`].
fn known(inode: &Inode, offset: u64, target: SeekTarget) -> Option<Option<u64>> {
    let found = inode.state().seek_hint().answer(offset, target);
    let is_behind = || offset >= inode.state().seek_hint().size();
    found.map(Some).or_else(|| is_behind().then_some(None))
}

/// The stretch to store when the first data, or hole, from the beginning of `page` on is at
/// `found`.
fn stretch(page: u64, found: u64, size: u64, target: SeekTarget) -> Option<Stretch> {
    let start = page * BLOCK_BYTES_U64;
    match target {
        SeekTarget::Data => Some(Stretch {
            hole: page,
            data: found / BLOCK_BYTES_U64,
            end: size.min(found + BLOCK_BYTES_U64),
            behind: Behind::Unknown,
        }),
        SeekTarget::Hole => (found > start).then_some(Stretch {
            hole: page,
            data: page,
            end: found,
            behind: Behind::Hole,
        }),
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
