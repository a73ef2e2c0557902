//! The table by itself: what is freed when.

use dure_block::ram::RamDevice;
use smallvec::smallvec;

use super::*;
use crate::alloc::Temperature;
use crate::layout::{FormatOptions, Layout};
use crate::media::Region;
use crate::options::StoreOptions;
use crate::packs::Packs;
use crate::placement::Placement;
use crate::space::OpClass;
use crate::units::BlockNo;

const CORE: CoreId = CoreId::new(0);

struct World {
    region: Arc<Region>,
    space: Arc<Space>,
    table: Arc<DataLog>,
    placement: Placement,
}

fn world(pages_max: u64) -> World {
    let options = FormatOptions {
        journals: Some(1),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    let layout = Layout::plan(2048, &options, 4).unwrap();
    let device = RamDevice::new("ram", layout.total_blocks);
    let region = Region::open(dure_block::share(device));
    let packs = Arc::new(Packs::new(&layout));
    let space = Arc::new(Space::new_empty(region.clone(), &layout, packs));
    let frames = Arc::new(FramePool::new(1, 8, 1024));
    let table = Arc::new(DataLog::new(pages_max, 2, frames));
    let options = StoreOptions::default();
    let placement = Placement::new(region.clone(), space.clone(), table.clone(), &options);
    World {
        region,
        space,
        table,
        placement,
    }
}

impl World {
    /// Allocates a run and makes it live; each block's content is its place in the run.
    fn log(&self, count: u32) -> Run {
        assert!(self.space.reserve(CORE, count, OpClass::Normal));
        let run = self
            .space
            .alloc_data(CORE, Temperature::Warm, count)
            .unwrap();
        assert_eq!(run.count, count, "the volume is empty");
        let mut room = self.table.room(CORE, to_usize(count.into())).unwrap();
        for n in 0..count {
            let mut frame = Frame::zeroed();
            frame.bytes_mut().fill(u8::try_from(n).unwrap());
            let block = BlockNo(run.first.0 + u64::from(n));
            self.table.insert(&mut room, block, frame);
        }
        drop(room);
        self.space
            .settle(self.table.pass(CORE, smallvec![Effect::Live(run)]));
        run
    }

    fn free(&self, first: u64, count: u32) -> Effects<Effect> {
        let run = Run {
            first: BlockNo(first),
            count,
        };
        self.table.pass(CORE, smallvec![Effect::Free(run)])
    }
}

#[test]
fn what_is_placed_is_on_the_device_and_not_in_the_table() {
    let world = world(8);
    let run = world.log(3);
    let mut bytes = [9; BLOCK_BYTES];
    assert!(world.table.read(BlockNo(run.first.0 + 2), &mut bytes));
    assert_eq!(bytes, [2; BLOCK_BYTES]);
    world.placement.write_logged(CORE).unwrap();
    assert!(
        world
            .table
            .shards
            .iter()
            .all(|shard| shard.lock().is_empty())
            && !world.table.holds(run.first)
    );
    let mut bytes = vec![9; 3 * BLOCK_BYTES];
    world.region.read(run.first, &mut bytes).unwrap();
    for n in 0..3_u8 {
        let page = &bytes[usize::from(n) * BLOCK_BYTES..][..BLOCK_BYTES];
        assert_eq!(page, [n; BLOCK_BYTES]);
    }
}

#[test]
fn what_is_freed_is_never_written() {
    let world = world(8);
    let run = world.log(4);
    let effects = world.free(run.first.0 + 1, 2);
    assert_eq!(effects.len(), 1, "both are free at once: {effects:?}");
    let before = world.region.counters().blocks_written;
    world.placement.write_logged(CORE).unwrap();
    assert_eq!(world.region.counters().blocks_written - before, 2);
    assert_eq!(world.table.spared.sum(), 2);
}

/// Fails when a block is free while its old content is on the way to it: another file's data would
/// be written into it and then be lost under that.
#[test]
fn a_block_freed_while_it_is_written_stays_allocated_until_that_is_over() {
    let world = world(8);
    let run = world.log(3);
    let middle = run.first.0 + 1;
    let free = world.space.statistics().free;
    let blocks = world.table.begin_writing();
    let effects = world.free(run.first.0, 3);
    assert!(
        effects.is_empty(),
        "all three are being written: {effects:?}"
    );
    world.space.settle(effects);
    assert_eq!(world.space.statistics().free, free);
    let mut bytes = vec![0; blocks.len() * BLOCK_BYTES];
    world.table.copy(&blocks, &mut bytes);
    world.region.write(blocks[0], &bytes).unwrap();
    world
        .table
        .end_writing(CORE, &world.space, blocks[..2].to_vec());
    assert_eq!(world.space.statistics().free, free + 2);
    assert!(world.table.holds(BlockNo(middle + 1)) && !world.table.holds(BlockNo(middle)));
    world
        .table
        .end_writing(CORE, &world.space, blocks[2..].to_vec());
    assert_eq!(world.space.statistics().free, free + 3);
    assert!(
        world
            .table
            .shards
            .iter()
            .all(|shard| shard.lock().is_empty())
    );
}

#[test]
fn a_freed_run_is_cut_around_what_is_being_written() {
    let world = world(8);
    let run = world.log(1);
    let blocks = world.table.begin_writing();
    let effects = world.free(run.first.0 - 2, 5);
    let pieces: Vec<_> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Free(run) => (run.first.0, run.count),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pieces, [(run.first.0 - 2, 2), (run.first.0 + 1, 2)]);
    world.table.end_writing(CORE, &world.space, blocks);
}

