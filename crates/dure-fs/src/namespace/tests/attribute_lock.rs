//! Attributes and names of a file change while its data is in use (`inode::attribute_lock`): what
//! stat shows, and that nothing is lost on the way.

use std::time::Duration;

use dure_sync::thread;

use super::*;
use crate::{Error, RenameMode, SetAttributes, SyncScope};

/// A volume with one file of two pages, `f`.
fn with_file() -> (Disk, FileSystem, InodeRef, InodeRef) {
    let disk = Disk::new(1 << 14);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"f", &file()).unwrap();
    fs.write(&made, 0, &[1; 8192], crate::Stamp::Set).unwrap();
    (disk, fs, root, made)
}

#[test]
fn attributes_and_names_change_while_the_state_is_held() {
    let (disk, fs, root, made) = with_file();
    thread::scope(|scope| {
        let used = made.inode().state().read();
        let changes = scope.spawn(|| {
            fs.link(&made, &root, b"g").unwrap();
            fs.rename(&root, b"g", &root, b"h", RenameMode::Replace)
                .unwrap();
            fs.unlink(&root, b"f").unwrap();
            let set = SetAttributes {
                mode: Some(0o400),
                ..SetAttributes::default()
            };
            fs.change_attributes(&made, &set).unwrap();
            fs.set_xattr(&made, b"user.a", b"value", crate::XattrMode::Any)
                .unwrap();
        });
        changes.join().unwrap();
        drop(used);
    });
    let seen = stat(&fs, &made);
    assert_eq!((seen.nlink, seen.mode & 0o777), (1, 0o400));
    fs.fsync(&made, SyncScope::All).unwrap();
    drop((made, root));
    let fs = disk.remount(fs);
    let made = get(&fs, &fs.root().unwrap(), "h");
    let seen = stat(&fs, &made);
    assert_eq!((seen.nlink, seen.mode & 0o777), (1, 0o400));
    let value = fs.get_xattr(&made, b"user.a").unwrap();
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
}

#[test]
fn names_are_counted() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 2);
    // Twice: the second one shows it without a lock.
    assert_eq!(stat(&fs, &made).nlink, 2);
    fs.link(&made, &root, b"h").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 3);
    fs.unlink(&root, b"f").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 2);
    assert_eq!(errno(fs.link(&made, &root, b"g")), libc::EEXIST);
    assert_eq!(stat(&fs, &made).nlink, 2, "a link that failed counts none");
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    assert_eq!(stat(&fs, &get(&fs, &root, "h")).nlink, 2);
}

#[test]
fn a_rename_shows_its_time_and_keeps_others() {
    let (_disk, fs, root, made) = with_file();
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
}

#[test]
fn a_rename_takes_one_of_several_names() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    let other = fs.create(&root, b"other", &file()).unwrap();
    fs.rename(&root, b"other", &root, b"g", RenameMode::Replace)
        .unwrap();
    assert_eq!(stat(&fs, &made).nlink, 1);
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
fn a_last_name_goes_while_the_file_is_open() {
    let (disk, fs, root, made) = with_file();
    let inodes = fs.0.inodes.counters.used.sum();
    fs.link(&made, &root, b"g").unwrap();
    fs.unlink(&root, b"g").unwrap();
    fs.unlink(&root, b"f").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 0);
    let again = fs.link(&made, &root, b"h");
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    fs.write(&made, 4096, &[2; 8192], crate::Stamp::Set)
        .unwrap();
    fs.fsync(&made, SyncScope::All).unwrap();
    let mut read = [0; 8192];
    fs.read(&made, 4096, &mut read, crate::ReadMode::Cached)
        .unwrap();
    assert_eq!(read, [2; 8192]);
    assert_eq!(fs.0.inodes.counters.used.sum(), inodes);
    drop(made);
    assert_eq!(
        fs.0.inodes.counters.used.sum(),
        inodes - 1,
        "it was deleted"
    );
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn a_rename_over_an_open_file_takes_its_last_name() {
    let (disk, fs, root, made) = with_file();
    fs.link(&made, &root, b"g").unwrap();
    fs.unlink(&root, b"g").unwrap();
    let other = fs.create(&root, b"other", &file()).unwrap();
    fs.rename(&root, b"other", &root, b"f", RenameMode::Replace)
        .unwrap();
    assert_eq!(stat(&fs, &made).nlink, 0);
    assert_eq!(stat(&fs, &other).nlink, 1);
    drop((made, other, root));
    drop(disk.remount(fs));
}

#[test]
fn a_first_name_comes() {
    let (disk, fs, root, _) = with_file();
    let made = fs.temporary(&root, &file()).unwrap();
    fs.write(&made, 0, b"data", crate::Stamp::Set).unwrap();
    fs.set_attributes(
        &made,
        &SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        },
    )
    .unwrap();
    fs.link(&made, &root, b"t").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 1);
    fs.link(&made, &root, b"u").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 2);
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    let made = get(&fs, &root, "u");
    assert_eq!((stat(&fs, &made).nlink, stat(&fs, &made).size), (2, 4));
}
