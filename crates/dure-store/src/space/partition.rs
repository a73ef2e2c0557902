//! Which core allocates where.
//!
//! **Problem.** Cores that allocate must not contend.
//!
//! **Structure.** Partition p owns every P-th stripe of 64 segments, so that what is in use lies at
//! the beginning of a large volume and the tables that describe it stay small (of a small volume:
//! segments `p*n/P .. (p+1)*n/P`; of a volume with persistent memory and a block device: both in
//! each of the two areas), and has one open segment for node images and up to three for
//! data, by how long it is likely to live; while free segments are few, one; and one in persistent
//! memory for data that is to move to a block device later. A core uses the
//! partition of its number. When an open segment is full, the partition takes the next one: a
//! wholly free one of its own range, then of the others' from near to far (segments whose lock is
//! taken are skipped); where there are several areas (of persistent memory: on several nodes), first in that which suits the use, there also one
//! with a fair number of free blocks; then the segment with most free blocks (*slack allocation*: the log is
//! threaded through the holes; nothing live is ever overwritten), and when all that is left lies in
//! segments that others have open, single blocks of those.
//!
//! # Invariants
//! A holder of a reservation gets a block. Allocation in an open segment takes the partition's and
//! the segment's lock and writes nothing else.
//!
//! **Crash.** Open segments are not remembered: an allocated block that is not live is free after
//! the crash.

use std::ops::Range;

use dure_sync::{CoreId, Mutex, MutexGuard, PerCore, thread};

use super::Space;
use super::pick;
use super::segment::{Role, SegmentState};
use crate::alloc::Temperature;
use crate::format::sit::SegmentUse;
use crate::ranks::PARTITION;
use crate::units::SegNo;

/// Rounds over all segments before an allocation gives up. A round fails only when other cores took
/// blocks that became free behind it.
const ROUNDS_MAX: u32 = 100;

/// Segments in a row of one partition, on a large volume: a word of each list.
const STRIPE: u64 = 64;
const _: () = assert!(STRIPE == super::segments::GROUP as u64);

/// Wholly free segments for each partition with which hot and cold data get segments of their own.
const PLENTY: u32 = 4;

/// Blocks in a row within one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The segment.
    pub(crate) segment: SegNo,
    /// The first block in it.
    pub(crate) first: u32,
    /// How many.
    pub(crate) count: u32,
}

/// What is written one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// File data.
    Data(Temperature),
    /// Node images.
    Node,
}

impl Stream {
    fn usage(self) -> SegmentUse {
        match self {
            Stream::Data(_) => SegmentUse::Data,
            Stream::Node => SegmentUse::Node,
        }
    }
}

/// The open segments of one partition.
#[derive(Debug, Default)]
pub(crate) struct Open {
    hot: Option<SegNo>,
    warm: Option<SegNo>,
    cold: Option<SegNo>,
    node: Option<SegNo>,
    /// In persistent memory, for data that is to move to the block device later.
    absorbed: Option<SegNo>,
    /// Segments opened so far.
    turn: u32,
}

impl Open {
    /// The open segment for this. A segment of its own for hot or cold data is opened only while
    /// there are `plenty` of free ones.
    fn of(&mut self, what: Stream, plenty: bool) -> &mut Option<SegNo> {
        match what {
            Stream::Data(Temperature::Hot) if plenty || self.hot.is_some() => &mut self.hot,
            Stream::Data(Temperature::Cold) if plenty || self.cold.is_some() => &mut self.cold,
            Stream::Data(_) => &mut self.warm,
            Stream::Node => &mut self.node,
        }
    }
}

/// All partitions.
#[derive(Debug)]
pub(crate) struct Partitions {
    open: PerCore<Mutex<PARTITION, Open>>,
}

impl Partitions {
    /// `count` partitions of `segments` segments, nothing open.
    pub(crate) fn new(count: u32, segments: u32) -> Partitions {
        assert!(
            count > 0 && count <= segments,
            "{count} partitions of {segments} segments"
        );
        Partitions {
            open: PerCore::new(count as usize, |_| Mutex::default()),
        }
    }

    /// The partition of a core.
    pub(crate) fn index(&self, core: CoreId) -> u32 {
        u32::try_from(core.index() % self.open.len()).expect("partitions are counted in u32")
    }

