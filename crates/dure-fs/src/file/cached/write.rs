//! Writing into the page cache.
//!
//! **Structure.** A write goes in steps of at most 64 pages. If all pages of a step are dirty
//! already (so hold their memory and their reserved blocks), it is one lock, one lookup and one
//! copy per page. Otherwise the step takes memory and blocks first, with no lock held, and looks
//! again under the lock.
//!
//! **Invariants.** A page becomes dirty only with a reserved block. Bytes of a page behind the end
//! of the file are zero, in memory and on the device. A step is atomic against reads, other writes
//! and truncates: it holds the inode exclusively, or, in a contended file, its range
//! ([`crate::file::ranges`]) and the inode shared, and overwrites dirty pages or adds new ones
//! ([`super::write_shared`]).
//!
//! **On a crash** what was not written back is lost, wholly per page.

mod room;
mod source;

use dure_store::error::{Error, Result};
use dure_store::frames::Fill;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::range_lock::{Access, ByteRange};
use dure_sync::{Arc, RwLockWriteGuard};
use smallvec::SmallVec;

use super::cache::{Grant, Want};
use super::waits::pages_lacking;
use crate::file::Files;
use crate::file::bytes::{pages_of, split};
use crate::file::map::{FILE_BYTES_MAX, MapReader};
use crate::file::ranges::Range;
use crate::file::state::Stamp;
use crate::file::write::Room;
use crate::inode::{Inode, InodeState};
use crate::ranks::INODE;
use crate::volume::RangeRule;

pub(super) use source::{Readers, Source};

/// Pages of one step of a write.
const STEP_PAGES: u64 = 64;
const STEP_BYTES: usize = to_usize(STEP_PAGES) * BLOCK_BYTES;
/// Pages of one step of a write that is done wholly or not at all: 1 MiB at any offset.
const WHOLE_PAGES: u64 = 257;
/// Pages of one step of an append, which is atomic up to here.
const APPEND_PAGES: u64 = 1024;

type Exclusive<'i> = RwLockWriteGuard<'i, INODE, InodeState>;

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    At(u64),
    End,
}

/// Pages of a step.
type PageRange = std::ops::Range<u64>;

/// All that a step of a write to these pages can need.
fn all_of(pages: PageRange, nodes: u32, holes: u32) -> Want {
    let most = u32::try_from(pages.end - pages.start + 1).expect("a step has few pages");
    Want {
        frames: most,
        blocks: most,
        nodes,
        holes,
    }
}

