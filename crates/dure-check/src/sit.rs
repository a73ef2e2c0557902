//! Pass 8: the SIT. A block is live exactly if something owns it; log segments have no live blocks.
//!
//! On a volume that was not unmounted, the blocks the recovery will decide about are left out.

use std::collections::BTreeSet;

use dure_store::format::sit::{ENTRIES, SegmentUse, SitBlock, SitEntry};
use dure_store::packs::Table;
use dure_store::space::{pair_index, summaries_from};
use dure_store::units::{SegNo, is_zero, to_u64, to_usize};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::PairKind;
use crate::pairs;

/// Reads all pairs that were ever written.
pub(super) fn load(context: &mut Context<'_>) {
    let packs = context.packs.clone();
    let written: Vec<u64> = packs.written(Table::Sit).collect();
    for (done, &index) in (0..).zip(&written) {
        context.progress("segments", done, to_u64(written.len()));
        let index = u32::try_from(index).expect("SIT pairs are u32");
        let at = context.layout.sit_pair(index);
        let name = pairs::name(PairKind::Sit, index);
        let code = packs.code(pair_index(index));
        let Some(payload) = pairs::read(context, name, at, code) else {
            context.sit_lost.insert(index);
            continue;
        };
        let block = SitBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
        if block.index.get() != u64::from(index) {
            let got = block.index.get();
            context.issue(IssueKind::PairMisplaced {
                pair: name,
                at,
                got,
            });
            context.sit_lost.insert(index);
            continue;
        }
        pairs::expect_zero(context, name, at, &block.reserved);
        context.sit.insert(index, Box::new(block));
    }
}

/// What the SIT has of a segment; all zero when its pair was never written.
pub(super) fn entry(context: &Context<'_>, segment: SegNo) -> SitEntry {
    let block = context.sit.get(&(segment.0 / ENTRIES));
    block.map_or_else(SitEntry::new_zeroed, |block| {
        block.entries[to_usize(u64::from(segment.0 % ENTRIES))]
    })
}

/// Compares all entries with the owners found. A pair that is lost is left out.
pub(super) fn check(context: &mut Context<'_>) {
    let per_pair = u64::from(ENTRIES * context.layout.segment_blocks);
    let touched = |range: std::ops::Range<u64>| range.start / per_pair..=(range.end - 1) / per_pair;
    let owned = context.owned.touched().flat_map(touched);
    let owned = owned.map(|index| u32::try_from(index).expect("SIT pairs are u32"));
    let used: BTreeSet<u32> = owned.chain(context.sit.keys().copied()).collect();
    for index in used.difference(&context.sit_lost.clone()).copied() {
        let at = context.layout.sit_pair(index);
        let entries = context.sit.get(&index).map(|block| block.entries);
        let entries = entries.unwrap_or([SitEntry::new_zeroed(); 50]);
        for (segment, entry) in (index * ENTRIES..).zip(&entries) {
            check_entry(context, segment, entry, at);
        }
    }
}

/// Whether bit `index` of an entry is set.
pub(super) fn is_live(entry: &SitEntry, index: u32) -> bool {
    let byte = usize::try_from(index / 8).expect("a segment has at most 512 blocks");
    entry.live[byte] >> (index % 8) & 1 == 1
}

fn check_entry(context: &mut Context<'_>, segment: u32, entry: &SitEntry, at: u64) {
    let set: u32 = entry.live.iter().map(|byte| byte.count_ones()).sum();
    if segment >= context.layout.segments {
        if !is_zero(entry.as_bytes()) {
            let what = format!("SIT entry of segment {segment}, which does not exist");
            context.issue(IssueKind::ReservedNotZero { what, at });
        }
        return;
    }
    if entry.reserved.get() != 0 {
        let what = format!("SIT entry of segment {segment}");
        context.issue(IssueKind::ReservedNotZero { what, at });
    }
    if summaries_from(entry.summaries).is_none() {
        let got = u64::from(entry.summaries);
        context.issue(IssueKind::SitField {
            segment,
            field: "slots of summaries",
            got,
        });
    }
    if SegmentUse::from_code(entry.usage).is_none() {
        let got = u64::from(entry.usage);
        context.issue(IssueKind::SitField {
            segment,
            field: "use",
            got,
        });
    }
    let got = u32::from(entry.valid.get());
    if got != set {
        context.issue(IssueKind::SitCount {
            segment,
            want: set,
            got,
        });
    }
    let blocks = 0..context.layout.segment_blocks;
    let within = u32::try_from(blocks.filter(|n| is_live(entry, *n)).count())
        .expect("a segment has at most 512 blocks");
    if within != set {
        let got = u64::from(set - within);
        context.issue(IssueKind::SitField {
            segment,
            field: "live bits behind the segment",
            got,
        });
    }
    compare_bits(context, segment, entry);
}

/// Number and first block of a group of blocks.
#[derive(Default)]
struct Group {
    count: u32,
    first: u64,
}

impl Group {
    fn add(&mut self, block: u64) {
        if self.count == 0 {
            self.first = block;
        }
        self.count += 1;
    }
}

fn compare_bits(context: &mut Context<'_>, segment: u32, entry: &SitEntry) {
    let first = context.layout.segment_start(SegNo(segment)).0;
    let log = context.log_segments.contains(&SegNo(segment));
    let (mut missing, mut leaked) = (Group::default(), Group::default());
    for n in 0..context.layout.segment_blocks {
        let block = first + u64::from(n);
        let index = block - context.layout.main;
        let owned = context.owned.get(index) && !log;
        let live = is_live(entry, n);
        if owned == live || context.unsettled.get(index) {
            continue;
        }
        if owned {
            missing.add(block);
        } else {
            leaked.add(block);
        }
    }
    if missing.count > 0 {
        let Group { count, first } = missing;
        context.issue(IssueKind::SitMissing {
            segment,
            count,
            first,
        });
    }
    // While a volume is mounted, a segment may join a ring before the SIT says so.
    if leaked.count > 0 && (context.clean || !log) {
        let Group { count, first } = leaked;
        context.issue(IssueKind::SitLeak {
            segment,
            count,
            first,
        });
    }
}
