//! Golden images: volumes of every released format version, made once by the code of that version.
//! Today's code must still read, recover, change and check them. Versions 1 to 3 were never
//! released: they are refused by name.
//!
//! The images are run-length encoded (`rle`); of a volume on several media they hold one medium
//! behind the other. After a change of a released format, raise the
//! version, keep the old images, and make new ones: `cargo test -p dure-fs --test it -- --ignored golden::make`.

#[path = "../golden/rle.rs"]
mod rle;

use std::ops::ControlFlow;

use dure_block::linear::LinearDevice;
use dure_block::ram::{Image, RamDevice};
use dure_block::{Device, Lba, share};
use dure_check::{CheckOptions, Data, IssueKind, Repair, check};
use dure_fs::format::feature::{CLONES, Comes, FEATURES, Feature};
use dure_fs::members::{Member, join};
use dure_fs::{
    AllocateMode, Background, Bounds, DirectoryEntry, FileKind, FileSystem, FormatOptions, Limits,
    MountOptions, NewInode, NvmRegion, Quota, QuotaKind, ReadMode, RenameMode, SetAttributes,
    Stamp, Subject, TableCopies, XattrMode,
};
use dure_store::media::Region;
use dure_store::read_layout;
use dure_sync::Arc;

/// Largest image in the repository.
const GOLDEN_BYTES_MAX: usize = 64 << 10;
/// Blocks of the persistent memory of a volume that has a disk, too.
const NVM_BLOCKS: u64 = 512;
const DISK_BLOCKS: u64 = 1024;

/// What a golden volume lies on.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Disk,
    /// Persistent memory, then the disk.
    Media,
}

impl On {
    fn blocks(self) -> u64 {
        match self {
            On::Disk => DISK_BLOCKS,
            On::Media => NVM_BLOCKS + DISK_BLOCKS,
        }
    }

    fn format(self, all: &Arc<RamDevice>, options: &FormatOptions) {
        let mut media = self.media(all);
        let disk = media.pop().expect("a disk");
        let region = |device| NvmRegion {
            device,
            path: "nvm".to_owned(),
            node: 0,
        };
        let options = FormatOptions {
            nvm: media.into_iter().map(region).collect(),
            path: "disk".to_owned(),
            ..options.clone()
        };
        FileSystem::format(disk, &options).expect("room");
    }

    /// Each medium of the image.
    fn media(self, all: &Arc<RamDevice>) -> Vec<Arc<dyn Device>> {
        let run = |first, blocks| {
            let parts = vec![(shared(all), Lba::new(first), blocks)];
            share(LinearDevice::new(parts))
        };
        match self {
            On::Disk => vec![shared(all)],
            On::Media => vec![run(0, NVM_BLOCKS), run(NVM_BLOCKS, DISK_BLOCKS)],
        }
    }

    /// The volume.
    fn volume(self, all: &Arc<RamDevice>) -> Arc<dyn Device> {
        if self == On::Disk {
            return shared(all);
        }
        let media = self.media(all).into_iter().zip(["nvm", "disk"]);
        let members = media.map(|(device, path)| Member {
            device,
            path: path.to_owned(),
        });
        join(&members.collect::<Vec<_>>()).expect("all media of the volume")
    }
}

fn mount(device: Arc<dyn Device>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 4 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(device, options).expect("an old volume mounts")
}

fn shared(device: &Arc<RamDevice>) -> Arc<dyn Device> {
    share(Arc::clone(device))
}

/// The content of a page that no compression may hide.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let byte = |n: usize| u8::try_from((n / 64 + usize::try_from(seed).expect("small")) % 251);
    (0..len).map(|n| byte(n).expect("below 251")).collect()
}

