//! How many inodes `df -i` shows.

use dure_sync::Arc;
use dure_sync::atomic::{AtomicUsize, Ordering};

use super::{Disk, directory, file, fresh, get, list, options};
use crate::volume::MountOptions;
use crate::{Error, FileSystem, InodeRef};

/// Inodes in use: all less the free ones, as df computes it.
fn used(fs: &FileSystem) -> u64 {
    let statistics = fs.statistics();
    statistics.inodes - statistics.inodes_free
}

fn fill(fs: &FileSystem, root: &InodeRef, from: u32) {
    for n in from..from + 10 {
        fs.create(root, format!("file{n}").as_bytes(), &file())
            .unwrap();
    }
}

#[test]
fn inodes_in_use_are_right_at_once_after_unmount_and_after_a_crash() {
    let (disk, fs) = fresh();
    assert_eq!(used(&fs), 1, "a fresh volume has its root");
    let root = fs.root().unwrap();
    fill(&fs, &root, 0);
    fs.mkdir(&root, b"sub", &directory()).unwrap();
    fs.symlink(&root, b"short", b"x", &file()).unwrap();
    fs.symlink(&root, b"long", &[b'x'; 1000], &file()).unwrap();
    fs.link(&get(&fs, &root, "file0"), &root, b"again").unwrap();
    assert_eq!(used(&fs), 14);
    let unnamed = fs.temporary(&root, &file()).unwrap();
    assert_eq!(used(&fs), 15);
    drop(unnamed);
    fs.unlink(&root, b"file0").unwrap();
    assert_eq!(used(&fs), 14, "another name is left");
    fs.unlink(&root, b"file1").unwrap();
    fs.rmdir(&root, b"sub").unwrap();
    assert_eq!(used(&fs), 12);
    drop(root);
    let fs = disk.remount(fs);
    assert_eq!(used(&fs), 12, "after an unmount");
    let root = fs.root().unwrap();
    fill(&fs, &root, 20);
    fs.checkpoint_now().unwrap();
    fill(&fs, &root, 40);
    fs.unlink(&root, b"file20").unwrap();
    fs.sync().unwrap();
    drop((fs, root));
    let read_only = MountOptions {
        read_only: true,
        ..options()
    };
    let fs = FileSystem::open(disk.device.clone(), read_only).unwrap();
    assert_eq!(used(&fs), 31, "after a crash, without writing");
    drop(fs);
    let fs = disk.mount();
    assert_eq!(used(&fs), 31, "after a crash");
    let fs = disk.remount(fs);
    assert_eq!(used(&fs), 31, "after recovery and an unmount");
}

#[test]
fn an_orphan_of_a_crash_does_not_count_when_the_mount_has_freed_it() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let unnamed = fs.temporary(&root, &file()).unwrap();
    fs.sync().unwrap();
    assert_eq!(used(&fs), 2);
    // Forgotten, not dropped: a process that is killed does not delete its files.
    std::mem::forget((unnamed, root));
    drop(fs);
    assert_eq!(used(&disk.mount()), 1);
}

/// Whoever waits for room waits for these.
#[test]
fn inodes_in_memory_without_a_name_are_counted_until_they_are_gone() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    fill(&fs, &root, 0);
    let (open, again) = (get(&fs, &root, "file0"), get(&fs, &root, "file0"));
    assert_eq!(fs.nameless_inodes(), 0, "it has a name");
    fs.unlink(&root, b"file0").unwrap();
    fs.unlink(&root, b"file1").unwrap();
    assert_eq!(fs.nameless_inodes(), 1, "nobody has file1 open");
    drop(open);
    assert_eq!(fs.nameless_inodes(), 1, "somebody else has it open");
    drop(again);
    assert_eq!(fs.nameless_inodes(), 0, "it is deleted");
    let unnamed = fs.temporary(&root, &file()).unwrap();
    assert_eq!(fs.nameless_inodes(), 1, "a temporary file");
    fs.link(&unnamed, &root, b"named").unwrap();
    assert_eq!(fs.nameless_inodes(), 0, "it has got a name");
    let sub = fs.mkdir(&root, b"sub", &directory()).unwrap();
    fs.rmdir(&root, b"sub").unwrap();
    assert_eq!(fs.nameless_inodes(), 1, "a directory that is in use");
    fs.sync().unwrap();
    // Forgotten, not dropped: a process that is killed does not delete its files.
    std::mem::forget((unnamed, sub, root));
    drop(fs);
    assert_eq!(disk.mount().nameless_inodes(), 0, "the mount has freed it");
}

