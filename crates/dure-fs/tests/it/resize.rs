//! Growing a volume: what was there is there, and a crash leaves the old size or the new one.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::{Image, RamDevice};
use dure_block::record::RecordDevice;
use dure_block::{Lba, share};
use dure_check::{CheckOptions, Data, check};
use dure_fs::{
    Background, DirectoryEntry, Error, FileKind, FileSystem, FormatOptions, MountOptions,
    TableCopies, VolumeInfo,
};
use dure_sync::Arc;
use dure_sync::random::Seeded;

use crate::workload::step;

const BLOCKS: u64 = 4096;

fn mount(device: &Arc<RamDevice>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(share(Arc::clone(device)), options).expect("it mounts")
}

/// A volume with random content, unmounted.
fn filled(seed: u64) -> Image {
    filled_with(seed, TableCopies::One)
}

/// The same, with so many copies of NAT and SIT.
fn filled_with(seed: u64, table_copies: TableCopies) -> Image {
    let device = Arc::new(RamDevice::new("volume", BLOCKS));
    let options = FormatOptions {
        journals: Some(2),
        table_copies,
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).expect("room");
    let fs = mount(&device);
    let mut random = Seeded::new(seed);
    (0..400).for_each(|_| drop(step(&fs, &mut random)));
    fs.close().expect("a good device");
    device.snapshot()
}

/// The same on a larger device.
fn on_larger(image: &Image, blocks: u64) -> Image {
    let mut larger = Image::zeroed(blocks);
    for lba in (0..image.blocks()).map(Lba::new) {
        if let Some(block) = image.get(lba) {
            larger.set(lba, block.clone());
        }
    }
    larger
}

/// Blocks of a sound volume: what the check finds, data included, and every call that fails.
fn expect_sound(image: &Image, why: &str) -> u64 {
    let device = Arc::new(RamDevice::from_image("volume", image));
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(share(Arc::clone(&device)), &options).expect("a superblock");
    let issues: Vec<String> = report.issues().iter().map(ToString::to_string).collect();
    assert_eq!(issues, Vec::<String>::new(), "{why}");
    let info = VolumeInfo::read(share(device)).expect("a volume");
    info.layout.total_blocks
}

/// What stands in the volume, by names and content.
fn listing(image: &Image) -> BTreeSet<String> {
    let device = Arc::new(RamDevice::from_image("volume", image));
    let fs = mount(&device);
    let mut found = BTreeSet::new();
    let mut rest = vec![(String::new(), fs.root().expect("a root"))];
    while let Some((path, directory)) = rest.pop() {
        let mut names = Vec::new();
        let mut note = |entry: &DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        };
        fs.read_directory(&directory, 0, &mut note)
            .expect("a listing");
        names.retain(|name| name != b"." && name != b"..");
        for name in names {
            let inode = fs.lookup(&directory, &name).expect("a lookup");
            let inode = inode.expect("it was listed");
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attributes = fs.attributes(&inode).expect("attributes");
            found.insert(format!("{path} {attributes:?}"));
            if inode.kind() == FileKind::Directory {
                rest.push((path, inode));
            }
        }
    }
    found
}

#[test]
fn a_volume_grows_twice_and_keeps_what_it_has() {
    grows_twice(filled(1));
}

/// The check compares both copies of NAT and SIT.
#[test]
fn a_volume_with_two_copies_of_its_tables_grows_with_both() {
    grows_twice(filled_with(1, TableCopies::Two));
}

fn grows_twice(image: Image) {
    let wanted = listing(&image);
    assert!(wanted.len() > 5, "{wanted:?}");
    let mut image = image;
    for blocks in [BLOCKS * 3, BLOCKS * 40] {
        let device = Arc::new(RamDevice::from_image("volume", &on_larger(&image, blocks)));
        let (before, after) = FileSystem::grow(share(Arc::clone(&device))).expect("it grows");
        assert!(after.segments > before.segments && after.total_blocks == blocks);
        image = device.snapshot();
        assert_eq!(expect_sound(&image, "grown"), blocks);
        assert_eq!(listing(&image), wanted);
        // The new room is used.
        let fs = mount(&device);
        let mut random = Seeded::new(blocks);
        (0..300).for_each(|_| drop(step(&fs, &mut random)));
        fs.close().expect("a good device");
        expect_sound(&device.snapshot(), "used");
    }
}

#[test]
fn what_cannot_grow_is_refused_and_stays() {
    let image = filled(2);
    let same = Arc::new(RamDevice::from_image("volume", &image));
    let little = Arc::new(RamDevice::from_image(
        "volume",
        &on_larger(&image, BLOCKS + 8),
    ));
    let crashed = Arc::new(RamDevice::from_image(
        "volume",
        &on_larger(&image, BLOCKS * 2),
    ));
    let fs = mount(&crashed);
    fs.sync().expect("a good device");
    let used = crashed.snapshot();
    for device in [same, little] {
        let before = device.snapshot();
        let error = FileSystem::grow(share(Arc::clone(&device))).expect_err("too small");
        assert!(matches!(error, Error::TooSmall { .. }), "{error}");
        assert_eq!(device.snapshot().first_difference(&before), None);
    }
    let used = Arc::new(RamDevice::from_image("volume", &used));
    let error = FileSystem::grow(share(used)).expect_err("not unmounted");
    assert!(error.to_string().contains("not unmounted"), "{error}");
}

/// Cut anywhere during a growth: the old size or the new one, and nothing to complain of.
#[test]
fn a_crash_in_a_growth_leaves_the_old_size_or_the_new() {
    let image = filled(3);
    let wanted = listing(&image);
    let blocks = BLOCKS * 5;
    let base = on_larger(&image, blocks);
    let device = Arc::new(RamDevice::from_image("volume", &base));
    let record = RecordDevice::new(share(Arc::clone(&device)));
    let log = record.log();
    FileSystem::grow(share(record)).expect("it grows");
    let images = CrashImages::new(base, &log);
    let (mut sizes, mut states) = (BTreeSet::new(), 0);
    for at in 0..=images.last_step() {
        let point = images.at(at);
        for choice in point.choices(Selection::default()).take(6) {
            let image = point.image(&choice).snapshot();
            sizes.insert(expect_sound(&image, &format!("step {at}")));
            assert_eq!(listing(&image), wanted, "step {at}");
            states += 1;
        }
    }
    assert_eq!(sizes, BTreeSet::from([BLOCKS, blocks]));
    assert!(states > 20, "{states} states");
}
