//! Random calls on a volume, with increments in between, to a receiver that is cut and killed.

use std::io::{self, BufReader, Read};

use dure_fs::format::inode::Time;
use dure_fs::{NewInode, RenameMode, SetAttributes, SetTime, Stamp};
use dure_sync::random::Seeded;

use super::*;

/// All paths.
fn paths(fs: &FileSystem) -> Vec<(InodeRef, Vec<u8>, InodeRef)> {
    let mut found = Vec::new();
    let mut left = vec![fs.root_name().unwrap()];
    while let Some(directory) = left.pop() {
        let above = fs.inode(directory.attributes.ino).unwrap();
        for named in fs.names(&directory).unwrap().into_values() {
            let inode = fs.inode(named.attributes.ino).unwrap();
            found.push((above.clone(), named.name.clone(), inode));
            if named.is_directory() {
                left.push(named);
            }
        }
    }
    found
}

fn below(random: &mut Seeded, end: u64) -> u32 {
    u32::try_from(random.below(end)).unwrap()
}

/// Calls that the workload of the file system does not have: other bytes, owners and times, and names
/// that change places all over the tree.
pub(super) fn step(fs: &FileSystem, random: &mut Seeded) {
    if random.below(5) > 0 {
        drop(super::workload::step(fs, random));
        return;
    }
    let all = paths(fs);
    if all.is_empty() {
        return;
    }
    let mut pick = || all[usize::try_from(random.below(all.len() as u64)).unwrap()].clone();
    let (one, other) = (pick(), pick());
    match random.below(8) {
        6 => {
            let goes_on = &mut |_| ControlFlow::Continue(());
            drop(fs.set_project(&one.2, below(random, 3), goes_on));
        }
        0 => {
            let len = usize::try_from(random.below(20_000)).unwrap();
            let bytes: Vec<u8> = (0..len)
                .map(|_| random.below(256).to_le_bytes()[0])
                .collect();
            drop(fs.write(&one.2, random.below(60_000), &bytes, Stamp::Keep));
        }
        1 => {
            let time = Time {
                secs: (random.below(1 << 40).cast_signed() - (1 << 39)).into(),
                nanos: below(random, 1_000_000_000).into(),
            };
            let set = SetAttributes {
                mode: (one.2.kind() != FileKind::Symlink).then_some(below(random, 0o10000)),
                uid: Some(below(random, 9)),
                gid: Some(below(random, 9)),
                mtime: Some(SetTime::At(time)),
                ..SetAttributes::default()
            };
            fs.change_attributes(&one.2, &set).unwrap();
        }
        2 => {
            let (from, to) = ((&one.0, &one.1), (&other.0, &other.1));
            drop(fs.rename(from.0, from.1, to.0, to.1, RenameMode::Exchange));
        }
        3 => {
            let to = format!("moved{}", random.below(5));
            let into = match other.2.kind() {
                FileKind::Directory => &other.2,
                _ => &other.0,
            };
            drop(fs.rename(&one.0, &one.1, into, to.as_bytes(), RenameMode::Replace));
        }
        4 => {
            let name = format!("link{}", random.below(5));
            drop(fs.link(&one.2, &other.0, name.as_bytes()));
        }
        _ => {
            let new = NewInode {
                mode: 0o020_600,
                rdev: random.below(1 << 20),
                ..NewInode::default()
            };
            drop(fs.create(&other.0, b"device", &new));
        }
    }
}

/// Ends after some bytes.
struct Cut<'s> {
    stream: &'s [u8],
    left: usize,
}

impl Read for Cut<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let some = out.len().min(self.left).min(self.stream.len());
        let count = self.stream.split_off(..some).unwrap();
        out[..some].copy_from_slice(count);
        self.left -= some;
        Ok(some)
    }
}

/// Receives a stream that is cut several times; after some of these the receiver is killed.
fn receive_in_parts(mut copy: Disk, stream: &[u8], random: &mut Seeded) -> Disk {
    let how = How {
        sync_bytes: 1 + random.below(stream.len() as u64),
        ..How::default()
    };
    for _ in 0..random.below(5) {
        let left = usize::try_from(random.below(stream.len() as u64)).unwrap();
        let mut cut = BufReader::with_capacity(100, Cut { stream, left });
        let cut = receive_as(how, (&copy.volume, None), &mut cut, &mut go);
        cut.unwrap_err();
        copy = match random.below(3) {
            0 => copy,
            1 => {
                copy.volume.sync().unwrap();
                copy.killed()
            }
            _ => copy.killed(),
        };
    }
    copy.receive_as(how, stream).unwrap();
    copy
}

#[test]
fn increments_lead_to_the_same_tree_whatever_cuts_them() {
    for seed in 0..20 {
        let mut random = Seeded::new(seed);
        let disk = Disk::new(8192);
        let mut copy = Disk::new(12_288);
        let mut last = None;
        for round in 0..5 {
            for _ in 0..random.below(250) {
                step(disk.fs(), &mut random);
            }
            let name = format!("s{round}");
            let then = disk.take(&name);
            if last.is_some() && random.below(4) == 0 {
                // The next increment is of more.
                continue;
            }
            let stream = disk.stream(&name, last.as_deref());
            copy = receive_in_parts(copy, &stream, &mut random);
            expect_same(&then, &content(copy.fs()));
            expect_same(&then, &copy.past(&name));
            last = Some(name);
        }
        copy.expect_sound();
    }
}
