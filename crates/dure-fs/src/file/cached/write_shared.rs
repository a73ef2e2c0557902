//! Writes that make pages dirty, add pages to a file, or make it longer, under the shared inode
//! lock.
//!
//! **Structure.** A step of a write that holds its range finds out what it lacks, takes memory and
//! blocks with the inode released, fills pages of its own, and then, with the growth of the file
//! ([`super::growth`]) held exclusively, puts all in: bytes into pages that are there, the new
//! pages, the size. If it neither adds pages nor moves the end, it does not take the growth. A page
//! that a reader has put in meanwhile is overwritten there.
//!
//! # Invariants
//! All that can fail comes before the first change. The range keeps other writers from these bytes,
//! and, where the file grows, from its end: `offset` and the size that was seen stay. Whatever does
//! not fit here (a page that a write-back has taken, whose bytes it copies under the shared lock,
//! an inode on no list, a half truncate, an error) is done under the exclusive inode lock.
//!
//! **On a crash** as with every write: pages that were not written back are lost.

use dure_store::error::Result;
use dure_store::frames::{Fill, Frame};
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, to_u64, to_usize};
use dure_sync::Arc;
use dure_sync::range_lock::ByteRange;
use smallvec::SmallVec;

use super::cache::{Grant, Want};
use super::growth::Grown;
use super::page::{Origin, Page, PageStore};
use super::write::{Place, Readers, Source};
use crate::file::Files;
use crate::file::bytes::{pages_of, split};
use crate::file::map::room::{extend, leaves};
use crate::file::map::{FILE_BYTES_MAX, MapReader, NodePlaces};
use crate::file::ranges::Range;
use crate::file::state::Stamp;
use crate::inode::{Inode, InodeState};
use crate::volume::RangeRule;

/// What a step of a write is about to do.
#[derive(Debug)]
struct Plan {
    offset: u64,
    end: u64,
    /// The size of the file, as far as it matters.
    size: u64,
    /// Pages that are not in memory.
    new: SmallVec<[u64; 2]>,
    /// Pages that are, and are clean.
    clean: usize,
    /// Map nodes that these and those need, for which the state has no block.
    nodes: NodePlaces,
}

/// The part of a write that goes into one page.
#[derive(Clone, Copy, Debug)]
struct Part {
    page: u64,
    within: usize,
    /// Where it is in the source.
    from: usize,
    len: usize,
}

impl Plan {
    /// None: the step needs the exclusive inode lock.
    fn new(
        files: &Files,
        inode: &Inode,
        shared: &InodeState,
        range: ByteRange,
        (place, len): (Place, usize),
    ) -> Option<Plan> {
        let file = shared.file();
        // Only a holder of the exclusive inode lock may list it.
        if file.cached_on.is_none() || file.dirty_on.is_none() || file.cut.is_some() {
            return None;
        }
        let offset = match place {
            Place::At(offset) => offset,
            Place::End => inode.state().seek_hint().size(),
        };
        let end = offset.checked_add(to_u64(len))?;
        let size = inode.size_up_to(shared, end);
        if end > FILE_BYTES_MAX || (end > size && !holds_end(range, size)) {
            return None;
        }
        let pages = pages_of(offset, len);
        let (mut new, mut clean) = (SmallVec::new(), 0);
        for page in pages.clone() {
            if file.pages.contains(page) {
                if file.pages.get_dirty(page).is_none() {
                    if file.pages.is_writing(page) {
                        return None;
                    }
                    clean += 1;
                }
            } else if file.pages.has_place(page) {
                new.push(page);
            } else {
                return None;
            }
        }
        let mut nodes = NodePlaces::new();
        let maps = clean > 0 || !new.is_empty();
        for leaf in leaves(pages).filter(|&leaf| maps && !file.room.covers(leaf)) {
            // An error is found again, and returned, by the path that takes the inode exclusively.
            let missing = MapReader::new(files, inode).missing_nodes(leaf);
            extend(&mut nodes, missing.ok()?);
        }
        Some(Plan {
            offset,
            end,
            size,
            new,
            clean,
            nodes,
        })
    }

    /// Whether the file grows, or gets pages.
    fn adds(&self) -> bool {
        !self.new.is_empty() || self.end > self.size || !self.nodes.is_empty()
    }

    fn pages(&self) -> std::ops::Range<u64> {
        pages_of(self.offset, to_usize(self.end - self.offset))
    }

    fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let (offset, end) = (self.offset, self.end);
        self.pages().map(move |page| Part::of(offset, end, page))
    }
}

