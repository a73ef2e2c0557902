//! `data=writeback`: what survives without its data, and what nobody may ever read.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_sync::Arc;

use super::{World, content, file, fsck, nth_file};
use crate::volume::{DataMode, FileSystem};
use crate::{SetAttributes, Stamp, SyncScope};

const OLD: u8 = 0x0a;
const NEW: u8 = 0x0b;
/// What another file held in the blocks that are used again.
const FOREIGN: u8 = 0xcc;
const MODE: u32 = 0o600;

/// States of the medium with the new mode in which the page is old, new, or zeroes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    old: usize,
    new: usize,
    zeroes: usize,
}

/// A volume on which the blocks that are allocated next hold another file's data.
fn world(data: DataMode) -> World {
    let mut world = World::new(8192, 8 << 20);
    world.options.data = data;
    world.options.log_data_pages = 0;
    let fs = world.mount();
    fs.write(&file(&fs), 0, &[OLD; 4096], Stamp::Set).unwrap();
    let other = nth_file(&fs, 1);
    fs.write(&other, 0, &[FOREIGN; 64 * 4096], Stamp::Set)
        .unwrap();
    fs.sync().unwrap();
    let shorter = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    fs.set_attributes(&other, &shorter).unwrap();
    fs.close().unwrap();
    drop((other, fs));
    world
}

/// Overwrites a page, writes it back without syncing, changes the file's mode, and syncs.
fn change(fs: &FileSystem) {
    let inode = file(fs);
    fs.write(&inode, 0, &[NEW; 4096], Stamp::Set).unwrap();
    fs.0.files.write_back(inode.inode()).unwrap();
    let mode = SetAttributes {
        mode: Some(MODE),
        ..SetAttributes::default()
    };
    fs.set_attributes(&inode, &mode).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
}

/// The power fails at every step of that, with every subset of what was not flushed.
fn crashes(data: DataMode) -> Seen {
    let world = world(data);
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
    change(&fs);
    let synced = log.step();
    drop(fs);
    let images = CrashImages::new(base, &log);
    let mut seen = Seen::default();
    for step in 0..=images.last_step() {
        let point = images.at(step);
        for choice in point.choices(Selection {
            exhaustive_max: 8,
            random: 8,
            seed: 1,
            tear: Tear::None,
        }) {
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let fs = FileSystem::open(device.clone(), world.options.clone()).unwrap();
            let inode = file(&fs);
            let page = content(&fs, &inode);
            assert!(page.len() == 4096 && page.iter().all(|byte| *byte == page[0]));
            let changed = fs.attributes(&inode).unwrap().mode & 0o777 == MODE;
            let counted = match page[0] {
                OLD => &mut seen.old,
                NEW => &mut seen.new,
                0 => &mut seen.zeroes,
                other => panic!("step {step}: the page holds {other:#x}, another file's"),
            };
            *counted += usize::from(changed);
            if step >= synced {
                assert!(page[0] == NEW && changed, "step {step}: it was synced");
            }
            fs.close().unwrap();
            drop((inode, fs));
            fsck(device, "after the recovery");
        }
    }
    seen
}

#[test]
fn writeback_keeps_the_operation_and_never_shows_foreign_data() {
    let seen = crashes(DataMode::Writeback);
    assert!(seen.zeroes > 0 && seen.new > 0, "{seen:?}");
    assert_eq!(seen.old, 0, "the mode came after the page");
}

#[test]
fn ordered_drops_the_operation_with_its_data() {
    let seen = crashes(DataMode::Ordered);
    assert!(seen.new > 0, "{seen:?}");
    assert_eq!((seen.old, seen.zeroes), (0, 0));
}
