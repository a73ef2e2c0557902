//! Snapshots: each shows the volume as it was, whatever happens to the volume, and to other snapshots,
//! afterwards; live, after an unmount, and after the power was cut.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, DeviceInfo, Io, share};
use dure_check::{CheckOptions, Data, check};
use dure_fs::{
    Background, Error, FileKind, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode,
    ReadMode, RecordPolicy, Stamp, StoreRules, SyncScope, VolumeRules,
};
use dure_store::media::Region;
use dure_store::units::BlockNo;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::canary::Rule;
use dure_sync::random::Seeded;
use dure_sync::{Arc, OnceLock};

use crate::workload::step;

/// Bytes of a file that are compared.
const SHOWN_MAX: u64 = 256 << 10;

/// Everything that a program can read of a volume, by path.
pub(crate) type Content = BTreeMap<Vec<u8>, String>;

pub(crate) fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        recovery_threads: Some(1),
        cache_bytes: 16 << 20,
        ..MountOptions::default()
    }
}

pub(crate) fn formatted(blocks: u64) -> Arc<RamDevice> {
    let ram = Arc::new(RamDevice::new("volume", blocks));
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    FileSystem::format(share(ram.clone()), &format).expect("room");
    ram
}

pub(crate) fn made(blocks: u64) -> (Arc<RamDevice>, FileSystem) {
    let ram = formatted(blocks);
    let fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
    (ram, fs)
}

pub(crate) fn content(fs: &FileSystem) -> Content {
    let mut content = Content::new();
    let mut left = vec![(Vec::new(), fs.root().expect("a root"))];
    while let Some((path, directory)) = left.pop() {
        let mut names = Vec::new();
        let listed = fs.read_directory(&directory, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        });
        listed.expect("a list");
        for name in names
            .into_iter()
            .filter(|name| name != b"." && name != b"..")
        {
            let inode = fs
                .lookup(&directory, &name)
                .expect("a lookup")
                .expect("listed");
            let path = [&path[..], b"/", &name].concat();
            content.insert(path.clone(), shown(fs, &inode));
            if inode.kind() == FileKind::Directory {
                left.push((path, inode));
            }
        }
    }
    content
}

/// Attributes and data.
fn shown(fs: &FileSystem, inode: &InodeRef) -> String {
    let attributes = fs.attributes(inode).expect("attributes");
    let mut data = Vec::new();
    if inode.kind() == FileKind::File {
        // Files of the workload are sparse, and some are huge.
        data = vec![0; usize::try_from(attributes.size.min(SHOWN_MAX)).expect("small")];
        let read = fs
            .read(inode, 0, &mut data, ReadMode::Bypass)
            .expect("data");
        assert_eq!(read, data.len());
    }
    format!(
        "{:o} {} {} {} {:?} {}",
        attributes.mode,
        attributes.nlink,
        attributes.size,
        attributes.blocks,
        attributes.mtime,
        data.iter().fold(17_u64, |sum, byte| {
            sum.wrapping_mul(1_000_003) ^ u64::from(*byte)
        })
    )
}

fn expect_all(expected: &BTreeMap<String, Content>, show: impl Fn(&str) -> FileSystem) {
    for (name, content_then) in expected {
        assert_eq!(content(&show(name)), *content_then, "snapshot {name}");
    }
}

pub(crate) fn expect_sound(ram: &RamDevice) {
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let copy = Arc::new(RamDevice::from_image("copy", &ram.snapshot()));
    let report = check(share(copy), &options).expect("a superblock");
    assert_eq!(report.issues(), []);
}

fn of_device(ram: &Arc<RamDevice>, name: &str) -> FileSystem {
    let options = MountOptions {
        snapshot: Some(name.to_owned()),
        ..options()
    };
    FileSystem::open(share(ram.clone()), options).expect("a snapshot mounts")
}

/// What logs whole images, too, and what logs no data.
fn policy(seed: u64) -> MountOptions {
    let mut options = options();
    match seed % 3 {
        1 => options.records = RecordPolicy::Image,
        2 => options.log_data_pages = 0,
        _ => {}
    }
    options
}

