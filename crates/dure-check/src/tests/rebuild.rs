//! A part of a volume is destroyed; the rebuild brings back every file that no destroyed block
//! belonged to, byte by byte, and leaves a volume that checks clean. Before it, a rescue reads out
//! the same.
//!
//! A sample runs with the other tests; `DURE_REPAIR_CASES=N` runs N cases, from seed
//! `DURE_REPAIR_SEED` on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_block::ram::{Image, RamDevice};
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_fs::{
    Background, FileKind, FileSystem, InodeRef, MountOptions, NewInode, ReadMode, Stamp, XattrMode,
};
use dure_store::layout::{FormatOptions, Layout};
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, Ino, to_u64, to_usize};
use dure_sync::Arc;

use super::disk::lines;
use crate::context::Context;
use crate::rebuild::{blocks_of, salvaged};
use crate::{CheckOptions, Data, Issue, IssueKind, Repair, Report, check};

const MIB_BLOCKS: u64 = 256;
const VOLUME_BLOCKS: u64 = 64 * MIB_BLOCKS;

/// A generator of its own (xorshift64*), so that a case is its seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

/// What there is of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) kind: FileKind,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) paths: BTreeSet<Vec<u8>>,
}

pub(super) type Files = BTreeMap<Ino, Content>;

fn mount(device: &Arc<RamDevice>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(share(Arc::clone(device)), options).unwrap()
}

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

/// A volume that was used for a while: files of all kinds, made, changed and deleted, with some
/// checkpoints between.
fn aged(seed: u64, journals: u32) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("rebuild", VOLUME_BLOCKS));
    let options = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).unwrap();
    let fs = mount(&device);
    let mut draw = Draw(seed);
    let mut directories = vec![fs.root().unwrap()];
    for n in 0..30_u64 {
        let parent = directories[to_usize(draw.below(to_u64(directories.len())))].clone();
        let name = format!("directory {n}");
        directories.push(fs.mkdir(&parent, name.as_bytes(), &new(0o755)).unwrap());
    }
    for round in 0..3 {
        let mut made = Vec::new();
        for n in 0..250_u64 {
            let parent = &directories[to_usize(draw.below(to_u64(directories.len())))];
            let name = format!("file {round} {n} of a name of some length");
            made.push((parent.clone(), name.clone()));
            age(&fs, parent, name.as_bytes(), &mut draw);
        }
        for (parent, name) in made {
            if draw.below(3) == 0 {
                fs.unlink(&parent, name.as_bytes()).unwrap();
            }
        }
        fs.checkpoint_now().unwrap();
    }
    drop(directories);
    fs.close().unwrap();
    device
}

fn age(fs: &FileSystem, parent: &InodeRef, name: &[u8], draw: &mut Draw) {
    match draw.below(12) {
        0 => {
            let target = vec![b't'; to_usize(1 + draw.below(1500))];
            fs.symlink(parent, name, &target, &new(0o777)).unwrap();
        }
        1 => {
            let file = fs.create(parent, name, &new(0o100_600)).unwrap();
            let other = [name, b" linked"].concat();
            fs.link(&file, parent, &other).unwrap();
            fs.write(&file, 1 << 30, name, Stamp::Set).unwrap();
        }
        2 => {
            let file = fs.create(parent, name, &new(0o100_640)).unwrap();
            let value = vec![7; to_usize(1 + draw.below(6000))];
            fs.set_xattr(&file, b"user.x", &value, XattrMode::Any)
                .unwrap();
        }
        n => {
            let file = fs.create(parent, name, &new(0o100_644)).unwrap();
            let len = if n == 3 { 700_000 } else { 20_000 };
            let bytes: Vec<u8> = (0..draw.below(len))
                .map(|_| draw.next().to_le_bytes()[3])
                .collect();
            fs.write(&file, draw.below(3) * 5000, &bytes, Stamp::Set)
                .unwrap();
        }
    }
}

