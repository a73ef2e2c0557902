//! Reading.
//!
//! **Structure.** Pages in memory are copied out under the shared inode lock: one lock, one lookup
//! and one copy per page, and, if the file has a range lock, a check of the page's sequence count
//! before and after. A reader whose copies are torn again and again takes the range shared, or, if
//! that is taken, the inode exclusively. Where a page is missing, [`miss`] reads it from the device,
//! or [`ahead`] has done so before.
//!
//! **On a crash** nothing is lost by a reader.

mod ahead;
mod miss;
mod misses;
mod readings;

use dure_store::error::Result;
use dure_store::units::{BLOCK_BYTES, to_u64};
use dure_sync::Arc;

use crate::file::Files;
use crate::file::bytes::split;
use crate::file::ranges::Range as HeldRange;
use crate::file::read::ReadMode;
use crate::inode::{Inode, InodeState};
use crate::volume::RangeRule;

pub(crate) use self::ahead::ReadAhead;
pub(crate) use self::misses::Misses;
pub(crate) use self::readings::Readings;

/// Whether others may write to pages concurrently with a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    Concurrent,
    None,
}

/// Copies from pages in memory until one is missing; returns how many bytes. `None`: every copy of
/// a page was torn by concurrent writers.
#[inline]
fn copy_hits(state: &InodeState, offset: u64, buf: &mut [u8], writers: Writers) -> Option<usize> {
    let mut done = 0;
    while done < buf.len() {
        let (page, within) = split(offset + to_u64(done));
        let len = (BLOCK_BYTES - within).min(buf.len() - done);
        let part = &mut buf[done..done + len];
        match (state.file().pages.get(page), writers) {
            (Some(cached), Writers::None) => cached.load(within, part),
            (Some(cached), Writers::Concurrent) if cached.load_versioned(within, part) => {}
            (Some(_), Writers::Concurrent) => return None,
            (None, _) => break,
        }
        done += len;
    }
    Some(done)
}

impl Files {
    /// [`Body::read`](crate::file::body::Body::read).
    #[inline]
    pub(in crate::file) fn read_cached(
        &self,
        inode: &Arc<Inode>,
        (offset, buf): (u64, &mut [u8]),
        mode: ReadMode,
    ) -> Result<usize> {
        let range = match self.options.ranges_queue {
            true => self.share_range(inode, offset, buf.len()),
            false => None,
        };
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(to_u64(done));
            let rest = &mut buf[done..];
            let (len, hit) = match &range {
                None => self.read_in_memory(inode, at, rest),
                Some(range) => self.read_held(inode, range, at, rest),
            };
            if len == 0 {
                break;
            }
            done += hit;
            if hit == len {
                break;
            }
            match self.read_missing(inode, at + to_u64(hit), &mut rest[hit..len], mode) {
                // The end of the file stays where it was first seen: a page that a later size
                // covers might be read half at one moment, half at another.
                Ok(read) if hit + read == len => {
                    done += read;
                    break;
                }
                Ok(read) => done += read,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The bytes of a read, shared, for all of the call: where tasks queue for ranges.
    #[inline(never)]
    fn share_range<'i>(&self, inode: &'i Inode, offset: u64, len: usize) -> Option<HeldRange<'i>> {
        match self.options.rules.ranges {
            RangeRule::Unchecked(_) => None,
            _ => inode.ranges_in(self).share(offset, len),
        }
    }

    /// Like `read_in_memory`, for a holder of the range: writers wait until the read is over.
    fn read_held(
        &self,
        inode: &Inode,
        range: &HeldRange<'_>,
        offset: u64,
        rest: &mut [u8],
    ) -> (usize, usize) {
        debug_assert!(
            range.range().first() <= offset,
            "bytes are read whose range is not held"
        );
        let state = inode.state().read();
        self.read_hits(inode, &state, offset, rest, Writers::None)
            .expect("a shared range keeps writers out, so no copy is torn")
    }

    /// How much of `rest` the file has at `offset`, and how much of that was in memory and is in
    /// `rest` now.
    #[inline]
    fn read_in_memory(&self, inode: &Inode, offset: u64, rest: &mut [u8]) -> (usize, usize) {
        if let Some(found) = self.read_shared(inode, offset, rest) {
            return found;
        }
        // Writers of these pages wait for a copy, for once.
        if let Some(range) = inode.ranges().share(offset, rest.len()) {
            return self.read_held(inode, &range, offset, rest);
        }
        let state = inode.state().write();
        self.read_hits(inode, &state, offset, rest, Writers::None)
            .expect("an exclusive holder races with no writer")
    }

    /// Like `read_in_memory`, with no range. `None`: every copy was torn by concurrent writers.
    #[inline]
    fn read_shared(&self, inode: &Inode, offset: u64, rest: &mut [u8]) -> Option<(usize, usize)> {
        let state = inode.state().read();
        // The range lock is made under the exclusive inode lock: if there is none now, no task
        // writes to pages while this one holds the inode shared.
        let writers = match inode.ranges().are_locked() {
            true if !matches!(self.options.rules.ranges, RangeRule::Unchecked(_)) => {
                Writers::Concurrent
            }
            _ => Writers::None,
        };
        self.read_hits(inode, &state, offset, rest, writers)
    }

    #[inline]
    fn read_hits(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        rest: &mut [u8],
        writers: Writers,
    ) -> Option<(usize, usize)> {
        let end = offset.saturating_add(to_u64(rest.len()));
        let left = inode.size_up_to(state, end).saturating_sub(offset);
        let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        inode.note_read(&self.inodes, state);
        Some((len, copy_hits(state, offset, &mut rest[..len], writers)?))
    }
}

impl Inode {
    /// The size of the file, as far as it matters to a call that goes no further than `end`: calls
    /// within the settled size do not read the line that appends change.
    #[inline]
    pub(super) fn size_up_to(&self, shared: &InodeState, end: u64) -> u64 {
        let settled = shared.file().size();
        if end <= settled {
            settled
        } else {
            self.state().seek_hint().size()
        }
    }
}
