//! All segments, and what is known of them outside of their locks.
//!
//! **Problem.** Finding a free segment, a slack segment or a victim must not take the lock of every
//! segment, and the segments of a large volume that were never used must cost nothing.
//!
//! **Structure.** Groups of 64 segments, made when one of them is first touched: next to the locked
//! states, one bit per segment that is not wholly free, one count of blocks in use per closed
//! segment, one bit per segment that changed since the last checkpoint; and for all, the number of
//! segments per use.
//!
//! # Invariants
//! All of these are written only under the lock of the segment they describe ([`Segments::with`]),
//! and read without: what they say is checked again under the lock. An open segment is on no list,
//! so that allocating in it writes nothing shared. A segment of a group that was not made is
//! closed, wholly free, and as the SIT has it.

use std::ops::Range;

use dure_sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use dure_sync::{CachePadded, Counter, Mutex, MutexGuard};

use super::segment::{Role, SegmentState};
use crate::format::sit::SegmentUse;
use crate::layout::Layout;
use crate::ranks::SEGMENT;
use crate::sparse::Sparse;
use crate::units::{SegNo, to_usize};

/// Segments of a group.
pub(super) const GROUP: u32 = 64;
const GROUP_LEN: usize = 64;
/// Groups whose memory is made at once.
const GROUPS_PER_PIECE: u64 = 8;

/// Neighbouring segments.
#[derive(Debug)]
struct Group {
    states: Box<[CachePadded<Mutex<SEGMENT, SegmentState>>]>,
    /// Blocks of each segment that cannot be had by opening it: those in use if it is closed, else
    /// all. Hints, hence Relaxed.
    taken: [AtomicU16; GROUP_LEN],
    /// Bit i: segment i is not both closed and wholly free. A hint, hence Relaxed.
    busy: CachePadded<AtomicU64>,
    /// Bit i: segment i has something for the next checkpoint. Set under the lock of the segment by
    /// the task that changes it; taken by the checkpoint, which then takes the lock. Relaxed: the
    /// lock orders the change itself, and a bit set too late is seen by the next checkpoint.
    dirty: CachePadded<AtomicU64>,
    /// Bit i: segment i has, or had, shared blocks. Set under the lock of the segment. Relaxed: as
    /// for `dirty`.
    shared: AtomicU64,
}

impl Group {
    fn new() -> Group {
        let free = || CachePadded::new(Mutex::new(SegmentState::free_and_closed()));
        Group {
            states: (0..GROUP_LEN).map(|_| free()).collect(),
            taken: [const { AtomicU16::new(0) }; GROUP_LEN],
            busy: CachePadded::new(AtomicU64::new(0)),
            dirty: CachePadded::new(AtomicU64::new(0)),
            shared: AtomicU64::new(0),
        }
    }
}

/// The segments of the main area.
#[derive(Debug)]
pub(crate) struct Segments {
    groups: Sparse<Group>,
    count: u32,
    /// Blocks of a segment.
    pub(crate) segment_blocks: u32,
    /// Segments per use, by code: statistics, hence Relaxed.
    uses: [AtomicU32; 4],
    /// The first so many are in persistent memory of a volume with a block device.
    in_nvm: u32,
    /// Those of them that hold data: bounds what is opened there, roughly, hence Relaxed.
    nvm_data: AtomicU32,
    /// Free blocks of those of them that are closed.
    nvm_data_free: Counter,
}

