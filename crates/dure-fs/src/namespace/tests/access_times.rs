//! Access times: what a read changes, and when it reaches the medium.

use dure_store::format::inode::Time;

use super::{Disk, directory, file, fresh, get, list, options, stat};
use crate::volume::AccessTime;
use crate::{
    FileSystem, InodeRef, MountOptions, ReadMode, SetAttributes, SetTime, Stamp, SyncScope,
};

const OLD: Time = Time {
    secs: zerocopy::little_endian::I64::new(5),
    nanos: zerocopy::little_endian::U32::new(6),
};

fn mount(disk: &Disk, access_time: AccessTime, cache_bytes: u64) -> FileSystem {
    let options = MountOptions {
        access_time,
        cache_bytes,
        ..options()
    };
    FileSystem::open(disk.device.clone(), options).unwrap()
}

/// All times are long past; the access time last of them.
fn age(fs: &FileSystem, inode: &InodeRef) {
    let before = Time {
        secs: 4.into(),
        nanos: 0.into(),
    };
    let set = SetAttributes {
        atime: Some(SetTime::At(OLD)),
        mtime: Some(SetTime::At(before)),
        ctime: Some(before),
        ..SetAttributes::default()
    };
    fs.set_attributes(inode, &set).unwrap();
}

/// A file, a directory and both kinds of symbolic links, read long ago.
fn sample(fs: &FileSystem) {
    let root = fs.root().unwrap();
    let inode = fs.create(&root, b"file", &file()).unwrap();
    fs.write(&inode, 0, b"text", Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    fs.mkdir(&root, b"dir", &directory()).unwrap();
    fs.symlink(&root, b"short", b"x", &file()).unwrap();
    fs.symlink(&root, b"long", &[b'x'; 900], &file()).unwrap();
    for name in ["file", "dir", "short", "long"] {
        age(fs, &get(fs, &root, name));
    }
}

fn read(fs: &FileSystem, inode: &InodeRef) {
    let got = fs.read(inode, 0, &mut [0; 9], ReadMode::Cached).unwrap();
    assert_eq!(got, 4);
}

fn read_all(fs: &FileSystem) {
    let root = fs.root().unwrap();
    read(fs, &get(fs, &root, "file"));
    list(fs, &get(fs, &root, "dir"));
    fs.read_link(&get(fs, &root, "short")).unwrap();
    fs.read_link(&get(fs, &root, "long")).unwrap();
}

/// Of the sample: which were read since.
fn were_read(fs: &FileSystem) -> [bool; 4] {
    let root = fs.root().unwrap();
    ["file", "dir", "short", "long"].map(|name| stat(fs, &get(fs, &root, name)).atime != OLD)
}

#[test]
fn reads_survive_an_unmount() {
    let (disk, fs) = fresh();
    sample(&fs);
    assert_eq!(were_read(&fs), [false; 4]);
    drop(disk.remount(fs));
    for (access_time, noted) in [
        (AccessTime::Never, false),
        (AccessTime::Always, true),
        // Older than a day.
        (AccessTime::Relative, true),
    ] {
        let fs = mount(&disk, access_time, 64 << 20);
        read_all(&fs);
        assert_eq!(were_read(&fs), [noted; 4], "{access_time:?}, at once");
        fs.close().unwrap();
        let fs = mount(&disk, access_time, 64 << 20);
        assert_eq!(were_read(&fs), [noted; 4], "{access_time:?}, mounted again");
        let root = fs.root().unwrap();
        for name in ["file", "dir", "short", "long"] {
            age(&fs, &get(&fs, &root, name));
        }
        fs.close().unwrap();
    }
}

#[test]
fn reads_before_a_sync_survive_a_crash() {
    let (disk, fs) = fresh();
    sample(&fs);
    fs.close().unwrap();
    let fs = mount(&disk, AccessTime::Always, 64 << 20);
    read_all(&fs);
    fs.sync().unwrap();
    drop(fs);
    assert_eq!(were_read(&disk.mount()), [true; 4]);
}

#[test]
fn an_fsync_takes_the_access_time_along_and_an_fdatasync_does_not() {
    let (disk, fs) = fresh();
    sample(&fs);
    fs.close().unwrap();
    for (scope, there) in [(SyncScope::Data, false), (SyncScope::All, true)] {
        let fs = mount(&disk, AccessTime::Always, 64 << 20);
        let root = fs.root().unwrap();
        let inode = get(&fs, &root, "file");
        read(&fs, &inode);
        fs.fsync(&inode, scope).unwrap();
        std::mem::forget((inode, root));
        drop(fs);
        assert_eq!(were_read(&disk.mount())[0], there, "{scope:?}");
    }
}

/// The second one finds the writer of the first known.
#[test]
fn an_fsync_takes_a_second_access_time_along() {
    let (disk, fs) = fresh();
    sample(&fs);
    fs.close().unwrap();
    let fs = mount(&disk, AccessTime::Always, 64 << 20);
    let root = fs.root().unwrap();
    let inode = get(&fs, &root, "file");
    read(&fs, &inode);
    fs.fsync(&inode, SyncScope::All).unwrap();
    let atime = || fs.attributes(&inode).unwrap().atime;
    let first = atime();
    while atime() == first {
        read(&fs, &inode);
    }
    fs.fsync(&inode, SyncScope::All).unwrap();
    let second = atime();
    std::mem::forget((inode, root));
    drop(fs);
    let fs = disk.mount();
    let again = get(&fs, &fs.root().unwrap(), "file");
    assert_eq!(fs.attributes(&again).unwrap().atime, second);
}

#[test]
fn a_read_logs_nothing_by_itself() {
    let (disk, fs) = fresh();
    sample(&fs);
    fs.close().unwrap();
    let fs = mount(&disk, AccessTime::Always, 64 << 20);
    let before = format!("{:?}", fs.0.store.journal().cut());
    read_all(&fs);
    assert_eq!(format!("{:?}", fs.0.store.journal().cut()), before);
    fs.background_now().unwrap();
    assert_ne!(format!("{:?}", fs.0.store.journal().cut()), before);
}

/// Also: access times made nodes dirty without end, because their operations, unlike all others,
/// made no room in memory. 1,400 nodes and a checkpoint's copies of them were in a cache of 512.
#[test]
fn reads_of_more_inodes_than_fit_into_memory_are_all_kept() {
    let disk = Disk::new(1 << 15);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    const FILES: u32 = 5000;
    for n in 0..FILES {
        let link = fs.symlink(&root, format!("{n}").as_bytes(), b"target", &file());
        age(&fs, &link.unwrap());
    }
    drop(root);
    fs.close().unwrap();
    let fs = mount(&disk, AccessTime::Always, 64 << 10);
    let root = fs.root().unwrap();
    for n in 0..FILES {
        fs.read_link(&get(&fs, &root, &n.to_string())).unwrap();
        let (dirty, all) = (fs.0.store.nodes.dirty_count(), fs.0.store.nodes.nodes_max());
        assert!(dirty * 4 <= all * 3, "{dirty} of {all} nodes are dirty");
    }
    assert!(
        fs.0.inodes.cache.len() < 600,
        "{} inodes",
        fs.0.inodes.cache.len()
    );
    for n in 0..FILES {
        let atime = stat(&fs, &get(&fs, &root, &n.to_string())).atime;
        assert_ne!(atime, OLD, "inode {n} was read");
    }
    drop(root);
    drop(disk.remount(fs));
}

/// Regression: a full volume could not be unmounted when something had been read.
#[test]
fn a_full_volume_can_be_unmounted_after_reads() {
    let disk = Disk::new(2048);
    let fs = disk.mount();
    sample(&fs);
    let root = fs.root().unwrap();
    let big = fs.create(&root, b"big", &file()).unwrap();
    let mut at = 0;
    while fs.write(&big, at, &[1; 4096], Stamp::Set).is_ok() {
        at += 4096;
    }
    fs.sync().unwrap();
    let mut n = 0;
    while fs.create(&root, format!("{n}").as_bytes(), &file()).is_ok() {
        n += 1;
    }
    drop((big, root));
    read_all(&fs);
    drop(disk.remount(fs));
}
