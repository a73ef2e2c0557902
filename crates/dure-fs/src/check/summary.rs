//! Pass 9: segment summaries. They are compared block by block while the owners are walked; the
//! summaries of the segments last used are kept.
//!
//! mkfs does not write the summary area, so a slot that is not valid may be what an earlier volume left
//! there; what counts is whether the owners of live blocks are right.

use std::collections::{BTreeMap, VecDeque};

use zerocopy::FromBytes;

use crate::format::summary::{SummaryBlock, SummaryEntry};
use crate::units::{BlockNo, SegNo, to_usize};

use super::context::Context;
use super::issue::IssueKind;
use super::owner::PairKind;
use super::pairs;

/// Summaries kept in memory (6 KiB each for the largest segments).
const KEPT: usize = 256;

/// What is known of summaries.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    kept: BTreeMap<SegNo, Box<[SummaryEntry]>>,
    order: VecDeque<SegNo>,
    /// Per segment: blocks with a wrong owner, and the first of them.
    wrong: BTreeMap<SegNo, (u32, u64)>,
}

/// Compares the entry of `block` with its owner.
pub(super) fn compare(context: &mut Context<'_>, block: BlockNo, want: SummaryEntry) {
    let Some((segment, index)) = context.layout.locate(block) else {
        return;
    };
    if !context.summaries.kept.contains_key(&segment) {
        load(context, segment);
    }
    let entries = &context.summaries.kept[&segment];
    if entries[to_usize(u64::from(index))] == want {
        return;
    }
    let (count, first) = context
        .summaries
        .wrong
        .entry(segment)
        .or_insert((0, block.0));
    *count += 1;
    *first = block.0.min(*first);
    if context.repairing() {
        context.repairs.summaries.insert(block, want);
    }
}

fn load(context: &mut Context<'_>, segment: SegNo) {
    let mut entries = Vec::new();
    for n in 0..context.layout.summary_pairs {
        let at = context.layout.summary_pair(segment, n);
        let block = load_pair(context, segment, at);
        entries.extend(block.map_or([SummaryEntry::default(); 336], |block| block.entries));
    }
    assert!(entries.len() >= to_usize(u64::from(context.layout.segment_blocks)));
    let summaries = &mut context.summaries;
    if summaries.order.len() >= KEPT
        && let Some(oldest) = summaries.order.pop_front()
    {
        summaries.kept.remove(&oldest);
    }
    summaries.order.push_back(segment);
    summaries.kept.insert(segment, entries.into_boxed_slice());
}

/// One pair as far as it is valid.
fn load_pair(context: &mut Context<'_>, segment: SegNo, at: u64) -> Option<SummaryBlock> {
    let bytes = context.read(at, 2)?;
    let kind = pairs::slot_kind(PairKind::Summary);
    let (slots, bad) = pairs::parse(&bytes, kind, at, context.layout.crc_seed);
    let name = pairs::name(PairKind::Summary, segment.0);
    let newest = slots.newest?;
    // From the second generation on, this volume has written both slots.
    if newest.generation > 1 {
        for at in bad {
            context.issue(IssueKind::PairSlotBad { pair: name, at });
        }
    }
    let block = SummaryBlock::read_from_bytes(&newest.payload).expect("a whole payload");
    if block.segment.get() != u64::from(segment.0) {
        context.issue(IssueKind::PairMisplaced {
            pair: name,
            at,
            got: block.segment.get(),
        });
        return None;
    }
    pairs::expect_zero(context, name, at, &block.reserved);
    Some(block)
}

/// Reports what was found, one line per segment.
pub(super) fn finish(context: &mut Context<'_>) {
    for (segment, (count, first)) in std::mem::take(&mut context.summaries.wrong) {
        context.issue(IssueKind::SummaryWrong {
            segment: segment.0,
            count,
            first,
        });
    }
}