/// What every golden volume holds.
fn fill(fs: &FileSystem) {
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_640,
        uid: 1000,
        gid: 100,
        ..NewInode::default()
    };
    let file = fs.create(&root, b"file", &new).expect("room");
    fs.write(&file, 0, &pattern(1, 10_000), Stamp::Set)
        .expect("room");
    fs.write(&file, 2_000_000, &pattern(2, 5_000), Stamp::Set)
        .expect("room");
    fs.allocate(&file, AllocateMode::KeepSize, 3_000_000, 8192)
        .expect("room");
    fs.set_xattr(&file, b"user.name", &pattern(3, 6000), XattrMode::Any)
        .expect("room");
    let directory = fs
        .mkdir(&root, b"directory", &NewInode { mode: 0o750, ..new })
        .expect("room");
    for n in 0..60 {
        let name = format!("a name that is not so short, number {n}");
        fs.create(&directory, name.as_bytes(), &new).expect("room");
    }
    fs.link(&file, &directory, b"second name").expect("room");
    fs.symlink(&root, b"short", b"file", &new).expect("room");
    fs.symlink(&root, b"long", &vec![b'l'; 3000], &new)
        .expect("room");
    fs.create(
        &root,
        b"fifo",
        &NewInode {
            mode: 0o010_600,
            ..new
        },
    )
    .expect("room");
    fs.create(
        &root,
        b"device",
        &NewInode {
            mode: 0o020_600,
            rdev: 0x103,
            ..new
        },
    )
    .expect("room");
}

