//! Attributes longer than a record of a small volume's log: set, changed and removed, over crashes,
//! on a full volume.

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_check::{CheckOptions, IssueKind, check};
use dure_store::error::Error;
use dure_store::layout::{FormatOptions, Layout};
use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

use super::{Disk, errno, file, fresh, get, options};
use crate::{FileSystem, InodeRef, Stamp, XattrMode};

const VALUE_MAX: usize = 65536;
/// Seed of the last value of the test of crashes.
const LAST: u8 = 10;

fn value(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from(n % 251).unwrap() ^ seed)
        .collect()
}

/// Blocks of the smallest volume that mkfs makes with two journals.
fn smallest() -> u64 {
    let options = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    match Layout::plan(64, &options, 1) {
        Err(Error::TooSmall { .. }) => {}
        other => panic!("{other:?}"),
    }
    let fits = |blocks: &u64| Layout::plan(*blocks, &options, 1).is_ok();
    (64..10_000).find(fits).unwrap()
}

fn set(fs: &FileSystem, inode: &InodeRef, name: &[u8], seed: u8, len: usize) {
    fs.set_xattr(inode, name, &value(seed, len), XattrMode::Any)
        .unwrap();
}

#[track_caller]
fn expect(fs: &FileSystem, inode: &InodeRef, name: &[u8], seed: u8, len: usize) {
    let got = fs.get_xattr(inode, name).unwrap().unwrap();
    assert!(got == value(seed, len), "{} bytes", got.len());
}

#[test]
fn the_longest_attributes_fit_the_smallest_volume() {
    let disk = Disk::new(smallest());
    let fs = disk.mount();
    assert!(fs.0.store.journal().handle_bytes_max() < 17_000);
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"x", &file()).unwrap();
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    let before = fs.statistics();
    set(&fs, &inode, b"user.small", 1, 10);
    set(&fs, &inode, b"user.big", 2, VALUE_MAX);
    expect(&fs, &inode, b"user.big", 2, VALUE_MAX);
    set(&fs, &inode, b"user.big", 3, VALUE_MAX - 5000);
    set(&fs, &inode, b"user.more", 4, VALUE_MAX - 5000);
    expect(&fs, &inode, b"user.small", 1, 10);
    expect(&fs, &inode, b"user.big", 3, VALUE_MAX - 5000);
    // Everything behind it moves.
    fs.remove_xattr(&inode, b"user.small").unwrap();
    drop((inode, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    let inode = get(&fs, &root, "x");
    expect(&fs, &inode, b"user.big", 3, VALUE_MAX - 5000);
    expect(&fs, &inode, b"user.more", 4, VALUE_MAX - 5000);
    assert_eq!(fs.list_xattr(&inode).unwrap().len(), 2);
    let after = fs.statistics();
    assert_eq!(after.inodes - after.inodes_free, 2, "no carrier is left");
    fs.remove_xattr(&inode, b"user.big").unwrap();
    fs.remove_xattr(&inode, b"user.more").unwrap();
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    let after = fs.statistics();
    // The inode of the carriers has a node by now.
    assert!(after.blocks_free + 2 >= before.blocks_free, "{after:?}");
    drop((inode, root));
    drop(disk.remount(fs));
}

#[test]
fn a_change_that_finds_no_room_changes_nothing() {
    let disk = Disk::new(smallest());
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"x", &file()).unwrap();
    set(&fs, &inode, b"user.big", 2, 30_000);
    let mut at = 0;
    let filler = fs.create(&root, b"filler", &file()).unwrap();
    while fs.statistics().blocks_available > 8 {
        fs.write(&filler, at, &[1; 4096], Stamp::Set).unwrap();
        at += 4096;
    }
    fs.sync().unwrap();
    let full = fs.set_xattr(&inode, b"user.big", &value(3, VALUE_MAX), XattrMode::Any);
    assert_eq!(errno(full), libc::ENOSPC);
    expect(&fs, &inode, b"user.big", 2, 30_000);
    fs.unlink(&root, b"filler").unwrap();
    drop(filler);
    set(&fs, &inode, b"user.big", 3, VALUE_MAX);
    drop((inode, root));
    let fs = disk.remount(fs);
    expect(
        &fs,
        &get(&fs, &fs.root().unwrap(), "x"),
        b"user.big",
        3,
        VALUE_MAX,
    );
}

