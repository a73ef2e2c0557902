//! Tests of the space: single steps here; a naive model, the medium and real threads in the files
//! below.

mod medium;
mod model;
#[cfg(dure_backend = "sim")]
mod schedules;
mod threads;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dure_block::ram::RamDevice;
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use super::persist::PairWrite;
use super::*;
use crate::format::summary::OWNER_SLOT;
use crate::format::volume::VolumeHeader;
use crate::layout::FormatOptions;
use crate::media::Region;
use crate::pair;
use crate::units::{BLOCK_BYTES_U64, BlockNo};

/// A volume of 2048 blocks in segments of 32, with as many partitions as wanted.
fn layout(partitions: u32) -> Layout {
    let options = FormatOptions {
        journals: Some(partitions),
        label: String::new(),
        segment_blocks: Some(32),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    Layout::plan(2048, &options, 4).unwrap()
}

fn region(layout: &Layout) -> Arc<Region> {
    assert_eq!(layout.bytes(), layout.total_blocks * BLOCK_BYTES_U64);
    let device = RamDevice::new("ram", layout.total_blocks);
    Region::open(dure_block::share(device))
}

fn empty(partitions: u32) -> Space {
    let layout = layout(partitions);
    Space::new_empty(region(&layout), &layout, Arc::new(Packs::new(&layout)))
}

/// What a checkpoint does with what it collects, up to where it is named.
fn write_unnamed(space: &Space, checkpoint: u64) -> Vec<PairWrite> {
    let writes = space.collect(checkpoint, &space.changed_pairs()).unwrap();
    for write in &writes {
        let content = (checkpoint, &write.payload[..]);
        let seed = space.layout.crc_seed;
        let (first, slot) = (write.first, write.slot);
        pair::write_slot(&space.region, first, slot, write.kind, content, seed).unwrap();
    }
    writes
}

/// What a checkpoint does with what it collects.
fn write(space: &Space, checkpoint: u64) -> usize {
    let writes = write_unnamed(space, checkpoint);
    let named = writes
        .iter()
        .filter_map(|write| Some((write.named?, write.slot)));
    let named: Vec<_> = named.collect();
    let mut header = VolumeHeader::new_zeroed();
    let packs = &space.packs;
    packs
        .write(&space.region, &mut header, checkpoint, &named)
        .unwrap();
    space.region.flush().unwrap();
    writes.len()
}

fn core(number: u16) -> CoreId {
    CoreId::new(number)
}

fn one(block: BlockNo) -> Run {
    Run {
        first: block,
        count: 1,
    }
}

/// Reserves and allocates one block.
fn take(space: &Space, number: u16) -> BlockNo {
    assert!(
        space.reserve(core(number), 1, OpClass::Normal),
        "the volume is full"
    );
    space
        .alloc_data(core(number), Temperature::Warm, 1)
        .unwrap()
        .first
}

fn owner(nid: u64, slot: u8) -> SummaryEntry {
    SummaryEntry {
        nid: U64::new(nid),
        kind: OWNER_SLOT,
        granule: 2,
        slot,
        reserved: 0,
    }
}

fn reload(space: &Space) -> Result<Space> {
    Space::load(
        Arc::clone(&space.region),
        &space.layout,
        space.packs.clone(),
    )
}

fn panics(body: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

#[test]
fn a_block_lives_and_dies() {
    let space = empty(2);
    let before = space.statistics();
    assert!(space.reserve(core(0), 3, OpClass::Normal));
    let run = space.alloc_data(core(0), Temperature::Warm, 3).unwrap();
    assert_eq!(run.count, 3);
    space.settle([Effect::Live(run)]);
    assert_eq!(space.statistics().available, before.available - 3);
    assert_eq!(space.statistics().free, before.free - 3);
    space.settle([Effect::Free(run)]);
    let after = space.statistics();
    assert_eq!(
        (after.available, after.free),
        (before.available, before.free)
    );
}

#[test]
fn a_free_that_is_settled_before_its_placement_waits_for_it() {
    let space = empty(2);
    let before = space.statistics();
    let block = take(&space, 0);
    space.settle([Effect::Free(one(block))]);
    assert_eq!(
        space.statistics().available,
        before.available - 1,
        "not free yet"
    );
    assert_eq!(space.statistics().free, before.free);
    space.settle([Effect::Live(one(block))]);
    assert_eq!(space.statistics().available, before.available);
    assert!(!space.is_live(block));
}

/// What the space says is corrupt.
fn corrupt(result: crate::error::Result<()>) -> String {
    match result {
        Err(crate::error::Error::Corrupt { what, at, .. }) => format!("{what} ({at})"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn impossible_effects_are_bugs() {
    let space = empty(2);
    let block = one(take(&space, 0));
    let other = one(BlockNo(block.first.0 + 5));
    assert!(
        panics(|| space.settle([Effect::Live(other)])),
        "placement in a free block"
    );
    let space = empty(2);
    let block = one(take(&space, 0));
    space.settle([Effect::Live(block)]);
    assert!(panics(|| space.release(block)), "release of a live block");
}

#[test]
fn a_free_that_the_map_contradicts_is_corruption_and_changes_nothing() {
    let space = empty(2);
    let block = take(&space, 0);
    let before = space.statistics();
    space.check().unwrap();
    let free = one(BlockNo(block.0 + 5));
    space.settle([Effect::Free(free)]);
    let said = corrupt(space.check());
    assert!(said.contains("frees it, but it is free"), "{said}");
    assert!(said.ends_with(&format!("({})", free.first.0)), "{said}");
    assert_eq!(space.statistics(), before);
    // The first one is kept.
    space.settle([Effect::Free(one(BlockNo(3)))]);
    assert_eq!(corrupt(space.check()), said);

    let space = empty(2);
    space.settle([Effect::Free(one(BlockNo(3)))]);
    let said = corrupt(space.check());
    assert!(said.contains("outside of the main area"), "{said}");

    let space = empty(2);
    let block = one(take(&space, 0));
    space.settle([Effect::Free(block), Effect::Free(block)]);
    let said = corrupt(space.check());
    assert!(said.contains("twice"), "{said}");

    let space = empty(4);
    let log = space.alloc_log_segment(CoreId::new(0)).unwrap();
    space.settle([Effect::Free(one(space.layout.segment_start(log)))]);
    let said = corrupt(space.check());
    assert!(said.contains("part of a log"), "{said}");
}

#[test]
fn an_image_that_the_map_does_not_have_is_corruption() {
    let space = empty(1);
    let block = take(&space, 0);
    let said = corrupt(space.image_moved(BlockNo(block.0 + 1), BlockNo::NONE));
    assert!(said.contains("it is not live"), "{said}");
    let said = corrupt(space.image_moved(BlockNo(1), BlockNo::NONE));
    assert!(said.contains("outside of the main area"), "{said}");
}

#[test]
fn a_moved_image_stays_allocated_until_the_checkpoint_is_complete() {
    let space = empty(1);
    let full = space.statistics().available;
    assert!(space.reserve(core(0), 2, OpClass::Delete));
    let first = space.alloc_node(core(0)).unwrap();
    space.image_moved(BlockNo::NONE, first).unwrap();
    space.images_released();
    let second = space.alloc_node(core(0)).unwrap();
    space.image_moved(first, second).unwrap();
    assert!(!space.is_live(first) && space.is_live(second));
    assert_eq!(space.statistics().available, full - 2);
    space.images_released();
    assert_eq!(space.statistics().available, full - 1);
    space.image_moved(second, BlockNo::NONE).unwrap();
    space.images_released();
    assert_eq!(space.statistics().available, full);
}

#[test]
fn deletions_have_blocks_of_their_own() {
    let space = empty(2);
    let start = space.statistics();
    assert_eq!(start.available + start.kept, start.total);
    assert_eq!(start.kept, 64);
    let mut taken = 0;
    while space.reserve(core(1), 1, OpClass::Normal) {
        taken += 1;
    }
    assert_eq!(taken, start.available);
    assert!(!space.reserve(core(0), 1, OpClass::Normal));
    for _ in 0..64 {
        assert!(space.reserve(core(0), 1, OpClass::Delete));
    }
    assert!(!space.reserve(core(0), 1, OpClass::Delete));
    // What comes back goes to them first.
    space.unreserve(core(0), 60);
    assert!(!space.reserve(core(1), 1, OpClass::Normal));
    space.unreserve(core(0), 5);
    assert!(space.reserve(core(1), 1, OpClass::Normal));
    assert!(!space.reserve(core(1), 1, OpClass::Normal));
}

#[test]
fn a_refusal_counts_what_other_cores_have_stashed() {
    let space = empty(2);
    let all = u32::try_from(space.statistics().available).unwrap();
    for number in 0..4 {
        assert!(space.reserve(core(number), 1, OpClass::Normal));
        space.unreserve(core(number), 1);
    }
    assert!(!space.reserve(core(0), all + 1, OpClass::Normal));
    assert!(space.reserve(core(0), all, OpClass::Normal));
    assert!(!space.reserve(core(1), 1, OpClass::Normal));
}

#[test]
fn cores_allocate_in_their_own_partitions_one_block_after_the_other() {
    let space = empty(2);
    let mut blocks = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        for number in [0, 1] {
            blocks[usize::from(number)].push(take(&space, number));
        }
    }
    for (number, blocks) in (0..).zip(&blocks) {
        let ranges: Vec<_> = space
            .partitions
            .ranges(number, &(0..space.segments.count()))
            .collect();
        let [range] = &ranges[..] else {
            panic!("one range on a small volume: {ranges:?}");
        };
        for pair in blocks.windows(2) {
            assert_eq!(pair[1].0, pair[0].0 + 1, "a log has no holes");
        }
        assert!(
            blocks
                .iter()
                .all(|&block| range.contains(&space.locate(block).0.0))
        );
    }
}

#[test]
fn an_allocation_needs_no_lock_of_another_partition() {
    let space = empty(2);
    let (mine, other) = (take(&space, 0), take(&space, 1));
    let _segment = space.segments.hold(space.locate(mine).0);
    let next = dure_sync::thread::scope(|scope| {
        scope
            .spawn(|| {
                space
                    .alloc_data(core(1), Temperature::Warm, 1)
                    .unwrap()
                    .first
            })
            .join()
            .unwrap()
    });
    assert_eq!(next.0, other.0 + 1);
}

#[test]
fn a_held_segment_is_skipped() {
    let space = empty(2);
    let first = space
        .partitions
        .ranges(0, &(0..space.segments.count()))
        .next()
        .unwrap()
        .start;
    let _held = space.segments.hold(SegNo(first));
    let taken = dure_sync::thread::scope(|scope| scope.spawn(|| take(&space, 0)).join().unwrap());
    assert_eq!(space.locate(taken).0, SegNo(first + 1));
}

#[test]
fn big_requests_get_segment_sized_runs() {
    let space = empty(2);
    assert!(space.reserve(core(0), 1000, OpClass::Normal));
    for _ in 0..4 {
        assert_eq!(
            space
                .alloc_data(core(0), Temperature::Warm, 1000)
                .unwrap()
                .count,
            32
        );
    }
}

#[test]
fn data_and_nodes_do_not_share_segments_while_there_are_free_ones() {
    let space = empty(1);
    assert!(space.reserve(core(0), 60, OpClass::Normal));
    let segments = |mut alloc: Box<dyn FnMut() -> BlockNo>| {
        (0..30)
            .map(|_| space.locate(alloc()).0.0)
            .collect::<BTreeSet<u32>>()
    };
    let data = segments(Box::new(|| {
        space
            .alloc_data(core(0), Temperature::Warm, 1)
            .unwrap()
            .first
    }));
    let node = segments(Box::new(|| space.alloc_node(core(0)).unwrap()));
    assert!(data.is_disjoint(&node));
    let statistics = space.statistics();
    assert_eq!((statistics.segments_data, statistics.segments_node), (1, 1));
}

#[test]
fn temperatures_have_segments_of_their_own_while_there_are_free_ones() {
    let space = empty(1);
    let all = [Temperature::Hot, Temperature::Warm, Temperature::Cold];
    let place = |temperature| {
        assert!(space.reserve(core(0), 1, OpClass::Normal));
        let run = space.alloc_data(core(0), temperature, 1).unwrap();
        space.locate(run.first).0.0
    };
    let first: BTreeSet<u32> = all.map(place).into();
    assert_eq!(first.len(), 3);
    assert_eq!(BTreeSet::from(all.map(place)), first);
    // With few free segments data shares one: those that are open get full first.
    let mut places = vec![BTreeSet::new(); 3];
    while space.statistics().segments_free > 1 {
        for (temperature, places) in all.iter().zip(&mut places) {
            places.insert(place(*temperature));
        }
    }
    let shared = |one: usize, other: usize| !places[one].is_disjoint(&places[other]);
    assert!(shared(0, 1) || shared(1, 2), "{places:?}");
}

#[test]
fn log_segments_come_out_of_the_available_blocks() {
    let space = empty(2);
    let before = space.statistics();
    let segment = space.alloc_log_segment(CoreId::new(0)).unwrap();
    let during = space.statistics();
    assert_eq!(during.available, before.available - 32);
    assert_eq!((during.free, during.segments_log), (before.free - 32, 1));
    let mut all = BTreeSet::new();
    while space.reserve(core(0), 1, OpClass::Delete) {
        let block = space
            .alloc_data(core(0), Temperature::Warm, 1)
            .unwrap()
            .first;
        assert_ne!(space.locate(block).0, segment, "a block of a log");
        assert!(all.insert(block));
    }
    assert!(space.alloc_log_segment(CoreId::new(0)).is_none());
}

fn take_kept(space: &Space) -> BlockNo {
    assert!(space.reserve(core(0), 1, OpClass::Delete));
    space
        .alloc_data(core(0), Temperature::Warm, 1)
        .unwrap()
        .first
}

#[test]
fn a_victim_is_closed_and_partly_free_and_not_allocated_in() {
    let space = empty(1);
    let mut blocks = Vec::new();
    while space.reserve(core(0), 1, OpClass::Delete) {
        blocks.push(
            space
                .alloc_data(core(0), Temperature::Warm, 1)
                .unwrap()
                .first,
        );
    }
    space.settle(blocks.iter().map(|&block| Effect::Live(one(block))));
    assert!(
        space.victims(9, VictimPolicy::Greedy).is_empty(),
        "nothing is free"
    );
    let segment_of = |block: &BlockNo| space.locate(*block).0.0;
    for (segment, kept) in [(3, 20), (5, 2), (8, 10)] {
        let here = blocks.iter().filter(|block| segment_of(block) == segment);
        space.settle(here.skip(kept).map(|&block| Effect::Free(one(block))));
    }
    for policy in [VictimPolicy::Greedy, VictimPolicy::CostBenefit] {
        assert_eq!(space.victims(9, policy), [SegNo(5), SegNo(8), SegNo(3)]);
        assert_eq!(space.victims(1, policy), [SegNo(5)]);
    }
    assert!(space.begin_cleaning(SegNo(5)));
    assert!(!space.begin_cleaning(SegNo(5)));
    assert!(!space.victims(9, VictimPolicy::Greedy).contains(&SegNo(5)));
    assert_eq!(space.locate(take_kept(&space)).0, SegNo(8), "the next best");
    space.end_cleaning(SegNo(5));
    assert!(!space.begin_cleaning(SegNo(8)), "open now");
}
