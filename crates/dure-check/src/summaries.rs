//! The summaries of the segments last used, and what was found in them.
//!
//! **Problem.** Owners are walked in the order of inodes, which leads to segments in any order.
//! **Structure.** A bounded cache; per segment, how many blocks have a wrong owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dure_store::format::summary::SummaryEntry;
use dure_store::units::SegNo;

/// Summaries kept in memory (6 KiB each for the largest segments).
const KEPT: usize = 256;

/// The summaries read so far.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    pub(super) kept: BTreeMap<SegNo, Box<[SummaryEntry]>>,
    order: VecDeque<SegNo>,
    /// Segments whose pairs were looked at.
    pub(super) seen: BTreeSet<SegNo>,
    /// Per segment: blocks with a wrong owner, and the first of them.
    pub(super) wrong: BTreeMap<SegNo, (u32, u64)>,
}

impl Summaries {
    /// Keeps the summary of a segment, in place of the oldest one if there are many.
    pub(super) fn keep(&mut self, segment: SegNo, entries: Box<[SummaryEntry]>) {
        if self.order.len() >= KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept.remove(&oldest);
        }
        self.order.push_back(segment);
        self.kept.insert(segment, entries);
    }
}