impl Files {
    /// [`Body::write`](crate::file::body::Body::write).
    #[inline]
    pub(in crate::file) fn write_cached(
        &self,
        (inode, range): (&Arc<Inode>, Option<Range<'_>>),
        (offset, data): (u64, &[u8]),
        room: Room,
        stamp: Stamp,
    ) -> Result<usize> {
        let source = Source::Bytes(data);
        if let Some(range) = &range
            && source.len() <= STEP_BYTES
            && self.overwrite_shared(inode, range, offset, source, stamp)
        {
            return Ok(source.len());
        }
        let range = range.and_then(|range| inode.widen(range));
        let range = range.as_ref();
        self.write_steps(room, inode, range, (offset, source), stamp)
    }

    /// [`Body::append`](crate::file::body::Body::append).
    pub(in crate::file) fn append_cached(
        &self,
        (inode, range): (&Arc<Inode>, Option<&Range<'_>>),
        data: &[u8],
    ) -> Result<(u64, usize)> {
        let mut first = None;
        let mut done = 0;
        while done < data.len() {
            let step = self.pages.step_pages(APPEND_PAGES).saturating_sub(1).max(1);
            let len = (data.len() - done).min(to_usize(step * BLOCK_BYTES_U64));
            let source = Source::Bytes(&data[done..done + len]);
            let to = (Place::End, Room::Part);
            match self.write_step(inode, range, to, source, Stamp::Set) {
                Ok((at, len)) => {
                    first.get_or_insert(at);
                    done += len;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((first.expect("at least one step was made"), done))
    }

    /// Overwrites bytes of pages that are dirty already and within the file, under the shared inode
    /// lock and concurrently with tasks in other ranges. False: nothing done.
    #[inline]
    fn overwrite_shared(
        &self,
        inode: &Inode,
        range: &Range<'_>,
        offset: u64,
        source: Source<'_>,
        stamp: Stamp,
    ) -> bool {
        debug_assert!(
            ByteRange::new(offset, to_u64(source.len()))
                .is_some_and(|bytes| range.allows(bytes, Access::Exclusive))
                || matches!(self.options.rules.ranges, RangeRule::Broken(_)),
            "bytes are written whose range is not held"
        );
        let _access = self.write_access();
        let state = inode.state().read();
        let done = overwrite(&state, offset, source, Readers::Concurrent);
        if done {
            let change = state.file().stamp(stamp, self.store.now());
            inode.state().changed_shared(change);
        }
        done
    }

    /// [`Body::zero`](crate::file::body::Body::zero).
    pub(in crate::file) fn zero_cached(
        &self,
        (inode, held): (&Arc<Inode>, Option<&Range<'_>>),
        std::ops::Range { start, end }: std::ops::Range<u64>,
    ) -> Result<()> {
        let (page, _) = split(start);
        let end = {
            let state = inode.state().read();
            let end = end.min(inode.size_up_to(&state, end));
            let mapped = || -> Result<bool> {
                let slot = MapReader::new(self, inode).slot(page)?;
                Ok(slot.is_written() && !state.file().is_cut(page))
            };
            let cached = state.file().pages.contains(page);
            if start >= end || !(cached || mapped()?) {
                return Ok(());
            }
            end
        };
        let zeroes = Source::Zeroes(to_usize(end - start));
        self.write_steps(Room::Part, inode, held, (start, zeroes), Stamp::Keep)
            .map(drop)
    }

    /// Writes all of `source` at `offset`, in steps. If the file has a range lock, the caller holds
    /// `range`.
    fn write_steps(
        &self,
        room: Room,
        inode: &Arc<Inode>,
        range: Option<&Range<'_>>,
        (offset, source): (u64, Source<'_>),
        stamp: Stamp,
    ) -> Result<usize> {
        let (mut done, last) = (0, offset + to_u64(source.len()));
        let mut step = match room {
            Room::Part => STEP_PAGES,
            Room::Whole | Room::Promised => WHOLE_PAGES,
        };
        while done < source.len() {
            let at = offset + to_u64(done);
            let pages = self.pages.step_pages(step);
            let end = (at / BLOCK_BYTES_U64 + pages) * BLOCK_BYTES_U64;
            let len = (source.len() - done).min(to_usize(end - at));
            let part = source.part(done, len);
            if let Some(range) = range
                && self.overwrite_shared(inode, range, at, part, stamp)
            {
                done += len;
                continue;
            }
            let to = (Place::At(at), room);
            match self.write_step(inode, range, to, part, stamp) {
                Ok((_, written)) => done += written,
                // The last free blocks may do for a part.
                Err(Error::NoSpace { .. } | Error::Quota { .. })
                    if step > 1 && (room.takes_parts() || self.is_rewrite(inode, at, last)) =>
                {
                    step /= 4;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// One atomic step. Returns where it wrote and how much: all, or what came before a page that
    /// cannot be read.
    fn write_step(
        &self,
        inode: &Arc<Inode>,
        range: Option<&Range<'_>>,
        (place, room): (Place, Room),
        source: Source<'_>,
        stamp: Stamp,
    ) -> Result<(u64, usize)> {
        if let Place::At(offset) = place
            && !(offset | to_u64(source.len())).is_multiple_of(BLOCK_BYTES_U64)
            && self.store.reads_wait()
        {
            self.fetch_pages(inode, offset, source.len());
        }
        if let Some(range) = range
            && let Some(done) = self.add_shared(inode, range, place, source, stamp)?
        {
            return Ok(done);
        }
        let mut grant = self.grant_behind_end(inode, place, source.len())?;
        loop {
            let access = self.write_access();
            let mut state = self.lock_exclusive(inode);
            let offset = match place {
                Place::At(offset) => offset,
                Place::End => state.file().size(),
            };
            if to_u64(source.len()) > FILE_BYTES_MAX - offset.min(FILE_BYTES_MAX) {
                return Err(Error::TooLarge);
            }
            if overwrite(&state, offset, source, Readers::None) {
                state.file().stamp(stamp, self.store.now());
                return Ok((offset, source.len()));
            }
            let pages = pages_of(offset, source.len());
            let missing = state.file().pages.missing(pages.clone());
            let nodes = self.lacking_nodes(inode, &mut state, pages.clone())?;
            let want = Want {
                frames: missing.frames,
                blocks: missing.blocks,
                nodes: state.file().room.lacks(&nodes),
                holes: self.holes(inode, &state, pages.clone())?,
            };
            if let Some(grant) = &mut grant
                && grant.covers(want, state.file())
                && (grant.class != OpClass::Rewrite
                    || self.all_mapped(inode, &state, pages.clone())?)
            {
                grant.use_nodes(&mut state.file_mut().room, &nodes);
                let blocks = grant.blocks();
                let written = self.fill(inode, &mut state, offset, source, stamp, grant)?;
                grant.charged.hand_over(state.charge(), want.holes);
                let dirty = &self.pages.dirty_pages;
                let dirtied = dirty.charge(
                    self.store.partition(),
                    state.file(),
                    blocks - grant.blocks(),
                );
                drop(state);
                drop(access);
                self.pace(dirtied);
                return Ok((offset, written));
            }
            drop(state);
            drop(access);
            // The first time what is missing now; if that changes before the lock is back, all of
            // it.
            let want = match grant.take() {
                None => want,
                Some(_) => all_of(pages.clone(), want.nodes, want.holes),
            };
            grant = Some(self.grant_for(inode, want, (pages, room))?);
        }
    }

    /// Reads what a write keeps of its pages from the device, as long as it holds no lock.
    fn fetch_pages(&self, inode: &Arc<Inode>, offset: u64, len: usize) {
        let lacking: SmallVec<[u64; 2]> = {
            let state = inode.state().read();
            pages_lacking(inode, &state, (offset, len)).collect()
        };
        lacking
            .iter()
            .for_each(|&page| self.fetch_page(inode, page));
    }

    /// What a write to whole pages behind the end needs, if it is at hand: no such page is cached
    /// as a rule, so the state is locked once instead of twice. Only a guess, without a lock.
    #[inline]
    fn grant_behind_end(
        &self,
        inode: &Inode,
        place: Place,
        len: usize,
    ) -> Result<Option<Grant<'_>>> {
        let size = inode.state().seek_hint().size();
        let offset = match place {
            Place::At(offset) => offset,
            Place::End => size,
        };
        if offset < size || !offset.is_multiple_of(BLOCK_BYTES_U64) {
            return Ok(None);
        }
        let pages = u32::try_from(len.div_ceil(BLOCK_BYTES)).expect("a step has few pages");
        let want = Want {
            frames: pages,
            blocks: pages,
            nodes: 0,
            holes: self.inodes.quotas().map_or(0, |_| pages),
        };
        match self.grant_at_hand(inode, want) {
            // Some of these pages may have blocks, which were preallocated.
            Err(Error::Quota { .. }) => Ok(None),
            grant => grant,
        }
    }

    /// Locks the inode exclusively. If another task holds it, or cores take turns, the file is
    /// contended, and later calls take ranges.
    #[inline]
    pub(super) fn lock_exclusive<'i>(&self, inode: &'i Inode) -> Exclusive<'i> {
        let unshared = inode.state().try_write();
        let found = unshared.is_none() || self.options.rules.ranges != RangeRule::WhenContended;
        let mut state = unshared.unwrap_or_else(|| inode.state().write());
        if !inode.ranges().are_locked() {
            let handed_over = inode.state().note_writer();
            if state.file_mut().turns.note(handed_over) || found {
                inode.make_contended(&mut state, self);
            }
        }
        state
    }

    /// Puts the bytes into pages, making them as needed. The grant covers it.
    fn fill(
        &self,
        inode: &Arc<Inode>,
        state: &mut Exclusive<'_>,
        offset: u64,
        source: Source<'_>,
        stamp: Stamp,
        grant: &mut Grant<'_>,
    ) -> Result<usize> {
        let mut done = 0;
        inode
            .state()
            .seek_hint()
            .data_comes(&pages_of(offset, source.len()));
        while done < source.len() {
            let (page, within) = split(offset + to_u64(done));
            let len = (BLOCK_BYTES - within).min(source.len() - done);
            let is_new = !state.file().pages.contains(page);
            if is_new {
                match self.make_page(inode, state, page, len == BLOCK_BYTES, grant) {
                    Ok(()) => {}
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            if state.file_mut().pages.set_dirty(page) {
                grant.use_block();
            }
            let cached = state
                .file()
                .pages
                .get_dirty(page)
                .expect("the page was made and set dirty above");
            source.copy_to(done, cached, within, len, Readers::None);
            if is_new {
                state.file_mut().pages.set_unused(page);
            }
            done += len;
        }
        let file = state.file_mut();
        let size = file.size().max(offset + to_u64(done));
        file.set_size(inode.state().seek_hint(), size);
        file.stamp(stamp, self.store.now());
        self.pages.note_cached(grant.core(), inode, file);
        self.pages.note_dirty(grant.core(), inode, file);
        Ok(done)
    }

    /// Puts `page` in memory: with any content, if it is overwritten whole; else as it is on the
    /// device.
    pub(super) fn make_page(
        &self,
        inode: &Inode,
        state: &mut Exclusive<'_>,
        page: u64,
        whole: bool,
        grant: &mut Grant<'_>,
    ) -> Result<()> {
        let beyond = page * BLOCK_BYTES_U64 >= state.file().size() || state.file().is_cut(page);
        let slot = match whole || beyond {
            true => None,
            false => Some(MapReader::new(self, inode).slot(page)?),
        };
        let frame = match slot.filter(|slot| slot.is_written()) {
            None => grant.frame(if whole { Fill::Any } else { Fill::Zero }),
            Some(slot) => {
                let mut frame = grant.frame(Fill::Any);
                if let Err(error) = self.read_page(inode, page, &slot, frame.bytes_mut()) {
                    self.pages.drop_frame(grant.core(), frame);
                    return Err(error);
                }
                frame
            }
        };
        state.file_mut().pages.insert_new(page, frame);
        Ok(())
    }
}

/// The warm path: copies into pages that are all dirty already, within the file. False: nothing
/// done. The caller holds the inode, or their range, exclusively.
#[inline]
fn overwrite(state: &InodeState, offset: u64, source: Source<'_>, readers: Readers) -> bool {
    let (page, within) = split(offset);
    if offset + to_u64(source.len()) > state.file().size() {
        return false;
    }
    if within + source.len() <= BLOCK_BYTES {
        let Some(cached) = state.file().pages.get_dirty(page) else {
            return false;
        };
        source.copy_to(0, cached, within, source.len(), readers);
        return true;
    }
    let pages = pages_of(offset, source.len());
    if state.file().pages.missing(pages).blocks > 0 {
        return false;
    }
    let mut done = 0;
    while done < source.len() {
        let (page, within) = split(offset + to_u64(done));
        let len = (BLOCK_BYTES - within).min(source.len() - done);
        let cached = state.file().pages.get_dirty(page);
        let cached = cached.expect("every page was seen dirty above");
        source.copy_to(done, cached, within, len, readers);
        done += len;
    }
    true
}