    /// The segments of a partition in an area, ascending.
    pub(crate) fn ranges(
        &self,
        index: u32,
        area: &Range<u32>,
    ) -> impl Iterator<Item = Range<u32>> + use<> {
        let (count, base) = (u64::from(self.count()), area.start);
        let segments = u64::from(area.end - area.start);
        let index = u64::from(index);
        let striped = segments >= 2 * STRIPE * count;
        let nth = move |n: u64| match (striped, n) {
            (true, n) => (n * count + index) * STRIPE..(n * count + index + 1) * STRIPE,
            (false, 0) => index * segments / count..(index + 1) * segments / count,
            (false, _) => segments..segments,
        };
        let place = move |at: u64| base + u32::try_from(at).expect("the layout has u32 segments");
        (0..)
            .map(nth)
            .take_while(move |range| range.start < segments)
            .map(move |range| place(range.start)..place(range.end.min(segments)))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.open.len()).expect("partitions are counted in u32")
    }

    fn lock(&self, core: CoreId) -> MutexGuard<'_, PARTITION, Open> {
        self.open.get(core).lock()
    }
}

impl Space {
    /// Up to `want` blocks in a row; `None` only when every block is allocated.
    pub(super) fn allocate(&self, core: CoreId, what: Stream, want: u32) -> Option<Piece> {
        let mut partition = self.partitions.lock(core);
        let free = self.segments.used_for(SegmentUse::Free);
        let plenty = free >= PLENTY * self.partitions.count();
        while let Some(segment) = *partition.of(what, plenty) {
            if let Some(piece) = self.take_open(segment, want) {
                return Some(piece);
            }
            // Full. What is not plenty goes on where warm data goes.
            *partition.of(what, plenty) = None;
        }
        let index = self.partitions.index(core);
        partition.turn = partition.turn.wrapping_add(1);
        let piece = self.open_next(index, what.usage(), want, partition.turn);
        *partition.of(what, plenty) = piece.map(|piece| piece.segment);
        drop(partition);
        piece.or_else(|| self.scrape(index, want))
    }

    /// Up to `want` blocks in a row of a segment for absorbed data. While there are fewer than
    /// `segments_max` segments of data in persistent memory another one is opened, so that pages that
    /// are written together lie together; then what was overwritten or moved in one of them is used
    /// again. `None` when nothing was.
    pub(super) fn absorb(&self, core: CoreId, segments_max: u32, want: u32) -> Option<Piece> {
        let mut partition = self.partitions.lock(core);
        if let Some(segment) = partition.absorbed.take()
            && let Some(piece) = self.take_open(segment, want)
        {
            partition.absorbed = Some(segment);
            return Some(piece);
        }
        let index = self.partitions.index(core);
        partition.turn = partition.turn.wrapping_add(1);
        let area = 0..self.layout.nvm_segments;
        let parts = self.homes.order(index, &area, partition.turn);
        let whole = |part| self.open_whole(index, part, SegmentUse::Data, want);
        // Partitions that open one at the same time may exceed the maximum by one each.
        let may_open = self.segments.nvm_data() < segments_max;
        let piece = match may_open {
            true => parts.iter().find_map(whole),
            false => None,
        };
        let piece = piece.or_else(|| self.open_slack_data(index, &area, want))?;
        partition.absorbed = Some(piece.segment);
        Some(piece)
    }

    /// Takes blocks from an open segment, or closes it if it is full.
    fn take_open(&self, segment: SegNo, want: u32) -> Option<Piece> {
        let taken = self.segments.with(segment, |state| {
            let taken = state.allocate(self.segments.segment_blocks, want);
            if taken.is_none() {
                state.role = Role::Closed;
            }
            taken
        });
        taken.map(|(first, count)| Piece {
            segment,
            first,
            count,
        })
    }

    /// Opens another segment and takes blocks from it.
    fn open_next(&self, index: u32, usage: SegmentUse, want: u32, turn: u32) -> Option<Piece> {
        let fair = self.segments.segment_blocks / 8;
        let areas = self.layout.areas(usage);
        let used = areas.iter().filter(|area| !area.is_empty());
        let suitable: Vec<Range<u32>> = used
            .flat_map(|area| self.homes.order(index, area, turn))
            .collect();
        suitable
            .iter()
            .find_map(|area| {
                let whole = self.open_whole(index, area, usage, want);
                whole.or_else(|| self.open_slack(index, area, fair, want))
            })
            .or_else(|| {
                let mut areas = suitable.iter();
                areas.find_map(|area| self.open_slack(index, area, 1, want))
            })
    }