/// Files until the volume has no more; their number.
fn fill_up(fs: &FileSystem, directory: &InodeRef) -> u64 {
    for n in 0.. {
        match fs.create(directory, format!("{n}").as_bytes(), &file()) {
            Ok(_) => (),
            Err(Error::NoSpace { what }) => {
                assert_eq!(what, "node ids");
                return n;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a volume is finite");
}

/// A core whose partition had no node ids left looked for free inodes in those of all others, and
/// the whole NAT came into memory: 14 MiB of a volume of 6 GiB, 2 GiB of one of 1 TiB.
#[test]
fn a_core_without_node_ids_keeps_no_more_of_the_nat_than_it_uses() {
    let disk = Disk::with_journals(1 << 16, 8);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    // A partition has eight pairs. Inodes and buckets of names take ten or so.
    let (pairs, files) = (fs.0.store.layout.nat_pairs, 252 * 8 * 9);
    assert!(pairs > 60, "{pairs} pairs");
    for n in 0..files {
        fs.create(&root, format!("{n}").as_bytes(), &file())
            .unwrap();
    }
    let kept = fs.0.store.nat.pairs_in_memory();
    assert!(kept > 8, "{kept} pairs: it had node ids");
    assert!(kept < 16, "{kept} of {pairs} pairs are in memory");
}

/// Node ids belong to partitions. One core used up those of its own, and then made a node for each
/// file, because the other numbers of the node went to the partition of its id.
#[test]
fn one_core_can_use_all_inodes_again_and_again() {
    let disk = Disk::with_journals(1 << 14, 4);
    let mount = || {
        // Where the scheduler puts this thread must not matter.
        let mut one_core = options();
        one_core.core = Some(Arc::new(AtomicUsize::new(0)));
        FileSystem::open(disk.device.clone(), one_core).unwrap()
    };
    let mut fs = mount();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let root = fs.root().unwrap();
        let directory = get_or_make(&fs, &root);
        // Of 4096 node ids some are of buckets; a node of inodes stays one.
        let count = fill_up(&fs, &directory);
        assert!(count > 20_000, "{count} files, after {counts:?}");
        counts.push(count);
        for name in list(&fs, &directory) {
            fs.unlink(&directory, &name).unwrap();
        }
        fs.checkpoint_now().unwrap();
        drop((root, directory));
        fs.close().unwrap();
        drop(fs);
        disk.check();
        fs = mount();
    }
}

/// Who frees inodes of another partition keeps some of their numbers for a while: they are not lost
/// to it.
#[test]
fn numbers_that_another_core_frees_are_used_again() {
    let disk = Disk::with_journals(1 << 14, 2);
    let core = Arc::new(AtomicUsize::new(1));
    let mut options = options();
    options.core = Some(core.clone());
    let fs = FileSystem::open(disk.device.clone(), options).unwrap();
    let root = fs.root().unwrap();
    let directory = get_or_make(&fs, &root);
    let make = |count: u32| {
        for n in 0..count {
            let name = format!("file{n}");
            fs.create(&directory, name.as_bytes(), &file()).unwrap();
        }
    };
    make(200);
    let numbers = |fs: &FileSystem| {
        let names = list(fs, &directory).into_iter();
        let mut numbers: Vec<_> = names
            .map(|name| fs.lookup(&directory, &name).unwrap().unwrap().ino())
            .collect();
        numbers.sort_unstable();
        numbers
    };
    let first = numbers(&fs);
    core.store(0, Ordering::Relaxed);
    for name in list(&fs, &directory) {
        fs.unlink(&directory, &name).unwrap();
    }
    core.store(1, Ordering::Relaxed);
    make(200);
    let again = numbers(&fs);
    let same = again.iter().filter(|ino| first.contains(ino)).count();
    // All but the few that core 0 keeps.
    assert!(same >= 200 - 64, "{same} numbers were used again");
    drop((directory, root));
    fs.close().unwrap();
    drop(fs);
    disk.check();
}

fn get_or_make(fs: &FileSystem, root: &InodeRef) -> InodeRef {
    match fs.lookup(root, b"many").unwrap() {
        Some(directory) => directory,
        None => fs.mkdir(root, b"many", &directory()).unwrap(),
    }
}

/// Each inode in memory keeps its node there. Inodes that are loaded in no order kept a node each:
/// four times as many as the node cache has room for.
#[test]
fn inodes_in_memory_keep_few_nodes_there() {
    let disk = Disk::with_journals(1 << 16, 16);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let files = 8 * 1500;
    for n in 0..files {
        fs.create(&root, format!("{n}").as_bytes(), &file())
            .unwrap();
    }
    drop(root);
    fs.close().unwrap();
    drop(fs);
    let small = MountOptions {
        cache_bytes: 1 << 20,
        ..options()
    };
    let fs = FileSystem::open(disk.device.clone(), small).unwrap();
    let root = fs.root().unwrap();
    // One inode of each node.
    for n in (0..files).step_by(8) {
        get(&fs, &root, &n.to_string());
    }
    let (kept, room) = (
        fs.0.store.nodes.in_memory().len(),
        fs.0.store.nodes.nodes_max(),
    );
    assert!(kept <= room * 5 / 4, "{kept} nodes where {room} have room");
}
