//! Numbers about space.

use std::ops::Range;

use dure_sync::Counter;

use super::Space;
use super::segment::Role;
use crate::format::sit::SegmentUse;
use crate::units::SegNo;

/// Numbers for statfs and for people, each a sum over few counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatistics {
    /// Blocks of the main area.
    pub total: u64,
    /// Blocks that hold nothing live, belong to no log, and are not needed by snapshots.
    pub free: u64,
    /// Blocks that only snapshots need.
    pub pinned_only: u64,
    /// Blocks that an operation of any class may still reserve.
    pub available: u64,
    /// Blocks kept for operations that free as many as they take.
    pub kept: u64,
    /// Blocks promised to writes that were accepted elsewhere ([`Space::promise`]).
    pub promised: u64,
    /// Blocks that the kept and the promised ones lack.
    pub aside_lacks: u64,
    /// Blocks that will be free when the operations that freed them are valid.
    pub freeing: u64,
    /// Wholly free segments.
    pub segments_free: u32,
    /// Segments of file data.
    pub segments_data: u32,
    /// Segments of node images.
    pub segments_node: u32,
    /// Segments of log rings.
    pub segments_log: u32,
    /// Allocations that found room only in segments that were open or being cleaned.
    pub(crate) scrapes: u64,
    /// Summary pairs that could not be read when they were rewritten.
    pub(crate) summaries_lost: u64,
}

impl Space {
    /// Blocks that are live.
    pub(crate) fn live_blocks(&self) -> u64 {
        u64::try_from(self.live.sum()).unwrap_or(0)
    }

    /// A few sums over few counters; reads a cache line of every core.
    pub fn statistics(&self) -> SpaceStatistics {
        let blocks = u64::from(self.layout.segment_blocks);
        let total = self.total_blocks();
        let log = self.log_segments();
        let count = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        SpaceStatistics {
            total,
            free: total.saturating_sub(
                count(&self.live) + count(&self.pinned_only) + u64::from(log) * blocks,
            ),
            pinned_only: count(&self.pinned_only),
            available: self.available.normal(),
            kept: self.available.kept(),
            promised: self.available.promised(),
            aside_lacks: self.available.aside_lacks(),
            freeing: count(&self.freeing),
            segments_free: self.segments.used_for(SegmentUse::Free),
            segments_data: self.segments.used_for(SegmentUse::Data),
            segments_node: self.segments.used_for(SegmentUse::Node),
            segments_log: log,
            scrapes: count(&self.scrapes),
            summaries_lost: count(&self.summaries_lost),
        }
    }

    /// The blocks that hold nothing and are part of no log, as ranges of block numbers, ascending.
    pub(crate) fn free_runs(&self) -> Vec<Range<u64>> {
        let blocks = self.layout.segment_blocks;
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut add = |run: Range<u64>| match runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => runs.push(run),
        };
        for segment in (0..self.layout.segments).map(SegNo) {
            let start = self.layout.segment_start(segment).0;
            let seen = self
                .segments
                .peek(segment, |state| (state.role, state.allocated));
            let Some((role, taken)) = seen else {
                add(start..start + u64::from(blocks));
                continue;
            };
            let mut at = if role == Role::Log { blocks } else { 0 };
            while let Some(first) = taken.next_absent(at, blocks) {
                at = taken.next_present(first, blocks).unwrap_or(blocks);
                add(start + u64::from(first)..start + u64::from(at));
            }
        }
        runs
    }
}