/// All that is below the root, by inode.
fn files(fs: &FileSystem) -> Files {
    let mut files = Files::new();
    let mut stack = vec![(fs.root().unwrap(), Vec::new())];
    while let Some((directory, path)) = stack.pop() {
        let mut names = Vec::new();
        let mut show = |entry: &dure_fs::DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        };
        fs.read_directory(&directory, 0, &mut show).unwrap();
        for name in names {
            let inode = fs.lookup(&directory, &name).unwrap().unwrap();
            let path = [&path[..], b"/", &name].concat();
            let ino = inode.ino();
            if let Some(content) = files.get_mut(&ino) {
                content.paths.insert(path);
                continue;
            }
            let attributes = fs.attributes(&inode).unwrap();
            let bytes = content(fs, &inode, attributes.kind, attributes.size);
            let xattrs = fs.list_xattr(&inode).unwrap_or_default();
            let value = |name: Vec<u8>| {
                let value = fs.get_xattr(&inode, &name).unwrap_or_default();
                (name, value.unwrap_or_default())
            };
            files.insert(
                ino,
                Content {
                    kind: attributes.kind,
                    mode: attributes.mode,
                    bytes,
                    xattrs: xattrs.into_iter().map(value).collect(),
                    paths: BTreeSet::from([path.clone()]),
                },
            );
            if attributes.kind == FileKind::Directory {
                stack.push((inode, path));
            }
        }
    }
    files
}

/// The content; shorter where it cannot be read.
fn content(fs: &FileSystem, inode: &InodeRef, kind: FileKind, size: u64) -> Vec<u8> {
    match kind {
        FileKind::Symlink => fs.read_link(inode).unwrap_or_default(),
        FileKind::File => {
            // The pages of sparse files that are far behind.
            let from = size.saturating_sub(1 << 20);
            let mut bytes = vec![0; to_usize(size - from)];
            let read = fs.read(inode, from, &mut bytes, ReadMode::Cached);
            bytes.truncate(read.unwrap_or(0));
            bytes
        }
        _ => Vec::new(),
    }
}

/// The blocks of every inode: of its node, its map, attributes and pages; of directories the
/// buckets.
fn owners(device: &Arc<RamDevice>) -> (Layout, BTreeMap<Ino, BTreeSet<u64>>) {
    let region = Region::open(share(Arc::clone(device)));
    let layout = dure_store::read_layout(&region).unwrap();
    let options = CheckOptions::default();
    let mut context = Context::new(&options, region, layout.clone(), Report::default());
    salvaged(&mut context);
    (layout, blocks_of(&mut context))
}

/// What a case destroys.
fn destroyed(draw: &mut Draw, layout: &Layout, root: u64) -> (&'static str, u64, u64) {
    let segment = u64::from(layout.segment_blocks);
    match draw.below(8) {
        0 => (
            "superblock",
            [0, layout.total_blocks - 1][to_usize(draw.below(2))],
            1,
        ),
        1 => ("volume header", layout.volume_header, 4),
        2 => (
            "NAT pair",
            layout.nat_pair(draw.below(4.min(u64::from(layout.nat_pairs)))),
            2,
        ),
        3 => (
            "SIT pair",
            layout.sit_pair(u32::try_from(draw.below(u64::from(layout.sit_pairs))).unwrap()),
            2,
        ),
        4 => ("root node", root, 1),
        5 => ("journal header", layout.journal_header(0), 4),
        6 => (
            "segment",
            layout.main + draw.below(u64::from(layout.segments)) * segment,
            segment,
        ),
        _ => (
            "20 MiB",
            draw.below(VOLUME_BLOCKS - 20 * MIB_BLOCKS),
            20 * MIB_BLOCKS,
        ),
    }
}

fn destroy(device: &RamDevice, draw: &mut Draw, first: u64, count: u64) {
    let zero = draw.below(2) == 0;
    for lba in first..first + count {
        let byte = if zero {
            0
        } else {
            draw.next().to_le_bytes()[2]
        };
        let block = [byte; BLOCK_BYTES];
        let parts: &[&[u8]] = &[&block];
        let (lba, flags) = (Lba::new(lba), WriteFlags::NONE);
        device.execute(Io::Write { lba, parts, flags }).unwrap();
    }
}

/// A volume, its files, and which blocks are whose.
struct Base {
    image: Image,
    layout: Layout,
    owners: BTreeMap<Ino, BTreeSet<u64>>,
    files: Files,
    root: u64,
}