#[test]
fn each_snapshot_shows_the_volume_as_it_was() {
    for seed in 0..6 {
        let options = || policy(seed);
        let mut random = Seeded::new(seed);
        let ram = formatted(4096);
        let mut fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
        let mut expected = BTreeMap::new();
        for round in 0..14 {
            for _ in 0..150 {
                drop(step(&fs, &mut random));
            }
            match random.below(4) {
                0 | 1 => {
                    let name = format!("s{round}");
                    match fs.create_snapshot(&name) {
                        Ok(info) => assert_eq!(info.name, name),
                        Err(Error::NoSpace { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    expected.insert(name, content(&fs));
                }
                2 if !expected.is_empty() => {
                    let at = usize::try_from(random.below(expected.len() as u64)).expect("few");
                    let name = expected.keys().nth(at).expect("below").clone();
                    fs.delete_snapshot(&name).expect("it is there");
                    expected.remove(&name);
                }
                _ => {
                    // The power is cut.
                    let crashed = RamDevice::from_image("volume", &ram.snapshot());
                    let crashed = Arc::new(crashed);
                    let again = FileSystem::open(share(crashed.clone()), options());
                    let again = again.expect("it recovers");
                    expect_all(&expected, |name| {
                        again.open_snapshot(name, options()).expect("it is there")
                    });
                    again.close().expect("a good device");
                    expect_sound(&crashed);
                    expect_all(&expected, |name| of_device(&crashed, name));
                }
            }
            expect_all(&expected, |name| {
                fs.open_snapshot(name, options()).expect("it is there")
            });
            if random.below(3) == 0 {
                fs.close().expect("a good device");
                expect_sound(&ram);
                expect_all(&expected, |name| of_device(&ram, name));
                fs = FileSystem::open(share(ram.clone()), options()).expect("it mounts");
            }
        }
        for name in expected.keys() {
            fs.delete_snapshot(name).expect("it is there");
        }
        assert_eq!(fs.snapshots(), []);
        fs.close().expect("a good device");
        expect_sound(&ram);
    }
}

#[test]
fn what_a_deleted_snapshot_needed_is_free_again() {
    let (ram, fs) = made(4096);
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"large", &new).expect("room");
    fs.write(&file, 0, &vec![7; 4 << 20], Stamp::Set)
        .expect("room");
    fs.sync().expect("a good device");
    let free = |fs: &FileSystem| {
        fs.sync().expect("a good device");
        fs.statistics().blocks_free
    };
    let with_file = free(&fs);
    fs.create_snapshot("before").expect("room");
    drop(file);
    fs.unlink(&root, b"large").expect("it is there");
    let kept = free(&fs);
    assert!(
        kept < with_file + 64,
        "{kept} and {with_file}: 1024 blocks stay"
    );
    let view = fs.open_snapshot("before", options()).expect("it is there");
    let busy = fs.delete_snapshot("before");
    assert!(matches!(busy, Err(Error::SnapshotBusy { .. })), "{busy:?}");
    drop(view);
    fs.delete_snapshot("before").expect("not in use");
    let after = free(&fs);
    assert!(
        after >= with_file + 1000,
        "{after} and {with_file}: 1024 blocks are back"
    );
    fs.close().expect("a good device");
    expect_sound(&ram);
}

#[test]
fn names_that_cannot_be_are_refused() {
    let (_, fs) = made(2048);
    for name in ["", ".", "..", "a/b", "a\nb", &"n".repeat(65)] {
        let refused = fs.create_snapshot(name);
        assert!(matches!(refused, Err(Error::BadOption { .. })), "{name:?}");
    }
    fs.create_snapshot(&"n".repeat(64)).expect("room");
    fs.create_snapshot("one").expect("room");
    let twice = fs.create_snapshot("one");
    assert!(matches!(twice, Err(Error::SnapshotExists { .. })));
    fs.rename_snapshot("one", "two").expect("it is there");
    assert!(matches!(
        fs.delete_snapshot("one"),
        Err(Error::NoSnapshot { .. })
    ));
    let names: Vec<String> = fs.snapshots().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["n".repeat(64), "two".to_owned()]);
}

/// Cut anywhere while snapshots are taken and deleted: those that there were show what they did,
/// one that is being taken or deleted is there wholly or not at all, and the volume is sound.
#[test]
fn a_crash_leaves_each_snapshot_whole_or_not_at_all() {
    let mut states = 0;
    for seed in 0..3 {
        let ram = formatted(2048);
        let base = ram.snapshot();
        let record = RecordDevice::new(share(ram));
        let log = record.log();
        let fs = FileSystem::open(share(record), options()).expect("it mounts");
        let mut random = Seeded::new(100 + seed);
        let mut expected = BTreeMap::new();
        // When a snapshot was there for certain: from the end of its creation to the begin of its
        // deletion.
        let mut there: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for round in 0..6 {
            (0..25).for_each(|_| drop(step(&fs, &mut random)));
            if round == 3 {
                there.insert("s1".to_owned(), (there["s1"].0, log.step()));
                fs.delete_snapshot("s1").expect("it is there");
                continue;
            }
            let name = format!("s{round}");
            fs.create_snapshot(&name).expect("room");
            expected.insert(name.clone(), content(&fs));
            there.insert(name, (log.step(), u64::MAX));
        }
        let images = CrashImages::new(base, &log);
        for at in images.frontiers() {
            let point = images.at(at);
            for choice in point.choices(Selection::default()).take(3) {
                let crashed = Arc::new(RamDevice::from_image(
                    "crashed",
                    &point.image(&choice).snapshot(),
                ));
                let again = FileSystem::open(share(crashed.clone()), options());
                let again = again.unwrap_or_else(|error| panic!("step {at}: {error}"));
                let names: Vec<String> =
                    again.snapshots().into_iter().map(|one| one.name).collect();
                for name in &names {
                    let view = again.open_snapshot(name, options()).expect("listed");
                    assert_eq!(content(&view), expected[name], "step {at}, snapshot {name}");
                }
                for (name, (from, to)) in &there {
                    let must = (*from..*to).contains(&at);
                    assert!(!must || names.contains(name), "step {at} lost {name}");
                }
                again.close().expect("a good device");
                expect_sound(&crashed);
                states += 1;
            }
        }
    }
    assert!(states > 100, "{states} states");
}

/// Whether a snapshot shows what it did after files were rewritten, with these rules of the store.
fn stays_as_it_was(rules: StoreRules) -> bool {
    let ram = formatted(2048);
    let mount = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..options()
    };
    let fs = FileSystem::open(share(ram), mount).expect("it mounts");
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"file", &new).expect("room");
    let rewrite = |byte: u8| {
        let bytes = vec![byte; 64 << 12];
        fs.write(&file, 0, &bytes, Stamp::Set).expect("room");
        fs.sync().expect("a good device");
    };
    rewrite(0);
    fs.create_snapshot("then").expect("room");
    // Often enough for each block to be used again.
    (1..60).for_each(rewrite);
    let shown = fs.open_snapshot("then", options()).and_then(|then| {
        let root = then.root()?;
        let file = then.lookup(&root, b"file")?.ok_or(Error::NotFound)?;
        let mut bytes = vec![9; 64 << 12];
        then.read(&file, 0, &mut bytes, ReadMode::Cached)?;
        Ok(bytes)
    });
    shown.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

