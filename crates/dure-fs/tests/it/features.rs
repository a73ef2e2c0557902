//! Feature flags that this dure does not know, and flags that come to a volume.

use std::collections::BTreeSet;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::{Image, RamDevice};
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_check::{CheckOptions, Repair, check};
use dure_fs::format::feature::{CLONES, FEATURES, Feature, MEDIA};
use dure_fs::format::superblock::SuperBlock;
use dure_fs::{
    Background, Error, FileSystem, FormatOptions, MountOptions, NewInode, Stamp, VolumeInfo,
};
use dure_store::media::Region;
use dure_store::read_layout;
use dure_store::units::BlockNo;
use dure_sync::Arc;

const BLOCKS: u64 = 1024;

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

fn read_only() -> MountOptions {
    MountOptions {
        read_only: true,
        ..options()
    }
}

fn shared(ram: &Arc<RamDevice>) -> Arc<dyn Device> {
    share(Arc::clone(ram))
}

fn superblock(ram: &Arc<RamDevice>) -> SuperBlock {
    let layout = read_layout(&Region::open(shared(ram)));
    layout.expect("a volume").superblock
}

/// An unmounted volume with a file, as a dure that sets this in its superblock left it.
fn made(change: impl FnOnce(&mut SuperBlock)) -> Arc<RamDevice> {
    let ram = Arc::new(RamDevice::new("volume", BLOCKS));
    FileSystem::format(shared(&ram), &FormatOptions::default()).expect("room");
    let fs = FileSystem::open(shared(&ram), options()).expect("it mounts");
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_640,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"file", &new).expect("room");
    fs.write(&file, 0, &[7; 9000], Stamp::Set).expect("room");
    drop((file, root));
    fs.close().expect("a good device");
    let mut changed = superblock(&ram);
    change(&mut changed);
    let region = Region::open(shared(&ram));
    for at in [0, BLOCKS - 1] {
        let block = changed.seal(at);
        region.write(BlockNo(at), &block).expect("memory");
    }
    ram
}

fn has_file(ram: &Arc<RamDevice>, options: MountOptions) {
    let is_writer = !options.read_only;
    let fs = FileSystem::open(shared(ram), options).expect("it mounts");
    let root = fs.root().expect("a root");
    assert!(fs.lookup(&root, b"file").expect("a lookup").is_some());
    drop(root);
    if is_writer {
        fs.close().expect("a good device");
    }
}

fn repair(ram: &Arc<RamDevice>, repair: Repair) -> Result<dure_check::Report, Error> {
    let options = CheckOptions {
        repair,
        ..CheckOptions::default()
    };
    check(shared(ram), &options)
}

/// The last superblock says it, if the first is damaged.
#[test]
fn a_damaged_first_superblock_hides_no_unknown_feature() {
    let ram = made(|superblock| superblock.incompat.set(16));
    let region = Region::open(shared(&ram));
    region.write(BlockNo(0), &[0x5a; 4096]).expect("memory");
    for error in [
        FileSystem::open(shared(&ram), read_only()).expect_err("a mount"),
        check(shared(&ram), &CheckOptions::default()).expect_err("a check"),
        repair(&ram, Repair::Full).expect_err("a rebuild"),
        VolumeInfo::read(shared(&ram)).expect_err("its numbers"),
    ] {
        assert!(error.to_string().ends_with(": compression"), "{error}");
    }
}

/// One that comes by use keeps those that came since the mount.
#[test]
fn a_first_clone_keeps_other_flags() {
    let ram = made(|_| ());
    let fs = FileSystem::open(shared(&ram), options()).expect("it mounts");
    let region = Region::open(shared(&ram));
    let mut since = superblock(&ram);
    since.compat.set(1 << 8);
    for at in [0, BLOCKS - 1] {
        region.write(BlockNo(at), &since.seal(at)).expect("memory");
    }
    let root = fs.root().expect("a root");
    let file = fs.lookup(&root, b"file").expect("a lookup").expect("it");
    let new = NewInode {
        mode: 0o100_640,
        ..NewInode::default()
    };
    let clone = fs.create(&root, b"clone", &new).expect("room");
    let done = fs.clone_range((&file, 0), (&clone, 0), 9000);
    assert_eq!(done.expect("a good device"), 9000);
    let after = superblock(&ram);
    assert_eq!((after.compat.get(), after.has(CLONES)), (1 << 8, true));
}

/// Each way to write to a volume, by a dure that does not know all it has.
fn writes(ram: &Arc<RamDevice>) -> Vec<Error> {
    let layout = read_layout(&Region::open(shared(ram)));
    let mut errors = vec![
        FileSystem::open(shared(ram), options()).expect_err("a mount for writing"),
        repair(ram, Repair::Safe).expect_err("a repair"),
        repair(ram, Repair::Full).expect_err("a rebuild"),
        FileSystem::turn_on(shared(ram), &[CLONES]).expect_err("an upgrade"),
    ];
    errors.extend(
        layout.map(|layout| FileSystem::layout_grown(&layout, BLOCKS * 4).expect_err("a growth")),
    );
    errors
}

