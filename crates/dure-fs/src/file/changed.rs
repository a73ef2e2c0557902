//! Which pages of a file do not lie where they did in an older state of the volume.
//!
//! **Problem.** To compare content reads all of a file twice. **Structure.** Nothing live is
//! overwritten, and the blocks of a snapshot stay its own: a page whose slot is the same, and that does
//! not wait for write-back, has the same content. Slots of both states are collected, [`WINDOW`] at a
//! time, and merged. **Invariants.** Each state is read under its own inode lock, and no two are held
//! together. **Crash.** Nothing is changed.

use std::ops::{ControlFlow, Range};

use dure_store::error::Result;
use dure_store::format::slot::Slot;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::Arc;

use super::Files;
use super::map::MapReader;
use crate::inode::Inode;

/// Slots that are collected at once.
const WINDOW: usize = 2048;

/// A page, and its slot; `None`: it waits for write-back.
type Place = (u64, Option<Slot>);

/// Pages that have content, and the page from which on they are not known.
struct Mapped {
    slots: Vec<Place>,
    end: u64,
}

impl Files {
    /// See [`FileSystem::changed_ranges`](crate::volume::FileSystem::changed_ranges).
    pub(crate) fn changed(
        &self,
        inode: &Arc<Inode>,
        (older, before): (&Files, &Arc<Inode>),
        each: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = 0;
        while from < u64::MAX {
            let was = older.mapped(before, from)?;
            let is = self.mapped(inode, from)?;
            let end = was.end.min(is.end);
            for pages in differing(&was.slots, &is.slots, end) {
                let bytes = pages.start * BLOCK_BYTES_U64..pages.end * BLOCK_BYTES_U64;
                if each(bytes).is_break() {
                    return Ok(());
                }
            }
            from = end;
        }
        Ok(())
    }

    fn mapped(&self, inode: &Arc<Inode>, from: u64) -> Result<Mapped> {
        let state = inode.state().read();
        let mut map = MapReader::new(self, inode);
        let (file, mut slots, mut page) = (state.file(), Vec::new(), from);
        while slots.len() < WINDOW {
            let mapped = map.next_mapped(page, file.map_end())?;
            let end = mapped.map_or(u64::MAX, |(found, _)| found + 1);
            let unclean = file.pages.next_unclean(page..end).map(|page| (page, None));
            let mapped = mapped.map(|(page, slot)| (page, Some(slot)));
            let Some(found) = unclean.or(mapped) else {
                let end = u64::MAX;
                return Ok(Mapped { slots, end });
            };
            slots.push(found);
            page = found.0 + 1;
        }
        Ok(Mapped { slots, end: page })
    }
}

/// The pages before `end` that are not the same in both, as runs.
fn differing(was: &[Place], is: &[Place], end: u64) -> Vec<Range<u64>> {
    let (mut was, mut is) = (was.iter().peekable(), is.iter().peekable());
    let mut runs: Vec<Range<u64>> = Vec::new();
    loop {
        let pages = was.peek().into_iter().chain(is.peek());
        let Some(page) = pages
            .map(|(page, _)| *page)
            .min()
            .filter(|page| *page < end)
        else {
            return runs;
        };
        let slot = |(_, slot): &Place| *slot;
        let old = was.next_if(|(at, _)| *at == page).map(slot);
        let new = is.next_if(|(at, _)| *at == page).map(slot);
        let is_known = old != Some(None) && new != Some(None);
        if is_known && old == new {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == page => run.end = page + 1,
            _ => runs.push(page..page + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dure_store::units::BlockNo;

    #[test]
    fn what_only_one_has_and_what_lies_elsewhere_differs() {
        let slots = |all: &[(u64, u64)]| -> Vec<Place> {
            let slot = |&(page, block): &(u64, u64)| match block {
                0 => (page, None),
                block => (page, Some(Slot::written(BlockNo(block), 1))),
            };
            all.iter().map(slot).collect()
        };
        let was = slots(&[(0, 10), (1, 11), (2, 12), (7, 17), (9, 19)]);
        let is = slots(&[(0, 10), (1, 21), (3, 13), (7, 17), (8, 18), (9, 19)]);
        assert_eq!(differing(&was, &is, u64::MAX), [1..4, 8..9]);
        assert_eq!(differing(&was, &is, 3).first(), Some(&(1..3)));
        assert_eq!(differing(&was, &was, u64::MAX), []);
        let waiting = slots(&[(0, 10), (1, 0), (2, 12), (3, 0), (7, 17), (9, 19)]);
        assert_eq!(differing(&was, &waiting, u64::MAX), [1..2, 3..4]);
        assert_eq!(differing(&waiting, &waiting, u64::MAX), [1..2, 3..4]);
    }
}
