//! All segments, and what is known of them outside of their locks.
//!
//! **Problem.** Finding a free segment, a slack segment or a victim must not take the lock of every
//! segment. **Structure.** Next to the locked states: one bit per wholly free segment, one count of
//! free blocks per closed segment, one bit per segment that changed since the last checkpoint, and
//! the number of segments per use. **Invariants.** All of these are written only under the lock of
//! the segment they describe ([`Segments::with`]), and read without: what they say is checked again
//! under the lock. An open segment is on no list, so that allocating in it writes nothing shared.

use std::ops::Range;

use dure_sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use dure_sync::{CachePadded, Mutex, MutexGuard};

use super::segment::{Role, SegmentState};
use crate::format::sit::SegmentUse;
use crate::ranks::SEGMENT;
use crate::units::SegNo;

/// The segments of the main area.
#[derive(Debug)]
pub(crate) struct Segments {
    states: Box<[CachePadded<Mutex<SEGMENT, SegmentState>>]>,
    /// Blocks of a segment.
    pub(crate) segment_blocks: u32,
    /// Free blocks of each closed segment, 0 for the others. Hints, hence Relaxed.
    slack: Box<[AtomicU16]>,
    /// Bit i: segment i is closed and wholly free. Hints, hence Relaxed.
    whole: Box<[AtomicU64]>,
    /// Bit i: segment i has something for the next checkpoint. Set by whoever changes the segment,
    /// under its lock; taken by the checkpoint, which then takes the lock. Relaxed: the lock orders
    /// the change itself, and a bit set too late is seen by the next checkpoint.
    dirty: Box<[AtomicU64]>,
    /// Segments per use, by code: statistics, hence Relaxed.
    uses: [AtomicU32; 4],
}

impl Segments {
    /// Segments in these states, everything counted and listed.
    pub(crate) fn new(states: Vec<SegmentState>, segment_blocks: u32) -> Segments {
        let count = states.len();
        let words = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let segments = Segments {
            states: states
                .into_iter()
                .map(|state| CachePadded::new(Mutex::new(state)))
                .collect(),
            segment_blocks,
            slack: (0..count).map(|_| AtomicU16::new(0)).collect(),
            whole: words(),
            dirty: words(),
            uses: [const { AtomicU32::new(0) }; 4],
        };
        for segment in segments.all() {
            segments.with(segment, |state| {
                if state.usage == SegmentUse::Log {
                    // Whether it still is one, the journal headers say.
                    state.usage = SegmentUse::Data;
                }
            });
        }
        segments
    }

    /// Every segment.
    pub(crate) fn all(&self) -> impl Iterator<Item = SegNo> + use<> {
        let count = u32::try_from(self.states.len()).expect("the layout has u32 segments");
        (0..count).map(SegNo)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.states.len()).expect("the layout has u32 segments")
    }

    /// Runs `body` under the segment's lock and brings the lists in step.
    pub(crate) fn with<R>(&self, segment: SegNo, body: impl FnOnce(&mut SegmentState) -> R) -> R {
        self.run(segment, self.states[segment.0 as usize].lock(), body)
    }

    /// As [`Segments::with`], unless somebody has the lock.
    pub(crate) fn try_with<R>(
        &self,
        segment: SegNo,
        body: impl FnOnce(&mut SegmentState) -> R,
    ) -> Option<R> {
        Some(self.run(segment, self.states[segment.0 as usize].try_lock()?, body))
    }

    /// Holds the segment's lock, as another core would.
    #[cfg(test)]
    pub(crate) fn hold(&self, segment: SegNo) -> MutexGuard<'_, SEGMENT, SegmentState> {
        self.states[segment.0 as usize].lock()
    }

    /// The closed and wholly free segments among `range`.
    pub(crate) fn whole_in(&self, range: Range<u32>) -> impl Iterator<Item = SegNo> {
        bits_in(&self.whole, range)
    }

    /// Free blocks of a segment, 0 unless it is closed.
    pub(crate) fn slack(&self, segment: SegNo) -> u32 {
        u32::from(self.slack[segment.0 as usize].load(Ordering::Relaxed))
    }

    /// Takes the list of segments that changed.
    pub(crate) fn take_dirty(&self) -> Vec<SegNo> {
        let mut taken = Vec::new();
        for (index, word) in self.dirty.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            let start = u32::try_from(index * 64).expect("the layout has u32 segments");
            while bits != 0 {
                taken.push(SegNo(start + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        taken
    }

    /// Segments used for `usage`.
    pub(crate) fn used_for(&self, usage: SegmentUse) -> u32 {
        self.uses[usize::from(usage.code())].load(Ordering::Relaxed)
    }

    fn run<R>(
        &self,
        segment: SegNo,
        mut state: MutexGuard<'_, SEGMENT, SegmentState>,
        body: impl FnOnce(&mut SegmentState) -> R,
    ) -> R {
        let result = body(&mut state);
        self.publish(segment, &mut state);
        result
    }

    fn publish(&self, segment: SegNo, state: &mut SegmentState) {
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
            let free = u16::try_from(free).expect("at most 512");
            self.slack[segment.0 as usize].store(free, Ordering::Relaxed);
            set_bit(&self.whole, segment, empty);
        }
        if state.counted != Some(state.usage) {
            if let Some(before) = state.counted {
                self.uses[usize::from(before.code())].fetch_sub(1, Ordering::Relaxed);
            }
            self.uses[usize::from(state.usage.code())].fetch_add(1, Ordering::Relaxed);
            state.counted = Some(state.usage);
        }
        if state.sit_dirty || state.overlay.is_some() {
            set_bit(&self.dirty, segment, true);
        }
    }
}

/// The segments of `range` whose bits are set.
fn bits_in(words: &[AtomicU64], range: Range<u32>) -> impl Iterator<Item = SegNo> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        while at < range.end {
            let rest = words[(at / 64) as usize].load(Ordering::Relaxed) >> (at % 64);
            if rest == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            let found = at + rest.trailing_zeros();
            at = found + 1;
            return (found < range.end).then_some(SegNo(found));
        }
        None
    })
}

/// Writes a bit unless it is right already, so that a line that does not change stays shared.
fn set_bit(words: &[AtomicU64], segment: SegNo, value: bool) {
    let word = &words[(segment.0 / 64) as usize];
    let bit = 1_u64 << (segment.0 % 64);
    let is = word.load(Ordering::Relaxed) & bit != 0;
    if value && !is {
        word.fetch_or(bit, Ordering::Relaxed);
    } else if is && !value {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}