/// Everything [`fill`] made is there.
fn expect_content(fs: &FileSystem) {
    let root = fs.root().expect("a root");
    let find = |name: &[u8]| fs.lookup(&root, name).expect("a lookup").expect("the name");
    let file = find(b"file");
    let attributes = fs.attributes(&file).expect("attributes");
    assert_eq!(
        (attributes.mode, attributes.uid, attributes.gid),
        (0o100_640, 1000, 100)
    );
    assert_eq!((attributes.nlink, attributes.size), (2, 2_005_000));
    assert!(attributes.btime.secs.get() > 1_700_000_000);
    let mut bytes = vec![0xee; 2_005_000];
    assert_eq!(
        fs.read(&file, 0, &mut bytes, ReadMode::Cached)
            .expect("a read"),
        bytes.len()
    );
    assert_eq!(bytes[..10_000], pattern(1, 10_000));
    assert!(bytes[10_000..2_000_000].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[2_000_000..], pattern(2, 5_000));
    let value = fs.get_xattr(&file, b"user.name").expect("a read");
    assert_eq!(value.as_deref(), Some(&pattern(3, 6000)[..]));
    let directory = find(b"directory");
    let mut names = Vec::new();
    fs.read_directory(&directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .expect("a listing");
    assert_eq!(names.len(), 61);
    assert!(names.contains(&b"a name that is not so short, number 59".to_vec()));
    assert!(names.contains(&b"second name".to_vec()));
    assert_eq!(fs.read_link(&find(b"short")).expect("a target"), b"file");
    assert_eq!(
        fs.read_link(&find(b"long")).expect("a target"),
        vec![b'l'; 3000]
    );
    assert_eq!(find(b"fifo").kind(), FileKind::Fifo);
    assert_eq!(
        fs.attributes(&find(b"device")).expect("attributes").rdev,
        0x103
    );
}

/// Opens, reads, changes and checks a golden image.
fn expect_usable(on: On, encoded: &[u8], clean: bool) {
    assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
    let image = Image::from_bytes(&rle::decode(encoded));
    let all = Arc::new(RamDevice::from_image("golden", &image));
    let verify = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(on.volume(&all), &verify).expect("a superblock");
    let issues = report.issues();
    if clean {
        assert!(report.is_spotless(), "{issues:?}");
    } else {
        assert!(
            matches!(issues, [one] if matches!(one.kind, IssueKind::NotClean { transactions } if transactions > 0)),
            "{issues:?}"
        );
    }
    assert_eq!(report.counts().files, 61);
    let fs = mount(on.volume(&all));
    expect_content(&fs);
    let then = fs.open_snapshot("then", MountOptions::default());
    expect_content(&then.expect("an old snapshot"));
    let root = fs.root().expect("a root");
    fs.unlink(&root, b"short").expect("a name");
    let file = fs
        .lookup(&root, b"file")
        .expect("a lookup")
        .expect("the name");
    let size = Some(5);
    fs.set_attributes(
        &file,
        &SetAttributes {
            size,
            ..SetAttributes::default()
        },
    )
    .expect("a change");
    drop(file);
    drop(root);
    fs.close().expect("a good device");
    drop(fs);
    let report = check(on.volume(&all), &verify).expect("a superblock");
    assert!(report.is_spotless(), "{:?}", report.issues());
}

#[test]
fn version_4_unmounted() {
    expect_usable(On::Disk, include_bytes!("../golden/v4-clean.rle"), true);
}

#[test]
fn version_4_crashed() {
    expect_usable(On::Disk, include_bytes!("../golden/v4-crashed.rle"), false);
}

/// Whether the superblock has the flag `STAMPS`.
fn is_stamped(encoded: &[u8]) -> bool {
    rle::decode(encoded)[120] & 1 != 0
}

/// With the flags `MEDIA` and `STAMPS`.
#[test]
fn version_4_stamped_unmounted() {
    let image = include_bytes!("../golden/v4-stamps-clean.rle");
    assert!(is_stamped(image));
    expect_usable(On::Media, image, true);
}

#[test]
fn version_4_stamped_crashed() {
    let image = include_bytes!("../golden/v4-stamps-crashed.rle");
    assert!(is_stamped(image));
    expect_usable(On::Media, image, false);
}

/// Opens, reads, changes and checks an image with the flag `CLONES`.
fn expect_clones(on: On, encoded: &[u8], shared: u64) {
    let image = rle::decode(encoded);
    assert_eq!(image[128] & 2, 2, "the flag");
    let all = Arc::new(RamDevice::from_image("golden", &Image::from_bytes(&image)));
    let verify = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(on.volume(&all), &verify).expect("a superblock");
    let unclean = |kind: &IssueKind| matches!(kind, IssueKind::NotClean { .. });
    let issues = report.issues();
    assert!(issues.iter().all(|one| unclean(&one.kind)), "{issues:?}");
    let fs = mount(on.volume(&all));
    assert_eq!(fs.blocks_shared(), shared);
    let root = fs.root().expect("a root");
    let read = |name: &[u8]| {
        let file = fs.lookup(&root, name).expect("a lookup").expect("it");
        let mut bytes = vec![0; 120_000];
        let read = fs.read(&file, 0, &mut bytes, ReadMode::Bypass);
        assert_eq!(read.expect("a read"), 110_000);
        bytes.truncate(110_000);
        bytes
    };
    let mut changed = pattern(4, 110_000);
    changed[5000..15_000].fill(9);
    assert!(read(b"seed") == pattern(4, 110_000) && read(b"clone") == changed);
    fs.unlink(&root, b"seed").expect("a name");
    fs.sync().expect("a good device");
    assert_eq!(fs.blocks_shared(), 0);
    assert!(read(b"clone") == changed);
    drop(root);
    fs.close().expect("a good device");
    drop(fs);
    let report = check(on.volume(&all), &verify).expect("a superblock");
    assert!(report.is_spotless(), "{:?}", report.issues());
}

/// What [`expect_clones`] expects. 27 pages are shared, and three of them written again.
fn fill_clones(fs: &FileSystem) {
    let root = fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_640,
        ..NewInode::default()
    };
    let seed = fs.create(&root, b"seed", &new).expect("room");
    fs.write(&seed, 0, &pattern(4, 110_000), Stamp::Set)
        .expect("room");
    let clone = fs.create(&root, b"clone", &new).expect("room");
    let done = fs.clone_range((&seed, 0), (&clone, 0), 110_000);
    assert_eq!(done.expect("a good device"), 110_000);
    // The lists are on the medium; the crashed image has a change of them in its logs.
    fs.checkpoint_now().expect("a good device");
    fs.write(&clone, 5000, &[9; 10_000], Stamp::Set)
        .expect("room");
}

#[test]
fn version_4_clones_unmounted() {
    expect_clones(
        On::Disk,
        include_bytes!("../golden/v4-clones-clean.rle"),
        24,
    );
}

/// With the flags `MEDIA` and `STAMPS`, too.
#[test]
fn version_4_clones_crashed() {
    let image = include_bytes!("../golden/v4-clones-crashed.rle");
    assert!(is_stamped(image));
    expect_clones(On::Media, image, 24);
}

