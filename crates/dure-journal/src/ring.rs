//! The ring: which segments of a journal are in use, and where the next transaction goes.
//!
//! **Problem.** Log space is reused, and after a crash a segment must never mix old and new use.
//! **Structure.** Two lists, the segments in use from the tail's to the head's in log order, and
//! the free ones in the order in which they became free; and the offset of the head.
//!
//! # When a segment moves
//! **Invariants.** A segment is in exactly one of the two lists. It leaves `used` only after a
//! header whose tail has left it is durable, and enters `free` only after a header that lists it is
//! durable. It leaves `free` for another ring before a header without it is written, and enters
//! that ring after this header is durable.
//!
//! **Crash.** The scan follows sequence numbers: the next transaction lies directly after the last
//! one or at the start of another segment, so no pointer between segments has to be durable.

use std::collections::VecDeque;

use dure_block::Lba;

use crate::units::to_u32;

/// One to write to and one to move to.
const RING_SEGMENTS_MIN: usize = 2;

#[derive(Debug)]
pub(crate) struct Ring {
    segment_blocks: u32,
    /// All segments, in the order of the journal header.
    segments: Vec<Lba>,
    /// Indices into `segments`, tail first, head last; never empty.
    used: VecDeque<u32>,
    /// Indices into `segments`.
    free: VecDeque<u32>,
    /// Blocks of the head's segment that are written.
    offset: u32,
}

impl Ring {
    /// An empty log that begins at the first segment.
    pub(crate) fn new(segments: Vec<Lba>, segment_blocks: u32) -> Self {
        assert!(
            segments.len() >= RING_SEGMENTS_MIN,
            "a ring needs a segment to move to"
        );
        let count = to_u32(segments.len());
        Self {
            segment_blocks,
            segments,
            used: VecDeque::from([0]),
            free: (1..count).collect(),
            offset: 0,
        }
    }

    pub(crate) fn segments(&self) -> &[Lba] {
        &self.segments
    }

    pub(crate) fn free_count(&self) -> u32 {
        to_u32(self.free.len())
    }

    /// Blocks left in the segment being written.
    pub(crate) fn blocks_left(&self) -> u32 {
        self.segment_blocks - self.offset
    }

    /// Segment index and offset where the next transaction goes if it fits there.
    pub(crate) fn head(&self) -> (u32, u32) {
        (
            *self.used.back().expect("the head has a segment"),
            self.offset,
        )
    }

    /// Where the next transaction goes.
    pub(crate) fn head_lba(&self) -> Lba {
        let (segment, offset) = self.head();
        self.segments[crate::units::to_usize(segment)].offset(u64::from(offset))
    }

    /// Moves the head to the start of the next free segment.
    pub(crate) fn enter_next(&mut self) {
        let next = self
            .free
            .pop_front()
            .expect("the caller counted the free segments");
        self.used.push_back(next);
        self.offset = 0;
    }

    /// Moves the head past a transaction of `blocks` blocks.
    pub(crate) fn advance(&mut self, blocks: u32) {
        assert!(
            blocks <= self.blocks_left(),
            "a transaction stays inside its segment"
        );
        self.offset += blocks;
    }

    /// Frees every segment before `tail_segment`, which is in use. A header with that tail is
    /// durable. Returns how many.
    pub(crate) fn release_before(&mut self, tail_segment: u32) -> u32 {
        assert!(
            self.used.contains(&tail_segment),
            "the tail is in a used segment"
        );
        let mut released = 0;
        while self.used.front() != Some(&tail_segment) {
            let segment = self
                .used
                .pop_front()
                .expect("the tail's segment stops the loop");
            self.free.push_back(segment);
            released += 1;
        }
        released
    }

    /// Adds a segment that a durable header lists.
    pub(crate) fn add(&mut self, segment: Lba) {
        assert!(
            !self.segments.contains(&segment),
            "a segment is listed once"
        );
        self.free.push_back(to_u32(self.segments.len()));
        self.segments.push(segment);
    }

    /// Removes a free segment, if two others stay. The last of the list takes its index: returns
    /// the segment, the old index of the last one, and its new one. The caller makes a header
    /// without the segment durable before it gets another use.
    pub(crate) fn remove_free(&mut self) -> Option<(Lba, u32, u32)> {
        if self.segments.len() <= RING_SEGMENTS_MIN {
            return None;
        }
        let now = self.free.pop_back()?;
        let before = to_u32(self.segments.len()) - 1;
        let moved = |index: &&mut u32| **index == before;
        if let Some(index) = self.used.iter_mut().chain(&mut self.free).find(moved) {
            *index = now;
        }
        let removed = self.segments.swap_remove(crate::units::to_usize(now));
        Some((removed, before, now))
    }

    /// Blocks between the tail's segment's start and the head, and of the whole ring.
    pub(crate) fn used_and_capacity(&self) -> (u64, u64) {
        let blocks = u64::from(self.segment_blocks);
        let full = crate::units::to_u64(self.used.len() - 1) * blocks;
        (
            full + u64::from(self.offset),
            crate::units::to_u64(self.segments.len()) * blocks,
        )
    }
}

#[cfg(test)]
mod tests;
