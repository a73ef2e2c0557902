//! Write-back of a file with several batches at the device.

use std::ops::Range;

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::record::RecordDevice;
use dure_block::{Device, Lba, Op, OsError, share};
use dure_sync::Arc;

use super::slow::Slow;
use super::{World, check, content, file, fsck};
use crate::volume::FileSystem;
use crate::{Stamp, SyncScope};

/// Pages of a batch.
const BATCH: u64 = 256;
const BLOCKS: u64 = 16384;
/// The bytes of page 1.
const PAGE: Range<usize> = 4096..8192;

/// Four batches and a piece, each page different.
fn bytes(life: u8) -> Vec<u8> {
    let page = |n: u64| {
        let mut page = vec![life; 4096];
        page[..8].copy_from_slice(&n.to_le_bytes());
        page
    };
    (0..4 * BATCH + 7).flat_map(page).collect()
}

fn world() -> World {
    let mut world = World::new(BLOCKS, 32 << 20);
    world.options.log_data_pages = 0;
    world
}

/// A file that is dirty in memory.
fn written(world: &World, device: Arc<dyn Device>) -> FileSystem {
    let fs = FileSystem::open(device, world.options.clone()).unwrap();
    let inode = file(&fs);
    fs.write(&inode, 0, &bytes(1), Stamp::Set).unwrap();
    fs
}

/// Of a file that was only written to once, what a crash has left is a prefix.
fn is_prefix(found: &[u8]) -> bool {
    bytes(1).starts_with(found)
}

#[test]
fn a_file_of_many_batches_is_written_in_as_many_requests() {
    let world = world();
    let fault = Arc::new(FaultDevice::new(world.device()));
    let fs = written(&world, share(fault));
    let before = fs.0.store.region.counters().writes;
    fs.fsync(&file(&fs), SyncScope::All).unwrap();
    let writes = fs.0.store.region.counters().writes - before;
    // Segments end at 2 MiB, and the log is written too.
    assert!(writes <= 12, "{writes} writes");
    fs.close().unwrap();
    assert_eq!(content(&world.mount(), &file(&world.mount())), bytes(1));
}

/// From the n-th write of data on, the device takes nothing.
fn fails_from(nth: u64) {
    let world = world();
    let fault = Arc::new(FaultDevice::new(world.device()));
    let fs = written(&world, share(fault.clone()));
    let (inode, main) = (file(&fs), Lba::new(fs.layout().main));
    let flaw = Rule::new(When::From(nth), Fault::Error(OsError::EIO)).on(Op::Write);
    fault.add(flaw.within(main..Lba::new(BLOCKS)));
    fs.fsync(&inode, SyncScope::All).unwrap_err();
    assert_eq!(content(&fs, &inode), bytes(1));
    check(&fs, &inode);
    fault.clear();
    // Batches that were logged are no longer dirty, the others are.
    fs.write(&inode, 0, &bytes(1)[..5], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
    fs.close().unwrap();
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), bytes(1), "from write {nth} on");
    fs.close().unwrap();
    fsck(world.device(), "after");
}

#[test]
fn batches_behind_one_that_fails_stay_dirty_and_cost_no_block() {
    (1..=5).for_each(fails_from);
}

/// Crashes at every step of a write-back, with page 1 overwritten while its batch is under way or
/// not.
fn crashes(overwritten: bool) {
    let world = world();
    {
        let fs = world.mount();
        file(&fs);
        fs.close().unwrap();
    }
    let base = world.ram.snapshot();
    let slow = Arc::new(Slow::new(world.ram.clone()));
    let record = Arc::new(RecordDevice::new(share(slow.clone())));
    let log = record.log();
    let fs = written(&world, share(record));
    let mut later = bytes(1);
    if overwritten {
        later[PAGE].fill(9);
        overwrite_while_under_way(&slow, &fs);
    }
    // Logged as well, so that there are slots without a sync.
    fs.0.files.write_back(file(&fs).inode()).unwrap();
    assert!(!slow.waits(), "nothing was written");
    fs.0.store.commit_all().unwrap();
    let promised = log.step();
    drop(fs);
    let images = CrashImages::new(base, &log);
    let selection = Selection {
        exhaustive_max: 3,
        random: 6,
        seed: 7,
        tear: Tear::None,
    };
    let (mut tried, mut lengths) = (0, Vec::new());
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(selection) {
            tried += 1;
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let what = format!("crash after step {step}, choice {choice}");
            let fs = FileSystem::open(device.clone(), world.options.clone())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let inode = file(&fs);
            let found = content(&fs, &inode);
            let prefix = is_prefix(&found) || later.starts_with(&found);
            assert!(prefix, "{what}: {} bytes", found.len());
            assert!(step < promised || found.len() == later.len(), "{what}");
            lengths.push(found.len() / 4096);
            check(&fs, &inode);
            fs.close().unwrap();
            drop(fs);
            fsck(device, &what);
        }
    }
    lengths.sort_unstable();
    lengths.dedup();
    assert!(
        tried > 10 && lengths.len() > 1,
        "{tried} crashes: {lengths:?}"
    );
}

#[test]
fn a_crash_with_batches_under_way_leaves_a_prefix_of_the_file() {
    crashes(false);
}

#[test]
fn a_crash_with_batches_under_way_that_change_meanwhile_leaves_a_prefix_too() {
    crashes(true);
}

/// Page 1 is overwritten while the first batch is written. The file only grows: no size is logged
/// before that batch is.
fn overwrite_while_under_way(slow: &Slow, fs: &FileSystem) {
    let (other, inode) = (fs.clone(), file(fs));
    let main = Lba::new(fs.layout().main)..Lba::new(BLOCKS);
    slow.before(Op::Write, main, move || {
        other.write(&inode, 4096, &[9; 4096], Stamp::Set).unwrap();
        Ok(())
    });
}

#[test]
fn a_page_that_changes_while_its_batch_is_under_way_waits_for_the_next_write_back() {
    let world = world();
    let slow = Arc::new(Slow::new(world.ram.clone()));
    let fs = written(&world, share(slow.clone()));
    overwrite_while_under_way(&slow, &fs);
    fs.0.files.write_back(file(&fs).inode()).unwrap();
    assert!(!slow.waits(), "nothing was written");
    let mut want = bytes(1);
    want[PAGE].fill(9);
    assert_eq!(content(&fs, &file(&fs)), want);
    fs.fsync(&file(&fs), SyncScope::All).unwrap();
    check(&fs, &file(&fs));
    fs.close().unwrap();
    assert_eq!(content(&world.mount(), &file(&world.mount())), want);
}
