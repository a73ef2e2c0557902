//! Log space: how a prefix of handles is cut into transactions, and how much may be reserved.
//!
//! **Problem.** Joining cannot fail, so a handle needs its log space when it begins; but a commit
//! pads to whole blocks and leaves gaps at segment ends, which cannot be known then. **Structure.**
//! [`plan`] cuts greedily in join order: fill the current segment, then the next free one. `room`
//! is how much may still be reserved, and counts *whole free segments only*: the rest of the
//! segment being written is the slack that absorbs padding.
//!
//! # Why every joined handle fits
//! **Invariants.** `room = free segments * usable - bytes of joined and open handles >= 0`, kept by
//! `begin` and by every ordinary commit. A full segment of a plan wastes less than one handle, and
//! a commit of a cut less than one block; so `usable` = segment - header - greatest handle - four
//! blocks makes everything joined fit, also in the few commits of a cut that come before the space
//! of the first one is free again. Only these may leave `room` negative; until the tail has passed
//! the cut, every `begin` and every other commit then finds the log full.
//!
//! **Crash.** Nothing here is on the medium.

use std::ops::Range;

use crate::format::TRANSACTION_HEADER_BYTES;
use crate::units::{BLOCK_BYTES_U32, to_u32};

/// Bytes a mark takes in a transaction.
pub(crate) const MARK_BYTES: u32 = 8;
/// Charged per handle, so that even empty handles are bounded.
pub(crate) const HANDLE_BYTES: u32 = 8;
/// A segment must hold eight of the greatest handles.
const HANDLES_PER_SEGMENT_MIN: u32 = 8;
/// Commits of a cut before the space of the first one is free again: two checkpoints, two each.
pub(crate) const CUT_COMMITS_MAX: u32 = 4;
/// The smallest segment.
pub(crate) const SEGMENT_BLOCKS_MIN: u32 = 8;
/// The largest segment: 8 MiB, so that offsets in a whole ring fit in 32 bits.
pub(crate) const SEGMENT_BLOCKS_MAX: u32 = 2048;

const HEADER_BYTES: u32 = 80;
const _: () = assert!(crate::units::to_usize(HEADER_BYTES) == TRANSACTION_HEADER_BYTES);
/// What a piece of a compound transaction takes besides its handles: header, and the mark that ties
/// it to the next piece.
pub(crate) const PIECE_BYTES: u32 = HEADER_BYTES + MARK_BYTES;

/// The greatest handle (records, marks and overhead) of a ring with such segments.
pub(crate) const fn handle_bytes_max(segment_blocks: u32) -> u32 {
    segment_blocks * BLOCK_BYTES_U32 / HANDLES_PER_SEGMENT_MIN
}

/// Bytes of handles that always fit a free segment.
pub(crate) const fn segment_bytes_usable(segment_blocks: u32) -> u32 {
    let padding = CUT_COMMITS_MAX * (BLOCK_BYTES_U32 + HEADER_BYTES);
    segment_blocks * BLOCK_BYTES_U32 - HEADER_BYTES - padding - handle_bytes_max(segment_blocks)
}

const _: () = assert!(
    segment_bytes_usable(SEGMENT_BLOCKS_MIN) > handle_bytes_max(SEGMENT_BLOCKS_MIN),
    "a free segment takes at least one handle of any size"
);

/// End of a joined handle within the record bytes and the marks of its journal's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandleEnd {
    pub(crate) bytes: u32,
    pub(crate) marks: u32,
}

impl HandleEnd {
    pub(crate) const START: Self = Self { bytes: 0, marks: 0 };

    /// Bytes charged for the handles from `start` to here, `count` of them.
    pub(crate) fn charge(self, start: Self, count: usize) -> u64 {
        let bytes = u64::from(self.bytes - start.bytes);
        let marks = u64::from(self.marks - start.marks);
        bytes
            + marks * u64::from(MARK_BYTES)
            + crate::units::to_u64(count) * u64::from(HANDLE_BYTES)
    }
}

/// One transaction to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which handles of the prefix, counted from 0.
    pub(crate) handles: Range<usize>,
    /// Whether it goes to the next free segment instead of after the last transaction.
    pub(crate) new_segment: bool,
    /// A handle of the prefix, counted from 0, without whose piece this one is not valid.
    pub(crate) partner: Option<usize>,
}

/// Cuts the handles that end at `ends` into transactions. `blocks_left` is what the current segment
/// still has. The plan counts marks with duplicates, so it never plans too little space.
pub(crate) fn plan(
    ends: &[HandleEnd],
    blocks_left: u32,
    segment_blocks: u32,
    out: &mut Vec<Piece>,
) {
    plan_behind(HEADER_BYTES, ends, blocks_left, segment_blocks, out);
}

/// Like [`plan`], for a compound transaction (policy `image`): all its pieces are valid, or none.
pub(crate) fn plan_pieces(
    ends: &[HandleEnd],
    blocks_left: u32,
    segment_blocks: u32,
    out: &mut Vec<Piece>,
) {
    plan_behind(PIECE_BYTES, ends, blocks_left, segment_blocks, out);
    let starts: Vec<usize> = out.iter().map(|piece| piece.handles.start).collect();
    if starts.len() < 2 {
        return;
    }
    // A cycle of marks: no piece survives without the next.
    for (piece, next) in out.iter_mut().zip(starts.iter().cycle().skip(1)) {
        piece.partner = Some(*next);
    }
}

fn plan_behind(
    head_bytes: u32,
    ends: &[HandleEnd],
    blocks_left: u32,
    segment_blocks: u32,
    out: &mut Vec<Piece>,
) {
    out.clear();
    let mut room = u64::from(blocks_left) * u64::from(BLOCK_BYTES_U32);
    let mut new_segment = false;
    let mut start = 0;
    while start < ends.len() {
        let origin = if start == 0 {
            HandleEnd::START
        } else {
            ends[start - 1]
        };
        let fits = |end: &HandleEnd| {
            let bytes = end.charge(origin, 0) + u64::from(head_bytes);
            bytes <= room
        };
        // Ends rise, so what fits is a prefix.
        let count = ends[start..].partition_point(fits);
        if count > 0 {
            out.push(Piece {
                handles: start..start + count,
                new_segment,
                partner: None,
            });
            start += count;
        }
        assert!(count > 0 || !new_segment, "a handle fits an empty segment");
        new_segment = true;
        room = u64::from(segment_blocks) * u64::from(BLOCK_BYTES_U32);
    }
    assert!(
        to_u32(out.len()) <= to_u32(ends.len()),
        "no transaction is empty"
    );
}

#[cfg(test)]
mod tests;