#[test]
#[ignore = "makes the golden images: cargo test -p dure-fs --test it -- --ignored golden::make_clones"]
fn make_clones() {
    for (on, state) in [(On::Disk, "clean"), (On::Media, "crashed")] {
        let all = Arc::new(RamDevice::new("golden", on.blocks()));
        let options = FormatOptions {
            journals: Some(2),
            ..FormatOptions::default()
        };
        on.format(&all, &options);
        let fs = mount(on.volume(&all));
        fill_clones(&fs);
        match on {
            On::Disk => fs.close().expect("a good device"),
            On::Media => fs.sync().expect("a good device"),
        }
        let encoded = rle::encode(&all.snapshot().to_bytes());
        assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let path = format!("{folder}/v4-clones-{state}.rle");
        std::fs::write(path, encoded).expect("a writable tree");
    }
}

/// The image with two copies of NAT and SIT, which was not unmounted.
const COPIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v4-copies.rle");

/// Either copy is enough.
#[test]
fn version_4_with_copies() {
    let encoded = std::fs::read(COPIES).expect("an image");
    assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
    let image = rle::decode(&encoded);
    assert_eq!(image[128], 8, "the flag");
    let layout = {
        let all = RamDevice::from_image("golden", &Image::from_bytes(&image));
        read_layout(&Region::open(share(all))).expect("a volume")
    };
    let pairs = u64::from(layout.nat_pairs) + u64::from(layout.sit_pairs);
    for first in [layout.nat, layout.copies] {
        let mut image = image.clone();
        let bytes = |blocks: u64| usize::try_from(blocks * 4096).expect("small");
        image[bytes(first)..bytes(first + 2 * pairs)].fill(0xa5);
        let all = Arc::new(RamDevice::from_image("golden", &Image::from_bytes(&image)));
        let found = |options: &CheckOptions| {
            let report = check(shared(&all), options).expect("a superblock");
            let issues = report.issues().iter();
            let of = |kind: &IssueKind| {
                matches!(
                    kind,
                    IssueKind::NotClean { .. } | IssueKind::PairCopyBad { .. }
                )
            };
            assert!(
                issues.clone().all(|one| of(&one.kind)),
                "{:?}",
                report.issues()
            );
            issues.filter(|one| !one.repaired).count()
        };
        assert!(found(&CheckOptions::default()) > 2);
        let fs = mount(shared(&all));
        expect_content(&fs);
        fs.close().expect("a good device");
        let repair = CheckOptions {
            repair: Repair::Full,
            ..CheckOptions::default()
        };
        assert_eq!(found(&repair), 0);
        let report = check(shared(&all), &CheckOptions::default()).expect("a superblock");
        assert!(report.is_spotless(), "{:?}", report.issues());
    }
}

#[test]
#[ignore = "makes the golden image with copies: cargo test -p dure-fs --test it -- --ignored golden::make_copies"]
fn make_copies() {
    let all = Arc::new(RamDevice::new("golden", DISK_BLOCKS));
    let options = FormatOptions {
        journals: Some(2),
        table_copies: TableCopies::Two,
        ..FormatOptions::default()
    };
    FileSystem::format(shared(&all), &options).expect("room");
    let fs = mount(shared(&all));
    fill(&fs);
    fs.checkpoint_now().expect("a good device");
    let root = fs.root().expect("a root");
    let file = fs.lookup(&root, b"file").expect("a lookup").expect("it");
    let written = fs.write(&file, 0, &pattern(1, 10_000), Stamp::Set);
    written.expect("room");
    drop((file, root));
    fs.sync().expect("a good device");
    let encoded = rle::encode(&all.snapshot().to_bytes());
    std::fs::write(COPIES, encoded).expect("a writable tree");
}

/// The image with quotas; its one user has as many inodes as it may.
const QUOTAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v4-quotas.rle");
const OWNER: Subject = Subject {
    kind: QuotaKind::User,
    id: 1000,
};

fn quota(fs: &FileSystem) -> Quota {
    let all = fs.quotas().expect("quotas are on");
    let found = all.iter().find(|one| one.subject == OWNER);
    *found.expect("it has files")
}

