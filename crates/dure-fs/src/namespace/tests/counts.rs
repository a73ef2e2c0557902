//! How many inodes `df -i` shows.

use super::{directory, file, fresh, get, options};
use crate::volume::MountOptions;
use crate::{FileSystem, InodeRef};

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