impl Segments {
    /// Those of a volume, all free.
    pub(crate) fn of(layout: &Layout) -> Segments {
        let count = layout.segments;
        let uses = [const { AtomicU32::new(0) }; 4];
        // Relaxed: no other task has it yet.
        uses[usize::from(SegmentUse::Free.code())].store(count, Ordering::Relaxed);
        Segments {
            groups: Sparse::new(u64::from(count.div_ceil(GROUP)), GROUPS_PER_PIECE),
            count,
            segment_blocks: layout.segment_blocks,
            uses,
            in_nvm: layout.nvm_segments,
            nvm_data: AtomicU32::new(0),
            nvm_data_free: Counter::new(),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn group(&self, segment: SegNo) -> Option<&Group> {
        self.groups.get(u64::from(segment.0 / GROUP))
    }

    fn touch(&self, segment: SegNo) -> (&Group, usize) {
        assert!(segment.0 < self.count, "{segment:?} of {}", self.count);
        let group = self.groups.touch(u64::from(segment.0 / GROUP), Group::new);
        (group, to_usize(u64::from(segment.0 % GROUP)))
    }

    /// The segments that were ever touched, and some next to them, ascending.
    pub(crate) fn touched(&self) -> impl Iterator<Item = SegNo> {
        let groups = self.groups.touched().map(|(n, _)| first_of(n));
        groups.flat_map(|first| (first..self.count.min(first + GROUP)).map(SegNo))
    }

    /// Runs `body` under the segment's lock and brings the lists in step.
    pub(crate) fn with<R>(&self, segment: SegNo, body: impl FnOnce(&mut SegmentState) -> R) -> R {
        let (group, n) = self.touch(segment);
        self.run((segment, group), group.states[n].lock(), body)
    }

    /// Like [`Segments::with`]; the segment has shared blocks from now on.
    pub(crate) fn with_sharing<R>(
        &self,
        segment: SegNo,
        body: impl FnOnce(&mut SegmentState) -> R,
    ) -> R {
        let (group, n) = self.touch(segment);
        let state = group.states[n].lock();
        set_bit(&group.shared, segment, true);
        self.run((segment, group), state, body)
    }

    /// The segments that have, or had, shared blocks, ascending.
    pub(crate) fn with_shared(&self) -> impl Iterator<Item = SegNo> {
        self.groups.touched().flat_map(|(n, group)| {
            let bits = group.shared.load(Ordering::Relaxed);
            let all = (0..GROUP).filter(move |at| bits >> at & 1 == 1);
            all.map(move |at| SegNo(first_of(n) + at))
        })
    }

    /// Like [`Segments::with`], unless another task holds the lock.
    pub(crate) fn try_with<R>(
        &self,
        segment: SegNo,
        body: impl FnOnce(&mut SegmentState) -> R,
    ) -> Option<R> {
        let (group, n) = self.touch(segment);
        Some(self.run((segment, group), group.states[n].try_lock()?, body))
    }

    /// Runs `body` on the state of a segment, if it was ever touched.
    pub(crate) fn peek<R>(
        &self,
        segment: SegNo,
        body: impl FnOnce(&SegmentState) -> R,
    ) -> Option<R> {
        let group = self.group(segment)?;
        let state = group.states[to_usize(u64::from(segment.0 % GROUP))].lock();
        Some(body(&state))
    }

    /// Holds the segment's lock, as another core would.
    #[cfg(test)]
    pub(crate) fn hold(&self, segment: SegNo) -> MutexGuard<'_, SEGMENT, SegmentState> {
        let (group, n) = self.touch(segment);
        group.states[n].lock()
    }

    /// The closed and wholly free segments among `range`.
    pub(crate) fn whole_in(&self, range: Range<u32>) -> impl Iterator<Item = SegNo> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end {
                let group = self.group(SegNo(at));
                // Relaxed: a hint.
                let busy = group.map_or(0, |group| group.busy.load(Ordering::Relaxed));
                let rest = !busy >> (at % GROUP);
                if rest == 0 {
                    at = (at / GROUP + 1) * GROUP;
                    continue;
                }
                let found = at + rest.trailing_zeros();
                at = found + 1;
                return (found < range.end).then_some(SegNo(found));
            }
            None
        })
    }

    /// Free blocks of a segment, 0 unless it is closed.
    pub(crate) fn slack(&self, segment: SegNo) -> u32 {
        let n = to_usize(u64::from(segment.0 % GROUP));
        // Relaxed: a hint.
        let taken = |group: &Group| group.taken[n].load(Ordering::Relaxed);
        self.segment_blocks - u32::from(self.group(segment).map_or(0, taken))
    }

    /// Takes the list of segments that changed.
    pub(crate) fn take_dirty(&self) -> Vec<SegNo> {
        let mut taken = Vec::new();
        for (index, group) in self.groups.touched() {
            if group.dirty.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = group.dirty.swap(0, Ordering::Relaxed);
            while bits != 0 {
                taken.push(SegNo(first_of(index) + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        taken
    }

    /// Segments used for `usage`.
    pub(crate) fn used_for(&self, usage: SegmentUse) -> u32 {
        self.uses[usize::from(usage.code())].load(Ordering::Relaxed)
    }

    /// Segments of data in persistent memory.
    pub(crate) fn nvm_data(&self) -> u32 {
        self.nvm_data.load(Ordering::Relaxed)
    }

    /// Blocks of them that are in use; those of open segments all are.
    pub(crate) fn nvm_data_blocks(&self) -> u64 {
        let all = u64::from(self.nvm_data()) * u64::from(self.segment_blocks);
        let free = u64::try_from(self.nvm_data_free.sum()).unwrap_or(0);
        all.saturating_sub(free)
    }

    fn run<R>(
        &self,
        (segment, group): (SegNo, &Group),
        mut state: MutexGuard<'_, SEGMENT, SegmentState>,
        body: impl FnOnce(&mut SegmentState) -> R,
    ) -> R {
        let result = body(&mut state);
        self.publish(segment, group, &mut state);
        result
    }

    fn publish(&self, segment: SegNo, group: &Group, state: &mut SegmentState) {
        let closed = state.role == Role::Closed;
        let empty = closed && state.allocated.is_empty();
        if empty && state.usage != SegmentUse::Free {
            state.usage = SegmentUse::Free;
            state.sit_dirty = true;
        }
        if closed || state.listed {
            state.listed = closed;
            let free = if closed {
                state.free(self.segment_blocks)
            } else {
                0
            };
            if segment.0 < self.in_nvm {
                self.count_free(state, free);
            }
            let taken = u16::try_from(self.segment_blocks - free)
                .expect("a segment has at most 512 blocks");
            group.taken[to_usize(u64::from(segment.0 % GROUP))].store(taken, Ordering::Relaxed);
            set_bit(&group.busy, segment, !empty);
        }
        if state.counted != state.usage {
            self.uses[usize::from(state.counted.code())].fetch_sub(1, Ordering::Relaxed);
            self.uses[usize::from(state.usage.code())].fetch_add(1, Ordering::Relaxed);
            if segment.0 < self.in_nvm {
                let data = |usage| u32::from(usage == SegmentUse::Data);
                let change = data(state.usage).wrapping_sub(data(state.counted));
                self.nvm_data.fetch_add(change, Ordering::Relaxed);
            }
            state.counted = state.usage;
        }
        if state.sit_dirty || state.overlay.is_some() {
            set_bit(&group.dirty, segment, true);
        }
    }

    /// Counts the free blocks of a segment in persistent memory.
    fn count_free(&self, state: &mut SegmentState, free: u32) {
        let free = match state.usage {
            SegmentUse::Data => free,
            _ => 0,
        };
        if free != state.counted_free {
            let change = i64::from(free) - i64::from(state.counted_free);
            self.nvm_data_free.add(change);
            state.counted_free = free;
        }
    }
}

/// The first segment of group `n`.
fn first_of(n: u64) -> u32 {
    u32::try_from(n).expect("the layout has u32 segments") * GROUP
}

/// Writes a bit unless it is right already, so that a line that does not change stays shared.
fn set_bit(word: &AtomicU64, segment: SegNo, value: bool) {
    let bit = 1_u64 << (segment.0 % GROUP);
    let is = word.load(Ordering::Relaxed) & bit != 0;
    if value && !is {
        word.fetch_or(bit, Ordering::Relaxed);
    } else if is && !value {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}
