//! Pass 9: segment summaries. They are compared block by block while the owners are walked; the
//! summaries of the segments last used are kept. At the end those of all other segments are read,
//! too: a checkpoint reads what it changes, whether or not something is live there now.
//!
//! mkfs does not write the summary area, so a slot that is not valid may be what an earlier volume
//! left there; what counts is whether the owners of live blocks are right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dure_block::Lba;

use zerocopy::FromBytes;

use crate::format::summary::{SummaryBlock, SummaryEntry};
use crate::units::{BLOCK_BYTES, BlockNo, SegNo, to_usize};

use super::context::Context;
use super::issue::IssueKind;
use super::owner::PairKind;
use super::pairs;

/// Summaries kept in memory (6 KiB each for the largest segments).
const KEPT: usize = 256;

/// Segments whose summaries one request reads.
const BATCH_SEGMENTS: u32 = 32;

/// What is known of summaries.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    kept: BTreeMap<SegNo, Box<[SummaryEntry]>>,
    order: VecDeque<SegNo>,
    /// Segments whose pairs were looked at.
    seen: BTreeSet<SegNo>,
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
    let first = context.summaries.seen.insert(segment);
    for n in 0..context.layout.summary_pairs {
        let at = context.layout.summary_pair(segment, n);
        let bytes = context.read(at, 2);
        // A segment may be loaded again; what is wrong with it was said the first time.
        let block = match bytes {
            Some(bytes) if first => check_pair(context, segment, at, &bytes),
            Some(bytes) => parse(context, at, &bytes).0,
            None => None,
        };
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

/// The pair as far as it is valid, its generation, and its slots that are not.
fn parse(context: &Context<'_>, at: u64, bytes: &[u8]) -> (Option<SummaryBlock>, u64, Vec<u64>) {
    let kind = pairs::slot_kind(PairKind::Summary);
    let (slots, bad) = pairs::parse(bytes, kind, at, context.layout.crc_seed);
    let Some(newest) = slots.newest else {
        return (None, 0, bad);
    };
    let block = SummaryBlock::read_from_bytes(&newest.payload).expect("a whole payload");
    (Some(block), newest.generation, bad)
}

/// Checks a pair; gives it as far as it can be used.
fn check_pair(
    context: &mut Context<'_>,
    segment: SegNo,
    at: u64,
    bytes: &[u8],
) -> Option<SummaryBlock> {
    let (block, generation, bad) = parse(context, at, bytes);
    let block = block?;
    let name = pairs::name(PairKind::Summary, segment.0);
    // From the second generation on, this volume has written both slots.
    if generation > 1 {
        for at in bad {
            context.issue(IssueKind::PairSlotBad { pair: name, at });
        }
    }
    pairs::expect_count(context, || format!("generation of {name}"), at, generation);
    if block.segment.get() != u64::from(segment.0) {
        context.issue(IssueKind::PairMisplaced {
            pair: name,
            at,
            got: block.segment.get(),
        });
        return None;
    }
    pairs::expect_zero(context, name, at, &block.reserved);
    let dirt: Vec<u8> = block.entries.iter().map(|entry| entry.reserved).collect();
    pairs::expect_zero(context, name, at, &dirt);
    Some(block)
}

/// Checks the pairs of the segments that no live block has led to.
fn check_others(context: &mut Context<'_>) {
    let segments = context.layout.segments;
    let pairs = context.layout.summary_pairs;
    for first in (0..segments).step_by(to_usize(u64::from(BATCH_SEGMENTS))) {
        context.progress("summaries", u64::from(first), u64::from(segments));
        let count = BATCH_SEGMENTS.min(segments - first);
        let start = context.layout.summary_pair(SegNo(first), 0);
        let mut bytes = vec![0; to_usize(u64::from(2 * pairs * count)) * BLOCK_BYTES];
        let whole = context.queue.read(Lba::new(start), &mut bytes).is_ok();
        let mut rest = bytes.chunks_exact(2 * BLOCK_BYTES);
        for segment in (first..first + count).map(SegNo) {
            let new = context.summaries.seen.insert(segment);
            for n in 0..pairs {
                let at = context.layout.summary_pair(segment, n);
                let pair = rest.next().expect("a pair for each");
                if !new {
                    continue;
                }
                if whole {
                    check_pair(context, segment, at, pair);
                } else if let Some(pair) = context.read(at, 2) {
                    check_pair(context, segment, at, &pair);
                }
            }
        }
    }
}

/// Reports what was found, one line per segment.
pub(super) fn finish(context: &mut Context<'_>) {
    check_others(context);
    for (segment, (count, first)) in std::mem::take(&mut context.summaries.wrong) {
        context.issue(IssueKind::SummaryWrong {
            segment: segment.0,
            count,
            first,
        });
    }
}
