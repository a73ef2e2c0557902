//! Space: which blocks of the main area are free, which cores allocate them, and what lies in them.
//!
//! **Problem.** Every write allocates, and a global free list or count would be written by every
//! core; and a block may be reused only when the operation that freed it can no longer be undone by
//! a crash.
//!
//! **Structure.** The main area is divided into segments (`segment`), the segments among
//! partitions, one per journal (`partition`); a core allocates in the open segment of its own.
//! Reservations of blocks are counted apart from the blocks (`reserve`). What must survive are the
//! segment information table (`sit`) and the owners of blocks ([`summary`]); the checkpoint
//! collects what changed of them. Valid handles and checkpoints say what became of blocks
//! (`effects`). `pick` finds segments to allocate in and to clean, `scrub` blocks to verify.
//!
//! # The life of a block
//! Reserved ([`Space::reserve`]); allocated (`Space::alloc_data`, `Space::alloc_node`), which uses
//! the reservation up; live, when the handle that placed it is valid (`Space::settle`) or the NAT
//! names it (`Space::image_moved`); free again, and available, when the handle that freed it is
//! valid, or the checkpoint that moved the image is complete (`Space::images_released`).
//!
//! # Invariants
//! Available blocks + reservations held = blocks not allocated. Live blocks are allocated.
//!
//! **Crash.** Only live blocks survive; the SIT on the medium may lag behind, recovery mends it
//! from the logs and the NAT (`mend`).

mod bitmap;
mod effects;
mod mend;
mod partition;
mod persist;
mod pick;
mod pins;
mod reserve;
mod scrub;
mod segment;
mod segments;
mod shared;
mod sit;
mod statistics;
pub mod summary;

#[cfg(test)]
mod tests;

use dure_sync::{Arc, CoreId, Counter, Mutex, OnceLock, clock, core_count, current_core};

use self::bitmap::Bitmap;
use self::partition::{Partitions, Piece, Stream};
use self::reserve::Available;
use self::segment::{Role, SegmentState};
use self::segments::Segments;
use self::shared::Shared;
use crate::alloc::{Homes, Numa, Temperature};
use crate::error::Result;
use crate::format::sit::{SegmentUse, SitEntry};
use crate::format::summary::SummaryEntry;
use crate::format::volume::SlotCode;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::Packs;
use crate::ranks::PARTITION;
use crate::units::{BlockNo, Run, SegNo};

pub use self::effects::{Effect, Owned};
pub use self::pick::VictimPolicy;
pub(crate) use self::pins::Pins;
pub use self::reserve::OpClass;
pub(crate) use self::scrub::Summaries;
pub use self::scrub::{InUse, SegmentInUse};
pub use self::shared::SharedClaim;
pub(crate) use self::sit::check_pair;
pub use self::sit::{pair_index, summaries_from};
pub use self::statistics::SpaceStatistics;

/// What contradicts the map.
const IMAGE_DENIED: &str = "the NAT has a node image in it, but it is not live";
const PAGE_DENIED: &str = "a file has a page in it, but it is not live";

/// The main area of a volume.
#[derive(Debug)]
pub struct Space {
    layout: Layout,
    /// Reads summaries back.
    region: Arc<Region>,
    /// Which slot of each SIT pair counts.
    packs: Arc<Packs>,
    segments: Segments,
    partitions: Partitions,
    homes: Homes,
    available: Available,
    /// Live blocks.
    live: Counter,
    /// Blocks that only snapshots need.
    pinned_only: Counter,
    /// Blocks that several slots name.
    shared: Shared,
    /// Blocks freed by operations that have finished, less those settled since.
    freeing: Counter,
    scrapes: Counter,
    summaries_lost: Counter,
    /// Replaced images whose blocks wait for [`Space::images_released`].
    images: Mutex<PARTITION, Vec<BlockNo>>,
    /// Runs of [`Space::fence`].
    fenced: Mutex<PARTITION, Vec<Run>>,
    /// The first contradiction that [`Space::settle`] found; it has no caller to report it to.
    wrong: OnceLock<(BlockNo, String)>,
}

impl Space {
    /// The space of a new volume: nothing is live.
    pub fn new_empty(region: Arc<Region>, layout: &Layout, packs: Arc<Packs>) -> Space {
        let segments = Segments::of(layout);
        Space::over(region, layout, packs, segments)
    }