fn base(seed: u64, journals: u32) -> Base {
    let device = aged(seed, journals);
    let (layout, owners) = owners(&device);
    let image = device.snapshot();
    let options = MountOptions {
        read_only: true,
        background: Background::None,
        cache_bytes: 16 << 20,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&device)), options).unwrap();
    let files = files(&fs);
    assert!(files.len() > 400, "{} files", files.len());
    let root = *owners[&Ino::ROOT].first().unwrap();
    Base {
        image,
        layout,
        owners,
        files,
        root,
    }
}

/// Runs one case; what it destroyed, files that were not hit, and those that were lost.
fn run(base: &Base, seed: u64) -> (&'static str, usize, usize) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let device = Arc::new(RamDevice::from_image("rebuild", &base.image));
    let (what, first, count) = destroyed(&mut draw, &base.layout, base.root);
    destroy(&device, &mut draw, first, count);
    let at = format!("seed={seed}: {what} at block {first}, {count} blocks");
    let hit = |ino: &Ino| {
        let blocks = base.owners.get(ino);
        blocks.is_some_and(|blocks| blocks.range(first..first + count).next().is_some())
    };
    let names_whole = !base
        .files
        .iter()
        .any(|(ino, content)| content.kind == FileKind::Directory && hit(ino))
        && !hit(&Ino::ROOT);
    super::rescue::compare(&device, &base.files, &hit, names_whole, &at);
    let options = CheckOptions {
        repair: Repair::Full,
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(share(Arc::clone(&device)), &options).unwrap();
    let content = |issue: &&Issue| matches!(issue.kind, IssueKind::DataChecksum { .. });
    let left = report
        .issues()
        .iter()
        .filter(|issue| !issue.repaired && !content(issue));
    let left: Vec<String> = left.map(ToString::to_string).collect();
    assert_eq!(left, Vec::<String>::new(), "{at}");
    let after = check(share(Arc::clone(&device)), &CheckOptions::default()).unwrap();
    assert_eq!(lines(&after), Vec::<String>::new(), "{at}");
    let fs = mount(&device);
    let found = files(&fs);
    let (mut whole, mut lost) = (0, 0);
    for (ino, want) in &base.files {
        if hit(ino) {
            lost += 1;
            let named = !report.lost().is_empty() || report.issues().iter().any(|issue| matches!(issue.kind, IssueKind::DataChecksum { ino: of, .. } if of == *ino)) || report.losses().iter().any(|loss| loss.ino.nid() == ino.nid() || loss.path.as_ref().is_some_and(|path| want.paths.contains(path)));
            assert!(
                named || found.get(ino).is_some_and(|got| got.bytes == want.bytes),
                "{at}: {ino:?} is lost without a word"
            );
            continue;
        }
        whole += 1;
        let Some(got) = found.get(ino) else {
            panic!("{at}: {ino:?} {:?} is gone", want.paths);
        };
        assert!(got.bytes == want.bytes, "{at}: {ino:?} has other bytes");
        assert_eq!(
            (got.kind, got.mode, &got.xattrs),
            (want.kind, want.mode, &want.xattrs),
            "{at}"
        );
        if names_whole {
            assert_eq!(got.paths, want.paths, "{at}");
        }
    }
    fs.close().unwrap();
    let after = check(share(Arc::clone(&device)), &CheckOptions::default()).unwrap();
    assert_eq!(lines(&after), Vec::<String>::new(), "{at}, after a mount");
    (what, whole, lost)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn what_no_destroyed_block_belonged_to_is_there_again() {
    let cases = setting("DURE_REPAIR_CASES").unwrap_or(16);
    let from = setting("DURE_REPAIR_SEED").unwrap_or(1);
    let bases = [base(11, 1), base(12, 4)];
    let mut table: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for seed in from..from + cases {
        let (what, whole, lost) = run(&bases[to_usize(seed % 2)], seed);
        let row = table.entry(what).or_default();
        *row = (row.0 + 1, row.1 + whole, row.2 + lost);
    }
    for (what, (cases, whole, lost)) in table {
        eprintln!("{what}: {cases} cases, {whole} files whole, {lost} files hit");
    }
}