#[test]
fn a_snapshot_needs_its_pairs_and_its_blocks() {
    assert!(stays_as_it_was(StoreRules::default()));
    assert!(!stays_as_it_was(StoreRules {
        keep_before_change: Rule::LEFT_OUT,
        ..StoreRules::default()
    }));
    assert!(!stays_as_it_was(StoreRules {
        pin_before_opening: Rule::LEFT_OUT,
        ..StoreRules::default()
    }));
}

#[test]
fn a_volume_that_grows_keeps_its_snapshots() {
    let (ram, fs) = made(2048);
    let mut random = Seeded::new(7);
    (0..200).for_each(|_| drop(step(&fs, &mut random)));
    fs.create_snapshot("small").expect("room");
    let expected = BTreeMap::from([("small".to_owned(), content(&fs))]);
    (0..100).for_each(|_| drop(step(&fs, &mut random)));
    fs.close().expect("a good device");
    let larger = Arc::new(RamDevice::new("larger", 8192));
    let region = Region::open(share(larger.clone()));
    let bytes = ram.snapshot().to_bytes();
    region.write(BlockNo(0), &bytes).expect("memory");
    FileSystem::grow(share(larger.clone())).expect("it grows");
    expect_all(&expected, |name| of_device(&larger, name));
    let fs = FileSystem::open(share(larger.clone()), options()).expect("it mounts");
    (0..300).for_each(|_| drop(step(&fs, &mut random)));
    expect_all(&expected, |name| {
        fs.open_snapshot(name, options()).expect("it is there")
    });
    fs.close().expect("a good device");
    expect_sound(&larger);
}

