use dure_block::ram::RamDevice;
use dure_block::{Device, Queue, QueueConfig};
use dure_sync::{Arc, CoreId};

use super::*;
use crate::layout::FormatOptions;

fn layout(blocks: u64, journals: u32) -> Layout {
    let options = FormatOptions {
        journals: Some(journals),
        label: String::new(),
        segment_blocks: Some(32),
        uuid: Some([7; 16]),
    };
    Layout::plan(blocks, &options, 4).unwrap()
}

fn core(n: u16) -> CoreId {
    CoreId::new(n)
}

#[test]
fn a_block_lives_and_dies() {
    let layout = layout(2048, 2);
    let device: Arc<dyn Device> = dure_block::share(RamDevice::new("ram", 2048));
    let space = Space::new_empty(Queue::new(device, QueueConfig::default()), &layout);
    let before = space.statistics();
    assert!(space.reserve(core(0), 3, OpClass::Normal));
    let run = space.alloc_data(core(0), 3).unwrap();
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
