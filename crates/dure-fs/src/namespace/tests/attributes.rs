//! Attributes: times, modes, access control lists, extended attributes.

use dure_store::format::inode::Time;

use super::*;
use crate::{SetAttributes, SetTime, XattrMode};

#[test]
fn directory_times_follow_its_entries_until_set() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let old = Time {
        secs: (-1_000_000).into(),
        nanos: 5.into(),
    };
    let set = SetAttributes {
        mtime: Some(SetTime::At(old)),
        ..SetAttributes::default()
    };
    fs.create(&dir, b"a", &file()).unwrap();
    assert_eq!(fs.set_attributes(&dir, &set).unwrap().mtime, old);
    assert_ne!(stat(&fs, &dir).ctime, old);
    drop((dir, root));
    let fs = disk.remount(fs);
    let dir = get(&fs, &fs.root().unwrap(), "d");
    assert_eq!(stat(&fs, &dir).mtime, old);
    fs.unlink(&dir, b"a").unwrap();
    let after = stat(&fs, &dir);
    assert!(after.mtime.secs.get() > 0);
    assert_eq!(after.mtime, after.ctime);
    drop(dir);
    let fs = disk.remount(fs);
    assert_eq!(
        stat(&fs, &get(&fs, &fs.root().unwrap(), "d")).mtime,
        after.mtime
    );
}

#[test]
fn a_directory_that_is_removed_in_use_keeps_the_time_of_its_last_entry() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let old = SetAttributes {
        mtime: Some(SetTime::At(Time::default())),
        ..SetAttributes::default()
    };
    fs.change_attributes(&dir, &old).unwrap();
    fs.create(&dir, b"a", &file()).unwrap();
    fs.unlink(&dir, b"a").unwrap();
    fs.rmdir(&root, b"d").unwrap();
    let gone = stat(&fs, &dir);
    assert!(gone.mtime.secs.get() > 0, "{gone:?}");
    assert_eq!(gone.nlink, 0);
    drop((dir, root));
    disk.remount(fs);
}

#[test]
fn attributes_are_set_and_kept() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    let far = Time {
        secs: (1_i64 << 35).into(),
        nanos: 999_999_999.into(),
    };
    let set = SetAttributes {
        mode: Some(0o7421),
        uid: Some(1),
        gid: Some(u32::MAX - 1),
        size: Some(12345),
        atime: Some(SetTime::At(far)),
        mtime: Some(SetTime::Now),
        ctime: Some(far),
    };
    let after = fs.set_attributes(&made, &set).unwrap();
    assert_eq!(
        (after.mode, after.uid, after.gid),
        (0o107_421, 1, u32::MAX - 1)
    );
    assert_eq!((after.size, after.atime, after.ctime), (12345, far, far));
    let wrong = Time {
        secs: 0.into(),
        nanos: 1_000_000_000.into(),
    };
    let set = SetAttributes {
        atime: Some(SetTime::At(wrong)),
        ..SetAttributes::default()
    };
    assert_eq!(errno(fs.set_attributes(&made, &set)), libc::EINVAL);
    let size = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    assert_eq!(errno(fs.set_attributes(&root, &size)), libc::EISDIR);
    drop((made, root));
    let fs = disk.remount(fs);
    assert_eq!(stat(&fs, &get(&fs, &fs.root().unwrap(), "a")), after);
}

#[test]
fn setgid_directories_pass_their_group_on() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o2775,
        gid: 77,
        ..directory()
    };
    let dir = fs.mkdir(&root, b"d", &new).unwrap();
    assert_eq!(stat(&fs, &dir).mode, 0o042_775);
    let inner = fs.create(&dir, b"f", &file()).unwrap();
    assert_eq!(
        (stat(&fs, &inner).gid, stat(&fs, &inner).mode),
        (77, 0o100_644)
    );
    let inner = fs.mkdir(&dir, b"d", &directory()).unwrap();
    assert_eq!(
        (stat(&fs, &inner).gid, stat(&fs, &inner).mode),
        (77, 0o042_755)
    );
    assert_eq!(fs.parent(&inner).unwrap(), dir.ino());
    assert_eq!(fs.parent(&root).unwrap(), root.ino());
}

fn list_of(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const NO: u32 = u32::MAX;
const DEFAULT: &[u8] = b"system.posix_acl_default";
const ACCESS: &[u8] = b"system.posix_acl_access";

/// A list with a named user, whose mask is `mask`.
fn with_named_user(owner: u16, mask: u16) -> Vec<u8> {
    list_of(&[
        (1, owner, NO),
        (2, 7, 1000),
        (4, 5, NO),
        (16, mask, NO),
        (32, 0, NO),
    ])
}

#[test]
fn default_lists_are_inherited() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let acl = with_named_user(7, 7);
    fs.set_xattr(&dir, DEFAULT, &acl, XattrMode::Any).unwrap();
    let umask = 0o777;
    let inner = fs
        .create(&dir, b"f", &NewInode { umask, ..file() })
        .unwrap();
    assert_eq!(
        stat(&fs, &inner).mode,
        0o100_640,
        "the umask does not count"
    );
    assert_eq!(
        fs.get_xattr(&inner, ACCESS).unwrap().unwrap(),
        with_named_user(6, 4)
    );
    assert_eq!(fs.get_xattr(&inner, DEFAULT).unwrap(), None);
    let sub = fs.mkdir(&dir, b"s", &directory()).unwrap();
    assert_eq!(fs.get_xattr(&sub, DEFAULT).unwrap().unwrap(), acl);
    let link = fs.symlink(&dir, b"l", b"t", &file()).unwrap();
    assert!(fs.list_xattr(&link).unwrap().is_empty());
    let plain = fs
        .create(
            &root,
            b"f",
            &NewInode {
                umask: 0o027,
                ..file()
            },
        )
        .unwrap();
    assert_eq!(stat(&fs, &plain).mode, 0o100_640, "here it does");
    drop((dir, inner, sub, link, plain, root));
    drop(disk.remount(fs));
}

