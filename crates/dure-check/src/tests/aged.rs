//! Volumes that were used for a while, what is on them and where, and what a case destroys.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use dure_block::ram::{Image, RamDevice};
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_fs::{
    Background, FileKind, FileSystem, InodeRef, MountOptions, NewInode, ReadMode, Stamp, XattrMode,
};
use dure_store::layout::{FormatOptions, Layout};
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, Ino, to_u64, to_usize};
use dure_sync::Arc;

use crate::context::Context;
use crate::rebuild::{blocks_of, salvaged};
use crate::{CheckOptions, Report};

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

pub(super) fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

pub(super) fn mount(device: &Arc<RamDevice>) -> FileSystem {
    FileSystem::open(share(Arc::clone(device)), options()).unwrap()
}

fn new(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

/// A volume that was used for a while: files of all kinds, made, changed and deleted, with some
/// checkpoints between.
fn aged(seed: u64, journals: u32, left: Left) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("rebuild", VOLUME_BLOCKS));
    let options = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).unwrap();
    let fs = mount(&device);
    if left == Left::Kept {
        fs.switch_quotas_on().unwrap();
    }
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
        if left == Left::Kept {
            keep(&fs, &made, round);
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

/// Clones some files, which then change or go, and takes snapshots; the first is deleted again.
fn keep(fs: &FileSystem, made: &[(InodeRef, String)], round: u64) {
    for (n, (parent, name)) in made.iter().enumerate().step_by(6) {
        let file = fs.lookup(parent, name.as_bytes()).unwrap().unwrap();
        let attributes = fs.attributes(&file).unwrap();
        if attributes.kind == FileKind::File {
            let own = NewInode {
                uid: u32::try_from(n % 3).unwrap(),
                ..new(0o100_600)
            };
            let clone = [name.as_bytes(), b" cloned"].concat();
            let clone = fs.create(parent, &clone, &own).unwrap();
            let all = fs.clone_range((&file, 0), (&clone, 0), attributes.size);
            assert_eq!(all.unwrap(), attributes.size);
            fs.write(&file, 3000, b"after the clone", Stamp::Set)
                .unwrap();
        }
    }
    fs.create_snapshot(&format!("round {round}")).unwrap();
    if round == 1 {
        fs.delete_snapshot("round 0").unwrap();
    }
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
pub(super) fn files(fs: &FileSystem) -> Files {
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
fn owners(device: RamDevice) -> (Layout, BTreeMap<Ino, BTreeSet<u64>>, BTreeSet<u64>) {
    let region = Region::open(share(device));
    let layout = dure_store::read_layout(&region).unwrap();
    let options = CheckOptions::default();
    let mut context = Context::new(&options, region, layout.clone(), Report::default());
    salvaged(&mut context);
    let segments = context.log_segments.iter();
    let per_segment = u64::from(layout.segment_blocks);
    let starts = segments.map(|segment| layout.segment_start(*segment).0);
    let mut logs: BTreeSet<u64> = starts.flat_map(|at| at..at + per_segment).collect();
    for journal in 0..layout.journals {
        let at = layout.journal_header(journal);
        logs.extend(at..at + 4);
    }
    (layout, blocks_of(&mut context), logs)
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

/// How a volume was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Left {
    /// Unmounted.
    Clean,
    /// Not unmounted: a part of it is in the logs.
    Dirty,
    /// Unmounted without a free block.
    Full,
    /// Unmounted, with snapshots, clones and quotas.
    Kept,
}

/// A volume, its files, and which blocks are whose.
pub(super) struct Base {
    pub(super) image: Image,
    pub(super) layout: Layout,
    pub(super) left: Left,
    pub(super) files: Files,
    owners: BTreeMap<Ino, BTreeSet<u64>>,
    /// Files that are in no log: they were the same at the last checkpoint.
    firm: BTreeSet<Ino>,
    /// Blocks of log segments and journal headers.
    logs: BTreeSet<u64>,
    root: u64,
}

pub(super) fn base(seed: u64, journals: u32, left: Left) -> Base {
    let device = aged(seed, journals, left);
    let before = seen(&device);
    let image = match left {
        Left::Clean | Left::Kept => device.snapshot(),
        Left::Dirty => use_on(&device, seed),
        Left::Full => fill(&device),
    };
    let (layout, owners, logs) = owners(RamDevice::from_image("owners", &image));
    // To look at the files of a volume that was not unmounted changes it.
    let files = seen(&Arc::new(RamDevice::from_image("seen", &image)));
    assert!(files.len() > 400, "{} files", files.len());
    let same = |ino: &&Ino| before.get(ino) == files.get(ino);
    let firm = files.keys().filter(same).copied().collect();
    let root = *owners[&Ino::ROOT].first().unwrap();
    Base {
        image,
        layout,
        left,
        files,
        owners,
        firm,
        logs,
        root,
    }
}

fn seen(device: &Arc<RamDevice>) -> Files {
    let fs = mount(device);
    let files = files(&fs);
    fs.close().unwrap();
    files
}

/// Goes on with a volume, and leaves it in the midst of its work, with all of it in the logs.
fn use_on(device: &Arc<RamDevice>, seed: u64) -> Image {
    let fs = mount(device);
    let root = fs.root().unwrap();
    let mut draw = Draw(seed ^ 0xd1e7);
    let mut names = Vec::new();
    let mut show = |entry: &dure_fs::DirectoryEntry<'_>| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    };
    fs.read_directory(&root, 0, &mut show).unwrap();
    for name in names {
        let inode = fs.lookup(&root, &name).unwrap().unwrap();
        let kind = fs.attributes(&inode).unwrap().kind;
        match draw.below(3) {
            _ if kind != FileKind::File => {}
            0 => fs.unlink(&root, &name).unwrap(),
            1 => drop(
                fs.write(&inode, draw.below(9000), &name, Stamp::Set)
                    .unwrap(),
            ),
            _ => {}
        }
    }
    for n in 0..60 {
        age(&fs, &root, format!("later {n}").as_bytes(), &mut draw);
    }
    fs.sync().unwrap();
    let image = device.snapshot();
    fs.close().unwrap();
    image
}

/// Fills a volume up to its last block.
fn fill(device: &Arc<RamDevice>) -> Image {
    let fs = mount(device);
    let root = fs.root().unwrap();
    let file = fs.create(&root, b"filler", &new(0o100_644)).unwrap();
    let mut at = 0;
    for bytes in [1 << 20, BLOCK_BYTES] {
        while fs.write(&file, at, &vec![0xf1; bytes], Stamp::Set).is_ok() {
            at += to_u64(bytes);
        }
    }
    fs.close().unwrap();
    device.snapshot()
}

/// A volume of which a part was destroyed.
pub(super) struct Case<'b> {
    pub(super) base: &'b Base,
    pub(super) device: Arc<RamDevice>,
    pub(super) what: &'static str,
    pub(super) at: String,
    lost: Range<u64>,
}

impl<'b> Case<'b> {
    pub(super) fn new(base: &'b Base, seed: u64) -> Case<'b> {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let device = Arc::new(RamDevice::from_image("rebuild", &base.image));
        let (what, first, count) = destroyed(&mut draw, &base.layout, base.root);
        destroy(&device, &mut draw, first, count);
        let left = base.left;
        Case {
            base,
            device,
            what,
            at: format!("seed={seed} {left:?}: {what} at block {first}, {count} blocks"),
            lost: first..first + count,
        }
    }

    /// Whether a block of the inode was destroyed.
    pub(super) fn hit(&self, ino: Ino) -> bool {
        let blocks = self.base.owners.get(&ino);
        blocks.is_some_and(|blocks| blocks.range(self.lost.clone()).next().is_some())
    }

    /// Whether nothing of the logs was destroyed, or they are empty. A page that is destroyed counts
    /// as one that the power cut has kept from the medium, and takes its transaction with it, and
    /// all that depend on it, if that is since the last checkpoint.
    pub(super) fn logs_whole(&self) -> bool {
        let since = |ino: &Ino| !self.base.firm.contains(ino) && self.hit(*ino);
        if ["segment", "20 MiB"].contains(&self.what) && self.base.files.keys().any(since) {
            return self.base.left != Left::Dirty;
        }
        let header = self.base.layout.volume_header;
        let mut hit = self.base.logs.range(self.lost.clone());
        let header = header < self.lost.end && self.lost.start < header + 4;
        self.base.left != Left::Dirty || (!header && hit.next().is_none())
    }

    /// Whether the logs have it, and are destroyed: it is as at the last checkpoint.
    pub(super) fn is_older(&self, ino: Ino) -> bool {
        !self.logs_whole() && !self.base.firm.contains(&ino)
    }

    /// Whether every name is where it was.
    pub(super) fn names_whole(&self) -> bool {
        let files = self.base.files.iter();
        let mut directories = files.filter(|(_, content)| content.kind == FileKind::Directory);
        self.logs_whole() && !directories.any(|(ino, _)| self.hit(*ino)) && !self.hit(Ino::ROOT)
    }
}