    /// The space as the SIT on the medium has it. Reads the pairs that were ever written.
    ///
    /// # Errors
    /// `Corrupt`, naming pair, block and field; `Block` when reading fails.
    pub(crate) fn load(region: Arc<Region>, layout: &Layout, packs: Arc<Packs>) -> Result<Space> {
        let segments = Segments::of(layout);
        sit::load(&region, layout, &packs, &segments)?;
        Ok(Space::over(region, layout, packs, segments))
    }

    /// The space as these SIT pairs have it: number, block that it was read from, content.
    ///
    /// # Errors
    /// `Corrupt`, naming pair, block and field; what `pairs` reports.
    pub(crate) fn from_pairs(
        region: Arc<Region>,
        layout: &Layout,
        packs: Arc<Packs>,
        pairs: impl Iterator<Item = Result<(u32, BlockNo, Vec<u8>)>>,
    ) -> Result<Space> {
        let segments = Segments::of(layout);
        for pair in pairs {
            let (index, at, payload) = pair?;
            sit::open_pair(layout, &segments, index, at.0, &payload)?;
        }
        Ok(Space::over(region, layout, packs, segments))
    }

    /// What a damaged SIT entry says of a segment, as far as it can be.
    pub fn load_damaged(&self, segment: SegNo, entry: &SitEntry) {
        let blocks = Bitmap::of(0, self.layout.segment_blocks);
        let live = Bitmap::from_bytes(&entry.live).and(&blocks);
        let usage = SegmentUse::from_code(entry.usage).unwrap_or(SegmentUse::Data);
        let summaries = summaries_from(entry.summaries).unwrap_or_default();
        let count = live.count();
        self.available.withdraw(u64::from(count));
        self.live.add(i64::from(count));
        self.segments.with(segment, |state| {
            state.load(live, usage, summaries, entry.changed.get());
            state.sit_dirty |= u32::from(entry.valid.get()) != count;
        });
    }

    /// The pair of the SIT that has this segment is written by the next checkpoint; for a repair.
    pub fn rewrite(&self, segment: SegNo) {
        self.segments.with(segment, |state| state.sit_dirty = true);
    }

    /// Summary pair `n` of the segment is lost: it counts as never written; for a repair.
    pub fn forget_summary(&self, segment: SegNo, n: u32) {
        self.segments.with(segment, |state| {
            state.summaries[n as usize] = SlotCode::Unwritten;
            state.sit_dirty = true;
        });
    }

    fn over(region: Arc<Region>, layout: &Layout, packs: Arc<Packs>, segments: Segments) -> Space {
        let of = |segment| segments.peek(segment, |state| u64::from(state.live.count()));
        let live: u64 = segments.touched().filter_map(of).sum();
        let main_blocks = u64::from(layout.segments) * u64::from(layout.segment_blocks);
        let space = Space {
            layout: layout.clone(),
            region,
            packs,
            segments,
            partitions: Partitions::new(layout.journals, layout.segments),
            homes: Homes::default(),
            available: Available::new(core_count(), main_blocks, main_blocks - live),
            live: Counter::new(),
            pinned_only: Counter::new(),
            shared: Shared::new(layout.superblock.has_clones()),
            freeing: Counter::new(),
            scrapes: Counter::new(),
            summaries_lost: Counter::new(),
            images: Mutex::default(),
            fenced: Mutex::default(),
            wrong: OnceLock::new(),
        };
        space
            .live
            .add(i64::try_from(live).expect("the blocks of a volume fit in 63 bits"));
        space
    }

    /// This space, with partitions at home on the nodes of a machine.
    pub(crate) fn on(mut self, numa: &Numa) -> Space {
        let regions = self.layout.node_segments();
        self.homes = Homes::new(numa, regions, self.layout.journals);
        self
    }

    /// Reserves `blocks` blocks for the caller; `false` if there are not as many for this class.
    pub fn reserve(&self, core: CoreId, blocks: u32, class: OpClass) -> bool {
        self.available.take(core, u64::from(blocks), class)
    }

    /// Free blocks that nobody has reserved, those set aside too. Looks at the counts of all cores.
    pub(crate) fn unreserved(&self) -> u64 {
        self.available.normal() + self.available.kept() + self.available.promised()
    }