#[test]
fn version_4_with_quotas() {
    let encoded = std::fs::read(QUOTAS).expect("an image");
    assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
    let image = Image::from_bytes(&rle::decode(&encoded));
    let all = Arc::new(RamDevice::from_image("golden", &image));
    let spotless = || {
        let report = check(shared(&all), &CheckOptions::default()).expect("a superblock");
        assert!(report.is_spotless(), "{:?}", report.issues());
    };
    spotless();
    let fs = mount(shared(&all));
    expect_content(&fs);
    let root = fs.root().expect("a root");
    let file = fs.lookup(&root, b"file").expect("a lookup");
    let file = fs
        .attributes(&file.expect("the name"))
        .expect("it has some");
    let Quota { usage, limits, .. } = quota(&fs);
    assert_eq!((usage.inodes, usage.blocks), (66, file.blocks / 8));
    assert_eq!((limits.inodes.hard, limits.blocks.soft), (66, 5));
    assert_ne!(limits.blocks.since, 0, "more than the soft limit");
    assert_eq!(limits.grace, 1 << 30);
    let new = NewInode {
        mode: 0o100_640,
        uid: 1000,
        ..NewInode::default()
    };
    let refused = fs.create(&root, b"more", &new).expect_err("a limit");
    assert_eq!(refused.errno(), 122, "EDQUOT");
    fs.unlink(&root, b"fifo").expect("a name");
    fs.create(&root, b"more", &new).expect("room");
    drop(root);
    fs.close().expect("a good device");
    spotless();
}

#[test]
#[ignore = "makes the golden image with quotas: cargo test -p dure-fs --test it -- --ignored golden::make_quotas"]
fn make_quotas() {
    let all = Arc::new(RamDevice::new("golden", DISK_BLOCKS));
    let options = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(shared(&all), &options).expect("room");
    let fs = mount(shared(&all));
    fs.switch_quotas_on().expect("room");
    fs.close().expect("a good device");
    let fs = mount(shared(&all));
    let bounds = |soft, hard| Bounds {
        soft,
        hard,
        since: 0,
    };
    let limits = Limits {
        blocks: bounds(5, 1000),
        inodes: bounds(0, 66),
        grace: 1 << 30,
    };
    fs.set_quota(OWNER, &limits).expect("room");
    fill(&fs);
    fs.close().expect("a good device");
    let encoded = rle::encode(&all.snapshot().to_bytes());
    std::fs::write(QUOTAS, encoded).expect("a file");
}

/// The image with a project, which has as many inodes as it may.
const PROJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v4-projects.rle");
const PROJECT: Subject = Subject {
    kind: QuotaKind::Project,
    id: 7,
};

#[test]
fn version_4_with_projects() {
    let encoded = std::fs::read(PROJECTS).expect("an image");
    assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
    let image = Image::from_bytes(&rle::decode(&encoded));
    let all = Arc::new(RamDevice::from_image("golden", &image));
    let fs = mount(shared(&all));
    expect_content(&fs);
    let root = fs.root().expect("a root");
    let find = |name: &[u8]| fs.lookup(&root, name).expect("a lookup").expect("the name");
    // The file has a name in the directory, too.
    let projects = [&b"directory"[..], b"file", b"fifo"].map(|name| fs.project(&find(name)));
    assert_eq!(projects, [7, 7, 0]);
    let all_quotas = fs.quotas().expect("quotas are on");
    let found = all_quotas.iter().find(|one| one.subject == PROJECT);
    let Quota { usage, limits, .. } = found.expect("it has files");
    assert_eq!((usage.inodes, limits.inodes.hard), (62, 62));
    let refused = fs.create(&find(b"directory"), b"more", &NewInode::default());
    assert!(refused.is_err());
    let moved = fs.rename(
        &root,
        b"fifo",
        &find(b"directory"),
        b"fifo",
        RenameMode::Replace,
    );
    assert_eq!(moved.expect_err("another project").errno(), 18, "EXDEV");
    drop(root);
    fs.close().expect("a good device");
    let report = check(shared(&all), &CheckOptions::default()).expect("a superblock");
    assert!(report.is_spotless(), "{:?}", report.issues());
}