    /// Takes a wholly free segment for a log ring, where the logs are to lie.
    pub(super) fn take_log_segment(&self, core: CoreId) -> Option<SegNo> {
        let index = self.partitions.index(core);
        let areas = self.layout.areas(SegmentUse::Log);
        let area = areas.iter().find(|area| !area.is_empty())?;
        let take = |state: &mut SegmentState| {
            (state.role == Role::Closed && state.allocated.is_empty()).then(|| state.become_log())
        };
        let turn = self.segments.used_for(SegmentUse::Log);
        let parts = self.homes.order(index, area, turn);
        let ranges = parts.iter().flat_map(|part| self.ranges_from(index, part));
        for range in ranges {
            for segment in self.segments.whole_in(range) {
                if self.segments.with(segment, take).is_some() {
                    return Some(segment);
                }
            }
        }
        None
    }

    /// The ranges of all partitions in an area, `index` first, then from near to far.
    fn ranges_from(&self, index: u32, area: &Range<u32>) -> impl Iterator<Item = Range<u32>> {
        pick::near_to_far(index, self.partitions.count())
            .flat_map(|index| self.partitions.ranges(index, area))
    }

    /// Opens a wholly free segment of an area and takes blocks from it.
    fn open_whole(
        &self,
        index: u32,
        area: &Range<u32>,
        usage: SegmentUse,
        want: u32,
    ) -> Option<Piece> {
        if self.segments.used_for(SegmentUse::Free) == 0 {
            return None;
        }
        for range in self.ranges_from(index, area) {
            for segment in self.segments.whole_in(range) {
                // Try and skip: the holder of the lock is about to take the segment, or is done
                // before a wait would end.
                let taken = self.segments.try_with(segment, |state| {
                    if state.role != Role::Closed || !state.allocated.is_empty() {
                        return None;
                    }
                    state.role = Role::Open;
                    state.usage = usage;
                    state.allocate(self.segments.segment_blocks, want)
                });
                if let Some((first, count)) = taken.flatten() {
                    return Some(Piece {
                        segment,
                        first,
                        count,
                    });
                }
            }
        }
        None
    }

    /// Opens the segment with most free blocks of an area, if it has at least `least`, and takes
    /// blocks from it.
    fn open_slack(&self, index: u32, area: &Range<u32>, least: u32, want: u32) -> Option<Piece> {
        for _ in 0..ROUNDS_MAX {
            let own = self.partitions.ranges(index, area);
            let segment = pick::slackest(&self.segments, own, area, least)?;
            let taken = self.segments.with(segment, |state| {
                if state.role != Role::Closed {
                    return None;
                }
                let taken = state.allocate(self.segments.segment_blocks, want);
                if taken.is_some() {
                    state.role = Role::Open;
                }
                taken
            });
            if let Some((first, count)) = taken {
                return Some(Piece {
                    segment,
                    first,
                    count,
                });
            }
        }
        None
    }

    /// Opens the nearest segment of data in the area with a fair number of free blocks.
    fn open_slack_data(&self, index: u32, area: &Range<u32>, want: u32) -> Option<Piece> {
        let fair = self.segments.segment_blocks / 8;
        let near = self.ranges_from(index, area).flatten().map(SegNo);
        near.filter(|segment| self.segments.slack(*segment) >= fair)
            .find_map(|segment| {
                let taken = self.segments.try_with(segment, |state| {
                    if state.role != Role::Closed || state.usage != SegmentUse::Data {
                        return None;
                    }
                    let taken = state.allocate(self.segments.segment_blocks, want)?;
                    state.role = Role::Open;
                    Some(taken)
                });
                let (first, count) = taken.flatten()?;
                Some(Piece {
                    segment,
                    first,
                    count,
                })
            })
    }

    /// Takes blocks from whatever segment has some, open or not.
    #[cold]
    fn scrape(&self, index: u32, want: u32) -> Option<Piece> {
        self.scrapes.add(1);
        for _ in 0..ROUNDS_MAX {
            let all = 0..self.segments.count();
            for segment in self.ranges_from(index, &all).flatten().map(SegNo) {
                let taken = self.segments.with(segment, |state| {
                    if state.role == Role::Log {
                        return None;
                    }
                    state.allocate(self.segments.segment_blocks, want)
                });
                if let Some((first, count)) = taken {
                    return Some(Piece {
                        segment,
                        first,
                        count,
                    });
                }
            }
            thread::yield_now();
        }
        None
    }
}
