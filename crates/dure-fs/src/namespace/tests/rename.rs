//! Renames.

use super::*;
use crate::RenameMode::{Exchange, NoReplace, Replace};

#[test]
fn names_move_within_and_between_directories() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    fs.rename(&root, b"a", &root, b"b", Replace).unwrap();
    assert_eq!(list(&fs, &root), [b"b".to_vec(), b"d".to_vec()]);
    fs.rename(&root, b"b", &dir, b"c", NoReplace).unwrap();
    assert_eq!(get(&fs, &dir, "c").ino(), made.ino());
    assert_eq!(list(&fs, &root), [b"d".to_vec()]);
    assert_eq!(
        errno(fs.rename(&root, b"b", &dir, b"x", Replace)),
        libc::ENOENT
    );
    drop((dir, made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    assert_eq!(list(&fs, &get(&fs, &root, "d")), [b"c".to_vec()]);
}

#[test]
fn replacing_takes_the_name_from_its_inode() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let a = fs.create(&root, b"a", &file()).unwrap();
    let b = fs.create(&root, b"b", &file()).unwrap();
    fs.link(&b, &root, b"b2").unwrap();
    assert_eq!(
        errno(fs.rename(&root, b"a", &root, b"b", NoReplace)),
        libc::EEXIST
    );
    fs.rename(&root, b"a", &root, b"b", Replace).unwrap();
    assert_eq!(get(&fs, &root, "b").ino(), a.ino());
    assert_eq!(stat(&fs, &b).nlink, 1);
    fs.rename(&root, b"b", &root, b"b2", Replace).unwrap();
    assert_eq!(stat(&fs, &b).nlink, 0);
    let ino = b.ino();
    drop(b);
    assert_eq!(errno(fs.inode(ino)), libc::ENOENT);
    fs.link(&a, &root, b"same").unwrap();
    fs.rename(&root, b"b2", &root, b"same", Replace).unwrap();
    assert_eq!(list(&fs, &root).len(), 2, "two names of one inode stay");
    drop((a, root));
    drop(disk.remount(fs));
}

#[test]
fn directories_replace_only_empty_directories() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let a = fs.mkdir(&root, b"a", &directory()).unwrap();
    let b = fs.mkdir(&root, b"b", &directory()).unwrap();
    fs.create(&root, b"f", &file()).unwrap();
    fs.create(&b, b"inner", &file()).unwrap();
    assert_eq!(
        errno(fs.rename(&root, b"a", &root, b"b", Replace)),
        libc::ENOTEMPTY
    );
    assert_eq!(
        errno(fs.rename(&root, b"a", &root, b"f", Replace)),
        libc::ENOTDIR
    );
    assert_eq!(
        errno(fs.rename(&root, b"f", &root, b"a", Replace)),
        libc::EISDIR
    );
    fs.unlink(&b, b"inner").unwrap();
    fs.create(&a, b"mine", &file()).unwrap();
    assert_eq!(stat(&fs, &root).nlink, 4);
    fs.rename(&root, b"a", &root, b"b", Replace).unwrap();
    assert_eq!(stat(&fs, &root).nlink, 3);
    assert_eq!(list(&fs, &get(&fs, &root, "b")), [b"mine".to_vec()]);
    assert_eq!(
        errno(fs.create(&b, b"x", &file())),
        libc::ENOENT,
        "the replaced one is gone"
    );
    drop((a, b, root));
    drop(disk.remount(fs));
}

#[test]
fn a_directory_does_not_go_below_itself() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let a = fs.mkdir(&root, b"a", &directory()).unwrap();
    let b = fs.mkdir(&a, b"b", &directory()).unwrap();
    let c = fs.mkdir(&b, b"c", &directory()).unwrap();
    assert!(matches!(
        fs.rename(&root, b"a", &c, b"x", Replace),
        Err(crate::Error::Loop)
    ));
    assert!(matches!(
        fs.rename(&root, b"a", &a, b"x", Replace),
        Err(crate::Error::Loop)
    ));
    fs.mkdir(&root, b"z", &directory()).unwrap();
    let loops = fs.rename(&root, b"a", &b, b"c", Exchange);
    assert!(matches!(loops, Err(crate::Error::Loop)));
    assert_eq!(
        errno(fs.rename(&b, b"c", &root, b"a", Replace)),
        libc::ENOTEMPTY
    );
    fs.rename(&b, b"c", &root, b"c", Replace).unwrap();
    assert_eq!(fs.parent(&c).unwrap(), root.ino());
    fs.rename(&root, b"a", &c, b"a", Replace).unwrap();
    assert_eq!((stat(&fs, &root).nlink, stat(&fs, &c).nlink), (4, 3));
    drop((a, b, c, root));
    drop(disk.remount(fs));
}