#[test]
fn a_large_attribute_is_old_or_new_after_a_crash_at_any_instant() {
    let device = Arc::new(RamDevice::new("attributes", 2048));
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &format).unwrap();
    let fs = FileSystem::open(share(Arc::clone(&device)), options()).unwrap();
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"x", &file()).unwrap();
    set(&fs, &inode, b"user.big", 2, 50_000);
    drop((inode, root));
    fs.close().unwrap();
    let base = device.snapshot();
    let record = RecordDevice::new(share(Arc::clone(&device)));
    let log = record.log();
    let mut one_core = options();
    one_core.core = Some(Arc::new(AtomicUsize::new(0)));
    let fs = FileSystem::open(share(record), one_core).unwrap();
    let root = fs.root().unwrap();
    let inode = get(&fs, &root, "x");
    // A log that is full makes some of the changes commit in the middle.
    for seed in 3..=LAST {
        set(&fs, &inode, b"user.big", seed, VALUE_MAX);
    }
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    drop((inode, root, fs));
    let images = CrashImages::new(base, &log);
    let (mut old, mut new, mut carriers) = (0, 0, 0);
    for at in 0..=images.last_step() {
        let point = images.at(at);
        for choice in point.choices(Selection::default()).take(6) {
            let image = point.image(&choice).snapshot();
            let crashed = Arc::new(RamDevice::from_image("crashed", &image));
            let checked = || check(share(Arc::clone(&crashed)), &CheckOptions::default()).unwrap();
            let report = checked();
            let explained = |kind: &IssueKind| {
                matches!(
                    kind,
                    IssueKind::NotClean { .. } | IssueKind::PairSlotBad { .. }
                )
            };
            let issues = report.issues().iter();
            let unexplained: Vec<String> = issues
                .filter(|issue| !explained(&issue.kind))
                .map(ToString::to_string)
                .collect();
            assert_eq!(unexplained, Vec::<String>::new(), "step {at}");
            carriers += report.counts().orphans;
            let fs = FileSystem::open(share(Arc::clone(&crashed)), options()).unwrap();
            let root = fs.root().unwrap();
            let inode = get(&fs, &root, "x");
            let got = fs.get_xattr(&inode, b"user.big").unwrap().unwrap();
            let whole = (3..=LAST).any(|seed| got == value(seed, VALUE_MAX));
            assert!(whole || got == value(2, 50_000), "step {at}");
            old += u32::from(got == value(2, 50_000));
            new += u32::from(got == value(LAST, VALUE_MAX));
            drop((inode, root));
            fs.close().unwrap();
            let report = checked();
            assert!(report.is_spotless(), "step {at}: {:?}", report.issues());
            assert_eq!(report.counts().orphans, 0, "step {at}");
        }
    }
    assert!(old > 5 && new > 5, "{old} old, {new} new");
    assert!(carriers > 5, "{carriers} states with a half written chain");
}

#[test]
fn two_threads_that_change_large_attributes_get_both_in() {
    let (_, fs) = fresh();
    drop(fs);
    let disk = Disk::new(4096);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"x", &file()).unwrap();
    dure_sync::thread::scope(|scope| {
        for seed in [1, 2] {
            let (fs, inode) = (&fs, &inode);
            scope.spawn(move || {
                let name = format!("user.{seed}");
                for round in 0..10 {
                    set(fs, inode, name.as_bytes(), seed, 20_000 + 100 * round);
                }
            });
        }
    });
    expect(&fs, &inode, b"user.1", 1, 20_900);
    expect(&fs, &inode, b"user.2", 2, 20_900);
    drop((inode, root));
    drop(disk.remount(fs));
}
