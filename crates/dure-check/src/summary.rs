//! Pass 9: segment summaries. They are compared block by block while the owners are walked; the
//! summaries of the segments last used are cached. At the end those of all other segments are read,
//! too: a checkpoint reads what it changes, whether or not the segment has live blocks.
//!
//! A summary whose slot is lost makes the owners of its segment wrong, which a repair corrects.

use dure_store::format::sit::ENTRIES;
use dure_store::format::summary::{OWNER_SLOT, SummaryBlock, SummaryEntry};
use dure_store::space::{summaries_from, summary};
use dure_store::units::{BlockNo, Nid, SegNo, SlotRef, to_u64, to_usize};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::PairKind;
use crate::{pairs, sit};

/// Compares the summary entry of a block with its owner. On a volume that was not unmounted it
/// compares only blocks that a note of the logs names and whose owner no record changes: recovery
/// finds that owner by the summary. Summary entries of blocks placed by the logs may not be written
/// yet.
pub(super) fn expect_owner(
    context: &mut Context<'_>,
    block: BlockNo,
    nid: Nid,
    kind: u8,
    place: (u8, u8),
) {
    let asked =
        context.noted.get(block.0 - context.layout.main) && !context.replayed.contains_key(&nid);
    if !context.clean && !asked {
        return;
    }
    let (granule, slot) = place;
    let want = SummaryEntry {
        nid: U64::new(nid.0),
        kind,
        granule,
        slot,
        reserved: 0,
    };
    compare(context, block, want);
}

/// The summary of a shared block names one of its owners.
fn check_shared(context: &mut Context<'_>) {
    if !context.clean {
        return;
    }
    let entry = |owner: &SlotRef| SummaryEntry {
        nid: U64::new(owner.nid.0),
        kind: OWNER_SLOT,
        granule: owner.granule,
        slot: owner.slot,
        reserved: 0,
    };
    let shared = context.shared.blocks.iter();
    let shared = shared.filter(|(_, sharers)| !sharers.mixed);
    let owners = shared.map(|(block, sharers)| {
        let found = sharers.found.iter().map(|(owner, _)| entry(owner));
        (*block, found.collect::<Vec<SummaryEntry>>())
    });
    for (block, owners) in owners.collect::<Vec<_>>() {
        let named = entry_of(context, block);
        if let Some(first) = owners.first()
            && !owners.iter().any(|owner| Some(owner) == named.as_ref())
        {
            compare(context, block, *first);
        }
    }
}

fn entry_of(context: &mut Context<'_>, block: BlockNo) -> Option<SummaryEntry> {
    let (segment, index) = context.layout.locate(block)?;
    if !context.summaries.kept.contains_key(&segment) {
        load(context, segment);
    }
    Some(context.summaries.kept[&segment][to_usize(u64::from(index))])
}

/// Compares the entry of `block` with its owner.
fn compare(context: &mut Context<'_>, block: BlockNo, want: SummaryEntry) {
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
    let first = context.summaries.seen.insert(segment);
    let mut entries = Vec::new();
    for n in 0..context.layout.summary_pairs {
        let block = read_pair(context, segment, n, first);
        entries.extend(block.map_or([SummaryEntry::default(); 336], |block| block.entries));
    }
    assert!(entries.len() >= to_usize(u64::from(context.layout.segment_blocks)));
    context.summaries.keep(segment, entries.into_boxed_slice());
}

/// Pair `n` of a segment, as far as it can be used. A segment may be loaded again; what is wrong
/// with it is said the first time.
fn read_pair(
    context: &mut Context<'_>,
    segment: SegNo,
    n: u32,
    first: bool,
) -> Option<SummaryBlock> {
    let codes = summaries_from(sit::entry(context, segment).summaries).unwrap_or_default();
    let code = codes[to_usize(u64::from(n))];
    if !first {
        return summary::read(&context.region, &context.layout, (segment, n), code).ok()?;
    }
    let at = context.layout.summary_pair(segment, n);
    let name = pairs::name(PairKind::Summary, segment.0);
    let payload = pairs::read(context, name, at, code)?;
    let block = SummaryBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
    if block.segment.get() != u64::from(segment.0) {
        let got = block.segment.get();
        context.issue(IssueKind::PairMisplaced {
            pair: name,
            at,
            got,
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
    let mut all = Vec::new();
    for (index, block) in &context.sit {
        let entries = (index * ENTRIES..).zip(&block.entries);
        let written = entries.filter(|(_, entry)| entry.summaries != 0);
        all.extend(written.map(|(segment, _)| SegNo(segment)));
    }
    let segments = context.layout.segments;
    for (done, &segment) in (0..).zip(&all) {
        context.progress("summaries", done, to_u64(all.len()));
        if segment.0 < segments && context.summaries.seen.insert(segment) {
            for n in 0..context.layout.summary_pairs {
                read_pair(context, segment, n, true);
            }
        }
    }
}

/// Reports what was found, one line per segment.
pub(super) fn finish(context: &mut Context<'_>) {
    check_shared(context);
    check_others(context);
    for (segment, (count, first)) in std::mem::take(&mut context.summaries.wrong) {
        context.issue(IssueKind::SummaryWrong {
            segment: segment.0,
            count,
            first,
        });
    }
}