impl Part {
    fn of(offset: u64, end: u64, page: u64) -> Part {
        let start = offset.max(page * BLOCK_BYTES_U64);
        let (_, within) = split(start);
        let len = (BLOCK_BYTES - within).min(to_usize(end - start));
        let from = to_usize(start - offset);
        Part {
            page,
            within,
            from,
            len,
        }
    }

    /// Copies it from the source into its page.
    fn copy(self, source: Source<'_>, page: &Page, readers: Readers) {
        source.copy_to(self.from, page, self.within, self.len, readers);
    }
}

impl Files {
    /// One atomic step of a write, under the shared inode lock. Returns where it wrote and how
    /// much. `None`: nothing was done, the caller has to take the inode exclusively instead. The
    /// caller holds `range`, of all the bytes, or of everything from the end on.
    ///
    /// # Errors
    /// Those of taking memory and blocks.
    pub(super) fn add_shared(
        &self,
        inode: &Arc<Inode>,
        range: &Range<'_>,
        place: Place,
        source: Source<'_>,
        stamp: Stamp,
    ) -> Result<Option<(u64, usize)>> {
        let mut grant: Option<Grant<'_>> = None;
        loop {
            let access = self.write_access();
            let state = inode.state().read();
            let is_broken = matches!(self.options.rules.ranges, RangeRule::Broken(_));
            if inode.state().growth().is_none() || is_broken {
                return Ok(None);
            }
            let to = (place, source.len());
            let Some(plan) = Plan::new(self, inode, &state, range.range(), to) else {
                return Ok(None);
            };
            let Ok(holes) = self.holes(inode, &state, plan.pages()) else {
                return Ok(None);
            };
            let short = |count: usize| u32::try_from(count).expect("a step has few pages");
            let want = Want {
                frames: short(plan.new.len()),
                blocks: short(plan.new.len() + plan.clean),
                nodes: short(plan.nodes.len()),
                holes,
            };
            let covers = |grant: &Grant<'_>| grant.covers(want, state.file());
            if want == Want::default() || grant.as_ref().is_some_and(covers) {
                let blocks = |grant: &Option<Grant<'_>>| grant.as_ref().map_or(0, Grant::blocks);
                let before = blocks(&grant);
                let done = self.add(inode, &state, &plan, source, grant.as_mut());
                let dirty = &self.pages.dirty_pages;
                let dirtied = dirty.charge(
                    self.store.partition(),
                    state.file(),
                    before - blocks(&grant),
                );
                if let Some(grant) = grant.as_mut().filter(|_| done) {
                    grant.charged.hand_over(state.charge(), want.holes);
                }
                if done {
                    let change = state.file().stamp(stamp, self.store.now());
                    inode.state().changed_shared(change);
                }
                drop(state);
                drop(access);
                self.pace(dirtied);
                return Ok(done.then_some((plan.offset, source.len())));
            }
            if grant.is_some() {
                // It lacks more than a moment ago.
                return Ok(None);
            }
            drop(state);
            drop(access);
            // Volume full: take the inode exclusively instead, since pages that have a slot can
            // still be written.
            let Some(found) = self.grant_at_hand(inode, want)? else {
                return Ok(None);
            };
            grant = Some(found);
        }
    }

    /// Fills the new pages, and puts all in. False: nothing was done.
    fn add(
        &self,
        inode: &Inode,
        shared: &InodeState,
        plan: &Plan,
        source: Source<'_>,
        mut grant: Option<&mut Grant<'_>>,
    ) -> bool {
        let pages = &shared.file().pages;
        if !plan.adds() {
            // All these pages are there, so they are data for seeks already.
            for part in plan.parts() {
                overwrite_page(pages, part, source, grant.as_deref_mut());
            }
            return true;
        }
        let mut new: SmallVec<[(u64, Frame); 2]> = SmallVec::new();
        for &page in &plan.new {
            let grant = grant.as_mut().expect("new pages have been granted");
            match self.fill_new(inode, plan, page, source, grant) {
                Ok(frame) => new.push((page, frame)),
                Err(_) => {
                    // The same error comes again under the exclusive inode lock, there in front of
                    // as many pages as can be had.
                    give_back(new, Some(grant));
                    return false;
                }
            }
        }
        let growth = inode.state().growth();
        let mut held = growth.expect("it stays once it is made").take();
        inode.state().seek_hint().data_comes(&plan.pages());
        let early = matches!(self.options.rules.ranges, RangeRule::SizeFirst(_));
        if early {
            grow(inode, &mut held, plan.size, plan.end);
        }
        let mut new = new.into_iter().peekable();
        for part in plan.parts() {
            let frame = new.next_if(|(page, _)| *page == part.page);
            let Some((page, frame)) = frame else {
                overwrite_page(pages, part, source, grant.as_deref_mut());
                continue;
            };
            let grant = grant.as_mut().expect("new pages have been granted");
            match pages.insert(page, frame, Origin::Write) {
                Ok(()) => {
                    let newly = pages.set_dirty(page);
                    assert!(newly, "a new page is dirty already");
                    grant.use_block();
                }
                // A reader has put it in.
                Err(frame) => {
                    grant.give_back(frame);
                    overwrite_page(pages, part, source, Some(grant));
                }
            }
        }
        if !plan.nodes.is_empty() {
            let grant = grant
                .as_mut()
                .expect("nodes of new pages have been granted");
            grant.use_nodes(&mut held.room, &plan.nodes);
        }
        if !early {
            grow(inode, &mut held, plan.size, plan.end);
        }
        true
    }

