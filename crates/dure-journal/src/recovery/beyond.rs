//! Complete transactions after the end of a log.
//!
//! **Problem.** A log ends where the expected transaction is not complete: it was never written, a
//! crash has cut its write off, or the medium has lost it. Only in the last case do later
//! transactions say that it was durable. **Structure.** After a transaction of unknown length the
//! next one may begin at any block, so blocks are tried one by one in the segments where the log
//! can have continued. That is at most three segments, unless later ones are known to be in use:
//! * the one in which the log ends;
//! * those that begin with a later transaction;
//! * the next segment of the ring, if the missing transaction may not have fitted. Segments that
//!   this epoch has not used come first, in the order of the list; then those that were freed, the
//!   oldest first. If the start of the next one is what is damaged, it looks unused.
//!
//! # What bounds the search
//! **Invariants.** Sequences and handle numbers found rise. The work is bounded by the ring: what
//! looks like a transaction and is not complete uses up a budget. **Crash.** Nothing is written;
//! what is found here after an ordinary crash was never acknowledged, and is left out.

use std::collections::BTreeSet;

use super::scan::LoggedTransaction;
use super::walk::{End, Walk};
use crate::error::Result;
use crate::format::TailPosition;
use crate::units::to_usize;

/// How many blocks of incomplete transactions are read, in segments.
const INCOMPLETE_SEGMENTS_MAX: u32 = 4;

impl Walk<'_> {
    /// Complete transactions after the end of the log that begins at `tail`, by sequence.
    pub(super) fn beyond(
        &mut self,
        tail: &TailPosition,
        end: &End,
    ) -> Result<Vec<LoggedTransaction>> {
        let mut found = Vec::new();
        let mut budget = INCOMPLETE_SEGMENTS_MAX * self.segment_blocks;
        for segment in self.candidates(tail, end)? {
            let mut offset = if segment == end.segment {
                end.offset
            } else {
                0
            };
            while offset < self.segment_blocks && budget > 0 {
                let later = |sequence| sequence > end.sequence;
                let Some(blocks) = self.peek_at(segment, offset, later)? else {
                    offset += 1;
                    continue;
                };
                if let Some(transaction) = self.open_at(segment, offset, blocks)? {
                    found.push(transaction);
                    offset += blocks;
                } else {
                    budget = budget.saturating_sub(blocks);
                    offset += 1;
                }
            }
        }
        found.sort_by_key(|transaction| transaction.sequence);
        let mut number = end.number;
        found.retain(|transaction| {
            let rises = transaction.first >= number;
            if rises {
                number = transaction.last + 1;
            }
            rises
        });
        Ok(found)
    }

    /// The segments in which the log can have continued.
    fn candidates(&mut self, tail: &TailPosition, end: &End) -> Result<BTreeSet<usize>> {
        let count = self.segments.len();
        let starts = self.starts()?;
        let mut candidates: BTreeSet<usize> = starts
            .range(end.sequence + 1..)
            .map(|(_, segment)| *segment)
            .collect();
        if end.offset > 0 {
            // Those with a start between tail and end belong to the log; so do these two.
            let other = |segment: &usize| ![to_usize(tail.segment), end.segment].contains(segment);
            let used: BTreeSet<usize> = starts.values().copied().collect();
            let mut unused = (0..count).filter(other).filter(|n| !used.contains(n));
            candidates.extend(unused.next());
            let mut freed = starts.range(..tail.sequence).map(|(_, segment)| *segment);
            candidates.extend(freed.find(other));
        }
        candidates.insert(end.segment);
        Ok(candidates)
    }
}
