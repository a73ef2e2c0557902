//! Names come, go and move beside the file's data (`inode::beside`): what stat shows, what the
//! state lacks until somebody has it alone, and that nothing is lost on the way.

use std::time::Duration;

use dure_sync::thread;

use super::*;
use crate::{AttributeRule, Error, RenameMode, SyncScope};

fn mount(disk: &Disk) -> FileSystem {
    let mut options = options();
    options.volume_rules.attributes = AttributeRule::AtOnce;
    FileSystem::open(disk.device.clone(), options).unwrap()
}

/// A volume on which all attributes change beside data, with one file of two pages, `f`.
fn with_file() -> (Disk, FileSystem, InodeRef, InodeRef) {
    let disk = Disk::new(1 << 14);
    let fs = mount(&disk);
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"f", &file()).unwrap();
    fs.write(&made, 0, &[1; 8192], crate::Stamp::Set).unwrap();
    (disk, fs, root, made)
}

/// Names in the state, which may lag behind.
fn held(inode: &InodeRef) -> u32 {
    inode.inode().state.read().record.nlink.get()
}

#[test]
fn names_are_counted_beside_the_state() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    let shared = made.inode().state.read();
    assert_eq!(shared.record.nlink.get(), 1, "it changed beside");
    drop(shared);
    assert_eq!(stat(&fs, &made).nlink, 2);
    fs.link(&made, &root, b"h").unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 3));
    // Twice: the second one shows it without a lock.
    assert_eq!(stat(&fs, &made).nlink, 3);
    fs.unlink(&root, b"f").unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 2));
    assert_eq!(errno(fs.link(&made, &root, b"g")), 17);
    assert_eq!(stat(&fs, &made).nlink, 2, "a link that failed counts none");
    drop(made.inode().state.write());
    assert_eq!((held(&made), stat(&fs, &made).nlink), (2, 2));
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    assert_eq!(stat(&fs, &get(&fs, &root, "h")).nlink, 2);
}

#[test]
fn a_rename_beside_data_shows_its_time_and_keeps_others() {
    let (_disk, fs, root, made) = with_file();
    // The first one makes the place beside the state, and has the inode alone no more.
    fs.link(&made, &root, b"g").unwrap();
    let before = stat(&fs, &made);
    // A tick of the clock.
    thread::sleep(Duration::from_millis(20));
    let (from, to) = (&b"g"[..], &b"h"[..]);
    fs.rename(&root, from, &root, to, RenameMode::Replace)
        .unwrap();
    let after = stat(&fs, &made);
    assert_ne!(before.ctime, after.ctime);
    assert_eq!((after.nlink, after.mtime), (2, before.mtime));
    let known = made.inode().state.read().record.ctime;
    assert_ne!(known, after.ctime, "the state did not know");
    drop(made.inode().state.write());
    assert_eq!(stat(&fs, &made), after, "nor does it show when it knows");
}

#[test]
fn a_rename_takes_one_of_several_names_beside_data() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    let other = fs.create(&root, b"other", &file()).unwrap();
    fs.rename(&root, b"other", &root, b"g", RenameMode::Replace)
        .unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 1));
    fs.link(&made, &root, b"h").unwrap();
    fs.rename(&root, b"h", &root, b"g", RenameMode::Exchange)
        .unwrap();
    let links = [&made, &other].map(|inode| stat(&fs, inode).nlink);
    assert_eq!(links, [2, 1]);
    assert_eq!(get(&fs, &root, "g").ino(), made.ino());
    assert_eq!(get(&fs, &root, "h").ino(), other.ino());
    drop((made, other, root));
    drop(disk.remount(fs));
}

#[test]
fn a_last_name_goes_beside_the_data_of_an_open_file() {
    let (disk, fs, root, made) = with_file();
    let inodes = fs.0.counters.inodes.sum();
    fs.link(&made, &root, b"g").unwrap();
    fs.unlink(&root, b"g").unwrap();
    fs.unlink(&root, b"f").unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 0));
    let again = fs.link(&made, &root, b"h");
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    fs.write(&made, 4096, &[2; 8192], crate::Stamp::Set)
        .unwrap();
    fs.fsync(&made, SyncScope::All).unwrap();
    let mut read = [0; 8192];
    fs.read(&made, 4096, &mut read, crate::ReadMode::Cached)
        .unwrap();
    assert_eq!(read, [2; 8192]);
    assert_eq!(fs.0.counters.inodes.sum(), inodes);
    drop(made);
    assert_eq!(fs.0.counters.inodes.sum(), inodes - 1, "it was deleted");
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn a_rename_over_an_open_file_takes_its_last_name_beside_its_data() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    fs.unlink(&root, b"g").unwrap();
    let other = fs.create(&root, b"other", &file()).unwrap();
    fs.rename(&root, b"other", &root, b"f", RenameMode::Replace)
        .unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 0));
    assert_eq!(stat(&fs, &other).nlink, 1);
    drop((made, other, root));
    drop(disk.remount(fs));
}

#[test]
fn a_first_name_comes_alone() {
    let (disk, fs, root, _) = with_file();
    let made = fs.temporary(&root, &file()).unwrap();
    fs.write(&made, 0, b"data", crate::Stamp::Set).unwrap();
    fs.set_attributes(
        &made,
        &crate::SetAttributes {
            mode: Some(0o600),
            ..crate::SetAttributes::default()
        },
    )
    .unwrap();
    fs.link(&made, &root, b"t").unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 1));
    fs.link(&made, &root, b"u").unwrap();
    assert_eq!((held(&made), stat(&fs, &made).nlink), (1, 2));
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    let made = get(&fs, &root, "u");
    assert_eq!((stat(&fs, &made).nlink, stat(&fs, &made).size), (2, 4));
}