#[test]
fn exchange_swaps_anything() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let d = fs.mkdir(&root, b"d", &directory()).unwrap();
    let e = fs.mkdir(&d, b"e", &directory()).unwrap();
    let f = fs.create(&root, b"f", &file()).unwrap();
    assert_eq!(
        errno(fs.rename(&root, b"f", &root, b"none", Exchange)),
        libc::ENOENT
    );
    fs.rename(&root, b"f", &d, b"e", Exchange).unwrap();
    assert_eq!(get(&fs, &d, "e").ino(), f.ino());
    assert_eq!(get(&fs, &root, "f").ino(), e.ino());
    assert_eq!(fs.parent(&e).unwrap(), root.ino());
    assert_eq!((stat(&fs, &root).nlink, stat(&fs, &d).nlink), (4, 2));
    fs.rename(&root, b"f", &root, b"d", Exchange).unwrap();
    assert_eq!(get(&fs, &root, "d").ino(), e.ino());
    drop((d, e, f, root));
    drop(disk.remount(fs));
}

/// A name that the dentry cache does not know is taken for a free one at first.
#[test]
fn names_that_are_not_cached_are_seen_all_the_same() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let long = |first: u8| [&[first], &[b'-'; 80][..]].concat();
    let a = fs.create(&root, &long(b'a'), &file()).unwrap();
    let b = fs.create(&root, &long(b'b'), &file()).unwrap();
    fs.mkdir(&root, &long(b'd'), &directory()).unwrap();
    assert_eq!(
        errno(fs.rename(&root, &long(b'a'), &root, &long(b'b'), NoReplace)),
        libc::EEXIST
    );
    assert_eq!(
        errno(fs.rename(&root, &long(b'a'), &root, &long(b'd'), Replace)),
        libc::EISDIR
    );
    fs.link(&a, &root, &long(b'l')).unwrap();
    fs.rename(&root, &long(b'a'), &root, &long(b'l'), Replace)
        .unwrap();
    assert_eq!(list(&fs, &root).len(), 4, "two names of one inode stay");
    fs.rename(&root, &long(b'a'), &root, &long(b'b'), Replace)
        .unwrap();
    assert_eq!(stat(&fs, &b).nlink, 0);
    assert_eq!(
        fs.lookup(&root, &long(b'b')).unwrap().unwrap().ino(),
        a.ino()
    );
    drop((a, b, root));
    drop(disk.remount(fs));
}

/// What overlayfs leaves where a name was.
fn whiteout() -> NewInode {
    NewInode {
        mode: libc::S_IFCHR,
        ..NewInode::default()
    }
}

#[test]
fn a_rename_can_leave_a_new_inode_under_the_old_name() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let moved = fs.create(&root, b"a", &file()).unwrap();
    let inodes = fs.statistics().inodes_free;
    fs.rename_leaving((&root, b"a"), (&dir, b"b"), NoReplace, &whiteout())
        .unwrap();
    assert_eq!(get(&fs, &dir, "b").ino(), moved.ino());
    let left = get(&fs, &root, "a");
    assert_eq!(left.kind(), FileKind::CharacterDevice);
    assert_eq!((stat(&fs, &left).nlink, stat(&fs, &left).rdev), (1, 0));
    assert_eq!(fs.statistics().inodes_free, inodes - 1);
    // Over a name, within a directory, and a directory: its parent counts one less.
    fs.create(&dir, b"c", &file()).unwrap();
    fs.rename_leaving((&dir, b"b"), (&dir, b"c"), Replace, &whiteout())
        .unwrap();
    assert_eq!(get(&fs, &dir, "c").ino(), moved.ino());
    assert_eq!(list(&fs, &dir), [b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(stat(&fs, &root).nlink, 3);
    fs.mkdir(&root, b"e", &directory()).unwrap();
    fs.rename_leaving((&root, b"d"), (&root, b"e"), Replace, &whiteout())
        .unwrap();
    assert_eq!(stat(&fs, &root).nlink, 3);
    assert_eq!(get(&fs, &root, "d").kind(), FileKind::CharacterDevice);
    drop((dir, moved, left, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    let names = [b"a".to_vec(), b"d".to_vec(), b"e".to_vec()];
    assert_eq!(list(&fs, &root), names);
    let left = get(&fs, &root, "a");
    assert_eq!((stat(&fs, &left).nlink, stat(&fs, &left).rdev), (1, 0));
    drop(left);
    fs.unlink(&root, b"a").unwrap();
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn a_rename_that_fails_leaves_no_inode_behind() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    fs.create(&root, b"a", &file()).unwrap();
    fs.create(&root, b"b", &file()).unwrap();
    let inodes = fs.statistics().inodes_free;
    let move_to_b = |from: &[u8], mode| {
        fs.rename_leaving((&root, from), (&root, b"b"), mode, &whiteout())
            .map(drop)
    };
    assert_eq!(errno(move_to_b(b"a", NoReplace)), libc::EEXIST);
    assert_eq!(errno(move_to_b(b"x", Replace)), libc::ENOENT);
    assert_eq!(errno(move_to_b(b"a", Exchange)), libc::EINVAL);
    // Two names of one inode stay as they are.
    fs.link(&get(&fs, &root, "a"), &root, b"a2").unwrap();
    fs.rename_leaving((&root, b"a"), (&root, b"a2"), Replace, &whiteout())
        .unwrap();
    assert_eq!(get(&fs, &root, "a").kind(), FileKind::File);
    assert_eq!(fs.statistics().inodes_free, inodes);
    drop(root);
    drop(disk.remount(fs));
}