    /// Makes the file longer, under the shared inode lock. The caller holds `range`. False: nothing
    /// was done, the caller has to take the inode exclusively instead.
    pub(super) fn grow_shared(&self, inode: &Inode, range: &Range<'_>, size: u64) -> bool {
        let state = inode.state().read();
        let (file, before) = (state.file(), inode.state().seek_hint().size());
        let Some(growth) = inode.state().growth() else {
            return false;
        };
        let fits = file.dirty_on.is_some() && file.cut.is_none() && size > before;
        if !fits || !holds_end(range.range(), before) {
            return false;
        }
        let mut held = growth.take();
        grow(inode, &mut held, before, size);
        drop(held);
        let change = file.stamp(Stamp::Set, self.store.now());
        inode.state().changed_shared(change);
        true
    }

    /// A new page with its part of the write: whatever else is in it as on the device, or zero.
    fn fill_new(
        &self,
        inode: &Inode,
        plan: &Plan,
        page: u64,
        source: Source<'_>,
        grant: &mut Grant<'_>,
    ) -> Result<Frame> {
        let part = Part::of(plan.offset, plan.end, page);
        let whole = part.len == BLOCK_BYTES;
        let slot = match whole || page * BLOCK_BYTES_U64 >= plan.size {
            true => None,
            false => Some(MapReader::new(self, inode).slot(page)?),
        };
        let slot = slot.filter(|slot| slot.is_written());
        let fill = if whole || slot.is_some() {
            Fill::Any
        } else {
            Fill::Zero
        };
        let mut frame = grant.frame(fill);
        if let Some(slot) = slot
            && let Err(error) = self.read_page(inode, page, &slot, frame.bytes_mut())
        {
            grant.give_back(frame);
            return Err(error);
        }
        source.fill(part.from, &mut frame.bytes_mut()[part.within..][..part.len]);
        Ok(frame)
    }
}

/// Makes a page dirty that is in memory, and writes to it. The caller holds the part's range
/// exclusively, and the inode; no write-back has taken the page.
fn overwrite_page(
    pages: &PageStore,
    part: Part,
    source: Source<'_>,
    grant: Option<&mut Grant<'_>>,
) {
    let cached = pages.get(part.page);
    let cached = cached.expect("a page stays while the inode is held shared");
    // Another task may have made it dirty since the plan: then the block granted for it is left.
    if pages.get_dirty(part.page).is_none() && pages.set_dirty(part.page) {
        let grant = grant.expect("clean pages have been granted");
        grant.use_block();
    }
    part.copy(source, cached, Readers::Concurrent);
}

/// Whether the range keeps other writers from the end of a file of this size.
fn holds_end(range: ByteRange, size: u64) -> bool {
    range.first() <= size && range.last() == u64::MAX
}

/// Makes the file this long, if it is shorter. The bytes are there.
fn grow(inode: &Inode, held: &mut Grown, before: u64, size: u64) {
    if size > before {
        assert_eq!(
            inode.state().seek_hint().size(),
            before,
            "another task moved the end, whose range this one holds"
        );
        held.size = Some(size);
        inode.state().size_grows();
        inode.state().seek_hint().resize(size);
    }
}

fn give_back(frames: SmallVec<[(u64, Frame); 2]>, grant: Option<&mut Grant<'_>>) {
    if let Some(grant) = grant {
        frames
            .into_iter()
            .for_each(|(_, frame)| grant.give_back(frame));
    }
}