    /// Keeps `blocks` blocks for operations of class `Promised`, in place of as many as before: free
    /// ones now, as far as there are, and those that come back. Returns how many there are now.
    pub fn promise(&self, blocks: u64) -> u64 {
        self.available.promise(blocks)
    }

    /// Blocks that any class may reserve, but for a few at each core. Reads one cache line.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.available.pool()
    }

    /// Most blocks of class `Rewrite` that one caller should ask for.
    pub fn rewrites_at_once(&self) -> u64 {
        self.available.rewrites_at_once()
    }

    /// Returns a reservation that was not used.
    pub fn unreserve(&self, core: CoreId, blocks: u32) {
        self.available.give(core, u64::from(blocks));
    }

    /// 1 ..= `want` blocks in a row for file data of this temperature, within one segment, out of a
    /// reservation of the caller. `None` only without a reservation, when every block is allocated.
    pub(crate) fn alloc_data(
        &self,
        core: CoreId,
        temperature: Temperature,
        want: u32,
    ) -> Option<Run> {
        let piece = self.allocate(core, Stream::Data(temperature), want)?;
        assert!(
            piece.count >= 1 && piece.count <= want,
            "asked for {want}, got {piece:?}"
        );
        Some(Run {
            first: self.block(piece.segment, piece.first),
            count: piece.count,
        })
    }

    /// Like `alloc_data`, in persistent memory of a volume with a block device, for data that is to
    /// move to the device later. `None` when there are `segments_max` segments for data there, or
    /// no wholly free one for another, and none of them has a free block.
    pub(crate) fn alloc_absorbed(&self, core: CoreId, segments_max: u32, want: u32) -> Option<Run> {
        let piece = self.absorb(core, segments_max, want)?;
        Some(Run {
            first: self.block(piece.segment, piece.first),
            count: piece.count,
        })
    }

    /// Blocks of data in persistent memory, of a volume that has a block device too.
    pub fn nvm_data_blocks(&self) -> u64 {
        self.segments.nvm_data_blocks()
    }

    /// A block for a node image, out of a reservation of the caller. `None` as in
    /// [`Space::alloc_data`].
    pub(crate) fn alloc_node(&self, core: CoreId) -> Option<BlockNo> {
        let piece = self.allocate(core, Stream::Node, 1)?;
        Some(self.block(piece.segment, piece.first))
    }

    /// The segments that were ever used, and some next to them.
    pub(crate) fn touched(&self) -> impl Iterator<Item = SegNo> {
        self.segments.touched()
    }

    /// Allocates all runs of at least `least` free blocks of a segment in which no task allocates,
    /// out of a reservation of the caller for all of it. [`Space::release`] gives them back.
    pub(crate) fn take_free_runs(&self, segment: SegNo, least: u32) -> Vec<Run> {
        let blocks = self.layout.segment_blocks;
        let runs = self
            .segments
            .with(segment, |state| state.take_runs(blocks, least));
        let run = |(first, count)| Run {
            first: self.block(segment, first),
            count,
        };
        runs.into_iter().map(run).collect()
    }

    /// Frees blocks that were allocated and never placed. Their reservation is the caller's again.
    pub fn release(&self, run: Run) {
        for piece in self.pieces(run) {
            self.segments.with(piece.segment, |state| {
                state.release(piece.first, piece.count)
            });
        }
    }

    /// A valid handle freed this block, which cannot be written: it is dead, and stays allocated
    /// until the next mount.
    pub(crate) fn retire(&self, block: BlockNo) {
        let (segment, index) = self.locate(block);
        let now = now();
        let retired = self
            .segments
            .with(segment, |state| state.retire(index, now, PAGE_DENIED));
        match retired {
            Ok(pinned) => {
                self.live.add(-1);
                self.pinned_only.add(i64::from(pinned));
            }
            Err(wrong) => drop(self.wrong.set(self.describe(segment, wrong))),
        }
    }

    /// A wholly free segment for the log ring of a partition, out of the blocks that any class may reserve; `None`
    /// if there is none.
    pub(crate) fn alloc_log_segment(&self, partition: CoreId) -> Option<SegNo> {
        let core = current_core();
        if !self.reserve(core, self.layout.segment_blocks, OpClass::Normal) {
            return None;
        }
        let segment = self.take_log_segment(partition);
        if segment.is_none() {
            self.unreserve(core, self.layout.segment_blocks);
        }
        segment
    }

    /// A log segment that no durable journal header lists is free again.
    pub(crate) fn release_segment(&self, segment: SegNo) {
        self.segments.with(segment, SegmentState::leave_log);
        let blocks = u64::from(self.layout.segment_blocks);
        self.available.give(current_core(), blocks);
    }

    /// Sets the owner of an allocated block in its summary.
    pub fn set_owner(&self, block: BlockNo, owner: SummaryEntry) {
        self.set_owners(
            Run {
                first: block,
                count: 1,
            },
            owner,
        );
    }

    /// Sets the owners of allocated blocks: `first` owns the first, the slots behind it the rest.
    pub(crate) fn set_owners(&self, run: Run, first: SummaryEntry) {
        let mut owner = first;
        for piece in self.pieces(run) {
            self.segments.with(piece.segment, |state| {
                for index in piece.first..piece.first + piece.count {
                    assert!(
                        state.allocated.contains(index),
                        "a block that gets an owner is allocated"
                    );
                    state.set_owner(index, owner, self.layout.segment_blocks);
                    owner.slot = owner.slot.wrapping_add(1);
                }
            });
        }
    }

    /// Up to `count` segments worth cleaning, best first: closed ones with something live and
    /// something free.
    pub fn victims(&self, count: usize, policy: VictimPolicy) -> Vec<SegNo> {
        pick::victims(&self.segments, count, policy, now())
    }

    /// Up to `count` closed segments of data in persistent memory in the shares of these partitions,
    /// those first whose move frees most for long.
    pub fn absorbed_victims(&self, partitions: &[CoreId], count: usize) -> Vec<SegNo> {
        let area = 0..self.layout.nvm_segments;
        let ranges = partitions.iter().flat_map(|core| {
            let index = self.partitions.index(*core);
            self.partitions.ranges(index, &area)
        });
        pick::data_victims(&self.segments, ranges, count, now())
    }

    /// Keeps allocation out of a closed segment that is to be cleaned; `false` if it is not closed.
    pub fn begin_cleaning(&self, segment: SegNo) -> bool {
        self.segments.with(segment, |state| {
            let closed = state.role == Role::Closed;
            if closed {
                state.role = Role::Cleaning;
            }
            closed
        })
    }

    /// Whether the block lies in a segment that is being cleaned.
    pub fn is_being_cleaned(&self, block: BlockNo) -> bool {
        let (segment, _) = self.locate(block);
        self.segments
            .with(segment, |state| state.role == Role::Cleaning)
    }

    /// Cleaning of this segment is over, successful or not.
    pub fn end_cleaning(&self, segment: SegNo) {
        self.segments.with(segment, |state| {
            assert!(
                state.role == Role::Cleaning,
                "a segment whose cleaning ends was being cleaned"
            );
            state.role = Role::Closed;
        });
    }

    /// Segments of log rings.
    pub(crate) fn log_segments(&self) -> u32 {
        self.segments.used_for(SegmentUse::Log)
    }

    /// Blocks of the main area, whatever they hold: a constant of the volume.
    #[must_use]
    pub fn total_blocks(&self) -> u64 {
        u64::from(self.layout.segments) * u64::from(self.layout.segment_blocks)
    }

    fn block(&self, segment: SegNo, index: u32) -> BlockNo {
        BlockNo(self.layout.segment_start(segment).0 + u64::from(index))
    }

    /// The place of a block that dure itself allocated.
    fn locate(&self, block: BlockNo) -> (SegNo, u32) {
        let place = self.layout.locate(block);
        place.unwrap_or_else(|| panic!("{block:?} is not in the main area"))
    }

    /// The run, cut at segment ends.
    fn pieces(&self, run: Run) -> impl Iterator<Item = Piece> {
        let mut at = run.first;
        let mut rest = run.count;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let (segment, first) = self.locate(at);
            let count = rest.min(self.layout.segment_blocks - first);
            at = BlockNo(at.0 + u64::from(count));
            rest -= count;
            Some(Piece {
                segment,
                first,
                count,
            })
        })
    }
}

/// Seconds since 1970, for the age of segments.
fn now() -> u64 {
    u64::try_from(clock::wall_coarse().secs).unwrap_or(0)
}