#[test]
fn lists_and_modes_follow_each_other() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"f", &file()).unwrap();
    fs.set_xattr(&made, ACCESS, &with_named_user(6, 4), XattrMode::Any)
        .unwrap();
    assert_eq!(stat(&fs, &made).mode, 0o100_640);
    let set = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    fs.set_attributes(&made, &set).unwrap();
    assert_eq!(
        fs.get_xattr(&made, ACCESS).unwrap().unwrap(),
        with_named_user(6, 0)
    );
    let minimal = list_of(&[(1, 7, NO), (4, 5, NO), (32, 4, NO)]);
    fs.set_xattr(&made, ACCESS, &minimal, XattrMode::Any)
        .unwrap();
    assert_eq!(stat(&fs, &made).mode, 0o100_754);
    assert_eq!(fs.get_xattr(&made, ACCESS).unwrap(), None);
    assert_eq!(
        errno(fs.set_xattr(&made, DEFAULT, &minimal, XattrMode::Any)),
        libc::EINVAL
    );
    assert_eq!(
        errno(fs.set_xattr(&made, ACCESS, b"junk", XattrMode::Any)),
        libc::EINVAL
    );
    drop((made, root));
    drop(disk.remount(fs));
}

#[test]
fn attributes_of_all_sizes_survive() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    fs.set_xattr(&made, b"user.small", b"1", XattrMode::Create)
        .unwrap();
    fs.set_xattr(&made, b"user.big", &[9; 65536], XattrMode::Any)
        .unwrap();
    fs.set_xattr(&made, b"trusted.mid", &[8; 5000], XattrMode::Any)
        .unwrap();
    assert_eq!(
        errno(fs.set_xattr(&made, b"user.small", b"", XattrMode::Create)),
        libc::EEXIST
    );
    assert_eq!(
        errno(fs.set_xattr(&made, b"user.no", b"", XattrMode::Replace)),
        libc::ENODATA
    );
    assert_eq!(
        errno(fs.set_xattr(&made, b"user.no", &[0; 65537], XattrMode::Any)),
        libc::E2BIG
    );
    assert_eq!(
        errno(fs.set_xattr(&made, b"user.no", &[0; 65536], XattrMode::Any)),
        libc::ENOSPC
    );
    assert_eq!(
        errno(fs.set_xattr(&made, b"nobody.no", b"", XattrMode::Any)),
        libc::EOPNOTSUPP
    );
    assert_eq!(errno(fs.remove_xattr(&made, b"user.no")), libc::ENODATA);
    drop((made, root));
    let fs = disk.remount(fs);
    let made = get(&fs, &fs.root().unwrap(), "a");
    assert_eq!(
        fs.get_xattr(&made, b"user.big").unwrap().unwrap(),
        [9; 65536]
    );
    assert_eq!(fs.get_xattr(&made, b"user.small").unwrap().unwrap(), b"1");
    assert_eq!(fs.list_xattr(&made).unwrap().len(), 3);
    fs.remove_xattr(&made, b"user.big").unwrap();
    assert_eq!(
        fs.get_xattr(&made, b"trusted.mid").unwrap().unwrap(),
        [8; 5000]
    );
    fs.remove_xattr(&made, b"trusted.mid").unwrap();
    fs.remove_xattr(&made, b"user.small").unwrap();
    assert!(fs.list_xattr(&made).unwrap().is_empty());
    drop(made);
    drop(disk.remount(fs));
}

/// What is the same again makes no operation: a mode, an extended attribute. In the next
/// tick of the clock it does, since the time of the change differs.
#[test]
fn a_change_to_what_is_there_makes_no_operation_within_a_tick_of_the_clock() {
    let tick = |secs| {
        let time = dure_sync::clock::Timestamp { secs, nanos: 0 };
        dure_sync::clock::pretend_wall(Some(time));
    };
    tick(1000);
    let (_disk, fs) = fresh();
    let inode = fs.create(&fs.root().unwrap(), b"f", &file()).unwrap();
    let mode = |bits| SetAttributes {
        mode: Some(bits),
        ..SetAttributes::default()
    };
    let changes = |call: &dyn Fn()| {
        let before = inode.inode().attribute_writer();
        call();
        inode.inode().attribute_writer() != before
    };
    let set =
        |attributes: SetAttributes| changes(&|| fs.change_attributes(&inode, &attributes).unwrap());
    let xattr = |value: &[u8]| {
        let set = || fs.set_xattr(&inode, b"user.a", value, XattrMode::Any);
        changes(&|| set().unwrap())
    };
    assert!(set(mode(0o640)) && xattr(b"one"));
    assert!(!set(mode(0o640)) && !xattr(b"one"));
    assert!(set(mode(0o600)) && xattr(b"two"));
    let again = fs.set_xattr(&inode, b"user.a", b"two", XattrMode::Create);
    assert!(matches!(again, Err(crate::Error::Exists)), "{again:?}");
    let same_time = SetAttributes {
        mtime: Some(SetTime::Now),
        ..mode(0o600)
    };
    assert!(set(same_time), "it sets a time");
    tick(1001);
    assert!(set(mode(0o600)), "the time of the change");
    assert_eq!(stat(&fs, &inode).ctime.secs.get(), 1001);
    tick(1002);
    assert!(xattr(b"two") && !set(mode(0o600)));
    dure_sync::clock::pretend_wall(None);
}