#[test]
#[ignore = "makes the golden image with a project: cargo test -p dure-fs --test it -- --ignored golden::make_projects"]
fn make_projects() {
    let image = Image::from_bytes(&rle::decode(&std::fs::read(QUOTAS).expect("an image")));
    let all = Arc::new(RamDevice::from_image("golden", &image));
    let fs = mount(shared(&all));
    let root = fs.root().expect("a root");
    let directory = fs.lookup(&root, b"directory").expect("a lookup");
    let goes_on = &mut |_| ControlFlow::Continue(());
    let given = fs.set_project(&directory.expect("the name"), PROJECT.id, goes_on);
    assert_eq!(given.expect("a good device"), 62);
    let mut limits = Limits::default();
    limits.inodes.hard = 62;
    fs.set_quota(PROJECT, &limits).expect("room");
    drop(root);
    fs.close().expect("a good device");
    let encoded = rle::encode(&all.snapshot().to_bytes());
    std::fs::write(PROJECTS, encoded).expect("a file");
}

#[test]
fn other_versions_are_refused_by_name() {
    let device = Arc::new(RamDevice::new("golden", 1024));
    FileSystem::format(shared(&device), &FormatOptions::default()).expect("room");
    let mut bytes = device.snapshot().to_bytes();
    for version in [1, 2, 3, 5] {
        bytes[7] = b'0' + version;
        bytes[12] = version;
        let old = Arc::new(RamDevice::from_image("golden", &Image::from_bytes(&bytes)));
        let what_to_do = match version {
            5 => "it needs a later dure",
            _ => "copy its files with the dure that did",
        };
        for error in [
            FileSystem::open(shared(&old), MountOptions::default()).expect_err("another version"),
            check(shared(&old), &CheckOptions::default()).expect_err("another version"),
            FileSystem::turn_on(shared(&old), &[CLONES]).expect_err("another version"),
        ] {
            let text = error.to_string();
            let name = format!("format version {version};");
            assert!(text.contains(&name) && text.contains(what_to_do), "{text}");
        }
    }
}

/// All golden volumes, and whether they were unmounted.
const ALL: &[(&str, On, bool)] = &[
    ("v4-clean", On::Disk, true),
    ("v4-crashed", On::Disk, false),
    ("v4-stamps-clean", On::Media, true),
    ("v4-stamps-crashed", On::Media, false),
    ("v4-clones-clean", On::Disk, true),
    ("v4-clones-crashed", On::Media, false),
    ("v4-quotas", On::Disk, true),
    ("v4-projects", On::Disk, true),
    ("v4-copies", On::Disk, false),
];

/// What tells that nothing of a volume has changed: names, attributes, contents, extended attributes.
fn tree(fs: &FileSystem) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = vec![(String::new(), fs.root().expect("a root"))];
    while let Some((path, directory)) = rest.pop() {
        let mut names = Vec::new();
        let mut note = |entry: &DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        };
        fs.read_directory(&directory, 0, &mut note)
            .expect("a listing");
        for name in names {
            let found = fs.lookup(&directory, &name).expect("a lookup");
            let inode = found.expect("the name");
            let found = fs.attributes(&inode).expect("attributes");
            let mut bytes = vec![0; usize::try_from(found.size).expect("small")];
            match inode.kind() {
                FileKind::File => {
                    let read = fs.read(&inode, 0, &mut bytes, ReadMode::Cached);
                    assert_eq!(read.expect("a read"), bytes.len());
                }
                FileKind::Symlink => bytes = fs.read_link(&inode).expect("a target"),
                _ => {}
            }
            for name in fs.list_xattr(&inode).expect("names") {
                let value = fs.get_xattr(&inode, &name).expect("a read");
                bytes.extend(name.into_iter().chain(value.expect("it is listed")));
            }
            let path = format!("{path}/{}", name.escape_ascii());
            let sum = dure_block::crc32c::crc32c(&bytes);
            let (mode, uid, gid) = (found.mode, found.uid, found.gid);
            let who = format!("{mode:o} {uid} {gid} {} {}", found.nlink, found.rdev);
            lines.push(format!("{path} {who} {} {sum:#x}", found.size));
            if inode.kind() == FileKind::Directory {
                rest.push((path, inode));
            }
        }
    }
    lines.sort();
    lines
}