#[test]
fn what_other_cores_have_in_stock_is_found_when_nothing_else_is_left() {
    let world = world(64);
    drop(world.table.room(CORE, 1).unwrap());
    let other = CoreId::new(1);
    assert!(world.table.room(other, 40).is_none());
    assert!(world.table.room_of_all(other, 64).is_some());
    drop(world.table.room_of_all(CORE, 64).unwrap());
}

#[test]
fn the_table_takes_no_more_than_its_share() {
    let world = world(4);
    let run = world.log(3);
    assert!(world.table.room(CORE, 2).is_none());
    let room = world.table.room(CORE, 1).unwrap();
    assert!(world.table.room(CORE, 1).is_none());
    drop(room);
    assert!(world.table.room(CORE, 1).is_some());
    drop(world.free(run.first.0, 3));
    assert!(world.table.room(CORE, 4).is_some());
}

/// Pages that are only placed close the table, down to a sixteenth; pages that it spares open it
/// again.
#[test]
fn the_table_takes_as_many_pages_as_pay() {
    let world = world(16);
    let checkpoint = || world.placement.write_logged(CORE);
    let takes = |pages: usize| world.table.room_of_all(CORE, pages).is_some();
    let fill = |pages: usize| -> Vec<Run> { (0..pages).map(|_| world.log(1)).collect() };
    for open in [16, 8, 4, 2, 1, 1] {
        assert!(takes(open) && !takes(open + 1), "{open} pages");
        fill(open);
        assert!(world.table.room_that_pays(CORE, 1).is_none());
        checkpoint().unwrap();
    }
    for open in [1, 2, 4, 8, 16, 16] {
        assert!(takes(open) && !takes(open + 1), "{open} pages");
        let rewritten = fill(open);
        assert!(world.table.room_that_pays(CORE, 1).is_none());
        for run in rewritten {
            world.space.settle(world.free(run.first.0, 1));
        }
        fill(open);
        checkpoint().unwrap();
    }
}

/// A table that refuses no page stays as it is, whatever a checkpoint places.
#[test]
fn a_table_with_room_for_all_stays_open() {
    let world = world(16);
    for _ in 0..3 {
        world.log(8);
        let placed = world.placement.write_logged(CORE);
        placed.unwrap();
    }
    assert!(world.table.room_of_all(CORE, 16).is_some());
}