/// A full volume whose blocks a snapshot needs: what was synced stays, and the snapshot can go.
#[test]
fn a_snapshot_of_a_full_volume_can_be_deleted() {
    let (ram, fs) = made(2048);
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let page = vec![3; 16 << 12];
    let fill = |name: &str| -> Result<(), Error> {
        let file = fs.create(&root, name.as_bytes(), &new)?;
        fs.write(&file, 0, &page, Stamp::Set)?;
        fs.fsync(&file, SyncScope::All)
    };
    let mut files = 0;
    while fill(&format!("{files}")).is_ok() {
        files += 1;
        if files == 20 {
            fs.create_snapshot("then").expect("room");
        }
    }
    assert!(files > 40, "{files} files");
    let then = content(&fs.open_snapshot("then", options()).expect("it is there"));
    let mut removed = 0;
    while removed < 20 && fs.unlink(&root, format!("{removed}").as_bytes()).is_ok() {
        removed += 1;
    }
    assert!(removed > 0, "nothing can be removed");
    fs.sync().expect("what was removed is durable");
    let shown = content(&fs.open_snapshot("then", options()).expect("it is there"));
    assert!(shown == then, "the snapshot has changed");
    fs.delete_snapshot("then").expect("it needs no room");
    while removed < files {
        fs.unlink(&root, format!("{removed}").as_bytes())
            .expect("room again");
        removed += 1;
    }
    fill("new").expect("room again");
    fs.close().expect("a good device");
    expect_sound(&ram);
}

/// Notes the most blocks that were free at a write, once it is told to.
#[derive(Debug)]
struct Watch {
    ram: Arc<RamDevice>,
    fs: OnceLock<FileSystem>,
    watches: AtomicBool,
    most: AtomicU64,
}

impl Device for Watch {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        if !matches!(io, Io::Read { .. }) && self.watches.load(Ordering::SeqCst) {
            let free = self
                .fs
                .get()
                .expect("it is mounted")
                .statistics()
                .blocks_free;
            self.most.fetch_max(free, Ordering::SeqCst);
        }
        self.ram.execute(io)
    }
}

/// Free blocks before a snapshot is deleted, the most until its end is durable, and afterwards.
fn free_in_a_deletion(rules: StoreRules) -> [u64; 3] {
    let watch = Arc::new(Watch {
        ram: formatted(4096),
        fs: OnceLock::new(),
        watches: AtomicBool::new(false),
        most: AtomicU64::new(0),
    });
    let mount = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..options()
    };
    let fs = FileSystem::open(share(watch.clone()), mount).expect("it mounts");
    watch.fs.set(fs.clone()).expect("once");
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"large", &new).expect("room");
    fs.write(&file, 0, &vec![7; 4 << 20], Stamp::Set)
        .expect("room");
    fs.create_snapshot("then").expect("room");
    drop(file);
    fs.unlink(&root, b"large").expect("it is there");
    fs.sync().expect("a good device");
    let before = fs.statistics().blocks_free;
    watch.watches.store(true, Ordering::SeqCst);
    fs.delete_snapshot("then").expect("not in use");
    let until = watch.most.load(Ordering::SeqCst);
    [before, until, fs.statistics().blocks_free]
}

#[test]
fn what_a_snapshot_needed_is_free_when_its_end_is_durable() {
    let [before, until, after] = free_in_a_deletion(StoreRules::default());
    assert!(until < before + 100, "{before} before, {until} too early");
    assert!(after > before + 1000, "{before} before, {after} afterwards");
    let [before, until, _] = free_in_a_deletion(StoreRules {
        unpin_after_header: Rule::LEFT_OUT,
        ..StoreRules::default()
    });
    assert!(
        until > before + 1000,
        "{before} before, {until}: not noticed"
    );
}