/// There is a golden volume with each feature and one without; each is upgraded to all that this dure
/// can turn on, and holds then what it held.
#[test]
fn each_golden_volume_is_upgraded() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let files = std::fs::read_dir(folder).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    let images = names.filter(|name| name.to_string_lossy().ends_with(".rle"));
    assert_eq!(images.count(), ALL.len(), "images that are not upgraded");
    let of_today = |one: &Feature| one.comes != Comes::Later;
    let mut missing: Vec<Feature> = FEATURES.into_iter().filter(of_today).collect();
    for (name, on, clean) in ALL {
        let encoded = std::fs::read(format!("{folder}/{name}.rle")).expect("an image");
        let image = Image::from_bytes(&rle::decode(&encoded));
        let all = Arc::new(RamDevice::from_image("golden", &image));
        let superblock = || {
            let layout = read_layout(&Region::open(on.volume(&all)));
            layout.expect("a volume").superblock
        };
        let had = superblock();
        missing.retain(|feature| !had.has(*feature));
        let by_use = FEATURES.into_iter().filter(|one| one.comes == Comes::Use);
        let wanted: Vec<Feature> = by_use.collect();
        if !clean {
            let refused = FileSystem::turn_on(on.volume(&all), &wanted);
            let lacks = wanted.iter().any(|feature| !had.has(*feature));
            assert_eq!(refused.is_err(), lacks, "{name}: it was not unmounted");
        }
        let fs = mount(on.volume(&all));
        let all_trees = |fs: &FileSystem| {
            let of = |name: &str| fs.open_snapshot(name, MountOptions::default());
            let list = fs.snapshots();
            let past = list.iter().map(|one| of(&one.name).expect("a snapshot"));
            past.map(|past| tree(&past))
                .chain([tree(fs)])
                .collect::<Vec<_>>()
        };
        let before = all_trees(&fs);
        fs.close().expect("a good device");
        let turned = FileSystem::turn_on(on.volume(&all), &wanted).expect("an unmounted volume");
        assert!(turned.iter().all(|feature| !had.has(*feature)), "{name}");
        assert!(wanted.iter().all(|feature| superblock().has(*feature)));
        let again = FileSystem::turn_on(on.volume(&all), &wanted).expect("it has all");
        assert_eq!(again, [], "{name}: nothing to do");
        let spotless = || {
            let report = check(on.volume(&all), &CheckOptions::default()).expect("a superblock");
            assert!(report.is_spotless(), "{name}: {:?}", report.issues());
        };
        spotless();
        let fs = mount(on.volume(&all));
        assert_eq!(all_trees(&fs), before, "{name}");
        let root = fs.root().expect("a root");
        let new = NewInode {
            mode: 0o40_750,
            ..NewInode::default()
        };
        fs.mkdir(&root, b"since", &new).expect("room");
        drop(root);
        fs.close().expect("a good device");
        spotless();
    }
    assert_eq!(missing, [], "features that no golden volume has");
}

#[test]
#[ignore = "makes the golden images: cargo test -p dure-fs --test it -- --ignored golden::make"]
fn make() {
    for (on, name) in [(On::Disk, "v4"), (On::Media, "v4-stamps")] {
        for (state, clean) in [("clean", true), ("crashed", false)] {
            let all = Arc::new(RamDevice::new("golden", on.blocks()));
            let label = "golden".to_owned();
            let options = FormatOptions {
                journals: Some(2),
                label,
                ..FormatOptions::default()
            };
            on.format(&all, &options);
            let fs = mount(on.volume(&all));
            fill(&fs);
            fs.create_snapshot("then").expect("room");
            // Elsewhere than in the snapshot.
            let root = fs.root().expect("a root");
            let file = fs.lookup(&root, b"file").expect("a lookup").expect("it");
            let written = fs.write(&file, 0, &pattern(1, 10_000), Stamp::Set);
            written.expect("room");
            drop((file, root));
            if clean {
                fs.close().expect("a good device");
            } else {
                fs.sync().expect("a good device");
            }
            let bytes = all.snapshot().to_bytes();
            let encoded = rle::encode(&bytes);
            assert_eq!(rle::decode(&encoded), bytes);
            assert!(encoded.len() <= GOLDEN_BYTES_MAX, "{} bytes", encoded.len());
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
            let path = format!("{folder}/{name}-{state}.rle");
            std::fs::write(path, encoded).expect("a writable tree");
        }
    }
}
