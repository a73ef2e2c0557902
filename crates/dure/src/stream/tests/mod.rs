//! Streams of volumes in memory.

mod faults;
mod half;
mod hostile;
mod killed;
mod moved;
mod projects;
mod random;
mod restored;
mod whole;
#[path = "../../../../dure-fs/tests/it/workload.rs"]
mod workload;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_check::{CheckOptions, Data};
use dure_fs::format::name::FileKind;
use dure_fs::units::Ino;
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, ReadMode, SeekTarget,
};
use dure_sync::Arc;

use super::receive::{How, receive_as};
use super::state::STATE;
use super::{Progress, Received, receive, send};
use crate::Volume;

fn go(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        recovery_threads: Some(1),
        cache_bytes: 16 << 20,
        ..MountOptions::default()
    }
}

/// A volume and the memory that it is in.
struct Disk {
    ram: Arc<RamDevice>,
    volume: Volume,
}

impl Disk {
    fn new(blocks: u64) -> Disk {
        let ram = Arc::new(RamDevice::new("volume", blocks));
        let format = FormatOptions {
            journals: Some(2),
            segment_blocks: Some(32),
            ..FormatOptions::default()
        };
        FileSystem::format(share(ram.clone()), &format).unwrap();
        Disk::open(ram)
    }

    fn open(ram: Arc<RamDevice>) -> Disk {
        let volume = Volume::open_on(share(ram.clone()), options()).unwrap();
        Disk { ram, volume }
    }

    /// The volume after its process was killed.
    fn killed(&self) -> Disk {
        let image = self.ram.snapshot();
        Disk::open(Arc::new(RamDevice::from_image("volume", &image)))
    }

    /// The volume, unmounted and mounted again.
    fn remounted(self) -> Disk {
        self.volume.close().unwrap();
        Disk::open(self.ram)
    }

    fn fs(&self) -> &FileSystem {
        self.volume.file_system()
    }

    fn take(&self, name: &str) -> Content {
        self.volume.create_snapshot(name).unwrap();
        content(self.fs())
    }

    fn stream(&self, name: &str, from: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        let sent = send(&self.volume, name, from, &mut out, &mut go).unwrap();
        assert_eq!(sent.bytes, out.len() as u64);
        out
    }

    fn receive(&self, mut stream: &[u8]) -> crate::Result<Received> {
        let received = receive(&self.volume, None, &mut stream, &mut go);
        assert!(received.is_err() || stream.is_empty(), "all was read");
        received
    }

    fn receive_as(&self, how: How, mut stream: &[u8]) -> crate::Result<Received> {
        receive_as(how, (&self.volume, None), &mut stream, &mut go)
    }

    /// What a snapshot shows.
    fn past(&self, name: &str) -> Content {
        content(&self.fs().open_snapshot(name, options()).unwrap())
    }

    fn expect_sound(&self) {
        let options = CheckOptions {
            data: Data::Verify,
            ..CheckOptions::default()
        };
        self.volume.sync().unwrap();
        let copy = self.killed();
        copy.volume.close().unwrap();
        let report = dure_check::check(share(copy.ram.clone()), &options).unwrap();
        assert_eq!(report.issues(), []);
    }
}

/// Everything that a stream has, by path.
type Content = BTreeMap<Vec<u8>, String>;

fn content(fs: &FileSystem) -> Content {
    let mut content = Content::new();
    let mut first: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
    let root = fs.root_name().unwrap();
    let inode = fs.root().unwrap();
    content.insert(Vec::new(), shown(fs, &inode, ""));
    let mut left = vec![root];
    while let Some(directory) = left.pop() {
        for named in fs.names(&directory).unwrap().into_values() {
            let inode = fs.inode(named.attributes.ino).unwrap();
            let known = first.entry(inode.ino()).or_insert(named.path.clone());
            let same = String::from_utf8_lossy(known).into_owned();
            content.insert(named.path.clone(), shown(fs, &inode, &same));
            if named.is_directory() {
                left.push(named);
            }
        }
    }
    content
}

fn shown(fs: &FileSystem, inode: &InodeRef, same: &str) -> String {
    let found = fs.attributes(inode).unwrap();
    let mut xattrs = Vec::new();
    for name in fs.list_xattr(inode).unwrap() {
        if name != STATE {
            let value = fs.get_xattr(inode, &name).unwrap().unwrap();
            xattrs.push((String::from_utf8_lossy(&name).into_owned(), sum(&value)));
        }
    }
    xattrs.sort();
    let (held, size) = match inode.kind() {
        FileKind::File => (data(fs, inode), found.size),
        FileKind::Symlink => (format!("{:x}", sum(&fs.read_link(inode).unwrap())), 0),
        _ => (String::new(), 0),
    };
    format!(
        "{:o} {} {}:{}:{} {} {size} {:?} {same} {xattrs:?} {held}",
        found.mode,
        found.nlink,
        found.uid,
        found.gid,
        fs.project(inode),
        found.rdev,
        found.mtime
    )
}

/// Where data is, and its sum.
fn data(fs: &FileSystem, inode: &InodeRef) -> String {
    let (mut ranges, mut at) = (Vec::new(), 0);
    let size = fs.size(inode).unwrap();
    while let Some(start) = fs.seek(inode, at, SeekTarget::Data).unwrap() {
        let end = fs.seek(inode, start, SeekTarget::Hole).unwrap();
        let end = end.unwrap_or(size);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        let read = fs.read(inode, start, &mut bytes, ReadMode::Bypass);
        assert_eq!(read.unwrap(), bytes.len());
        ranges.push((start, end, sum(&bytes)));
        at = end;
    }
    format!("{ranges:x?}")
}

fn sum(bytes: &[u8]) -> u32 {
    dure_block::crc32c::crc32c(bytes)
}

/// The trees are the same; says what is not.
fn expect_same(was: &Content, is: &Content) {
    for (path, shown) in was {
        let path_shown = String::from_utf8_lossy(path);
        assert_eq!(is.get(path), Some(shown), "{path_shown}");
    }
    let more: Vec<_> = is.keys().filter(|path| !was.contains_key(*path)).collect();
    assert!(more.is_empty(), "{more:?}");
}