#[test]
fn an_unknown_incompatible_feature_refuses_the_volume_by_name() {
    for (flags, name) in [
        (16, "compression"),
        (32, "encryption"),
        (48 | 1 << 40, "compression, encryption, 0x10000000000"),
    ] {
        let ram = made(|superblock| superblock.incompat.set(flags));
        let before = ram.snapshot();
        let mut errors = writes(&ram);
        errors.extend([
            FileSystem::open(shared(&ram), read_only()).expect_err("a mount"),
            check(shared(&ram), &CheckOptions::default()).expect_err("a check"),
            VolumeInfo::read(shared(&ram)).expect_err("its numbers"),
        ]);
        assert_eq!(errors.len(), 7);
        for error in errors {
            let want = format!(
                "this dure does not know this format: the volume needs a later dure: {name}"
            );
            assert_eq!(error.to_string(), want);
        }
        assert_eq!(ram.snapshot().first_difference(&before), None);
    }
}

#[test]
fn an_unknown_read_only_compatible_feature_allows_to_read() {
    let ram = made(|superblock| superblock.ro_compat.set(1 << 8));
    let before = ram.snapshot();
    let errors = writes(&ram);
    assert_eq!(errors.len(), 5);
    for error in errors {
        let text = error.to_string();
        let told = "to write to the volume needs a later dure: 0x100; this one can read it";
        assert!(text.contains(told) && text.contains("-o ro"), "{text}");
    }
    has_file(&ram, read_only());
    let report = check(shared(&ram), &CheckOptions::default());
    assert!(report.expect("a superblock").is_spotless());
    assert_eq!(ram.snapshot().first_difference(&before), None);
}

#[test]
fn an_unknown_compatible_feature_is_ignored_and_kept() {
    let ram = made(|superblock| superblock.compat.set(1 << 8));
    has_file(&ram, options());
    FileSystem::turn_on(shared(&ram), &[CLONES]).expect("an unmounted volume");
    let report = repair(&ram, Repair::Full).expect("a superblock");
    assert!(report.is_spotless(), "{:?}", report.issues());
    let after = superblock(&ram);
    assert_eq!((after.compat.get(), after.has(CLONES)), (1 << 8, true));
}

#[test]
fn what_cannot_be_turned_on_is_refused_by_name() {
    let ram = made(|_| ());
    let before = ram.snapshot();
    let compression = FEATURES.iter().find(|one| one.name == "compression");
    let compression = *compression.expect("a reserved number");
    for (feature, why) in [
        (MEDIA, "only mkfs gives a volume the feature media"),
        (compression, "the feature compression needs a later dure"),
    ] {
        let refused = FileSystem::turn_on(shared(&ram), &[CLONES, feature]);
        let text = refused.expect_err("one of them cannot come").to_string();
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(ram.snapshot().first_difference(&before), None);
}

/// Whether the volume has clones, in all states that a crash in an upgrade of `image` leaves.
fn crashes(image: Image) -> BTreeSet<bool> {
    let ram = Arc::new(RamDevice::from_image("volume", &image));
    let record = RecordDevice::new(shared(&ram));
    let log = record.log();
    let turned: Vec<Feature> = FileSystem::turn_on(share(record), &[CLONES]).expect("it lacks it");
    assert_eq!(turned, [CLONES]);
    let images = CrashImages::new(image, &log);
    let mut found = BTreeSet::new();
    for at in 0..=images.last_step() {
        let point = images.at(at);
        for choice in point.choices(Selection::default()) {
            let crashed = point.image(&choice).snapshot();
            let ram = Arc::new(RamDevice::from_image("crashed", &crashed));
            found.insert(superblock(&ram).has(CLONES));
            let report = repair(&ram, Repair::Safe).expect("a superblock");
            let left = report.issues().iter().find(|one| !one.repaired);
            assert_eq!(left.map(ToString::to_string), None, "step {at}");
            has_file(&ram, options());
        }
    }
    found
}

/// Block 0 decides; of one that was damaged before, too, which is then written first.
#[test]
fn a_crash_in_an_upgrade_leaves_the_feature_off_or_on() {
    let ram = made(|_| ());
    let sound = ram.snapshot();
    assert_eq!(crashes(sound), BTreeSet::from([false, true]));
    let region = Region::open(shared(&ram));
    region.write(BlockNo(0), &[0x5a; 4096]).expect("memory");
    let damaged = ram.snapshot();
    assert_eq!(crashes(damaged), BTreeSet::from([false, true]));
}
