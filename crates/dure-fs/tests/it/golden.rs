//! Golden images: volumes of every released format version, made once by the code of that version.
//! Today's code must still read, recover, change and check them. Versions 1 to 3 were never
//! released: they are refused by name.
//!
//! The images are run-length encoded (`rle`); of a volume on several media they hold one medium
//! behind the other. After a change of a released format, raise the
//! version, keep the old images, and make new ones: `cargo test -p dure-fs --test it -- --ignored golden::make`.

#[path = "../golden/rle.rs"]
mod rle;

use dure_block::linear::LinearDevice;
use dure_block::ram::{Image, RamDevice};
use dure_block::{Device, Lba, share};
use dure_check::{CheckOptions, Data, IssueKind, check};
use dure_fs::members::{Member, join};
use dure_fs::{
    AllocateMode, Background, FileKind, FileSystem, FormatOptions, MountOptions, NewInode,
    NvmRegion, ReadMode, SetAttributes, Stamp, XattrMode,
};
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
        std::ops::ControlFlow::Continue(())
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

#[test]
fn versions_1_to_3_are_refused_by_name() {
    let device = Arc::new(RamDevice::new("golden", 1024));
    FileSystem::format(shared(&device), &FormatOptions::default()).expect("room");
    let mut bytes = device.snapshot().to_bytes();
    for version in 1..=3 {
        bytes[7] = b'0' + version;
        bytes[12] = version;
        let old = Arc::new(RamDevice::from_image("golden", &Image::from_bytes(&bytes)));
        for error in [
            FileSystem::open(shared(&old), MountOptions::default()).expect_err("an old version"),
            check(shared(&old), &CheckOptions::default()).expect_err("an old version"),
        ] {
            let text = error.to_string();
            assert!(
                text.contains(&format!("format version {version};")),
                "{text}"
            );
        }
    }
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
