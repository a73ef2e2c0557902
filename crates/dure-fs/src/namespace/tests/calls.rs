//! Each call and each of its refusals.

use dure_store::OpKind;
use dure_store::space::OpClass;
use dure_store::units::Ino;
use dure_sync::thread;
use std::time::Duration;

use super::*;
use crate::inode::LINKS_MAX;
use crate::{New, XattrMode};

#[test]
fn a_created_file_survives_a_mount() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"file", &file()).unwrap();
    let before = stat(&fs, &made);
    assert_eq!(
        (before.mode, before.nlink, before.uid, before.gid),
        (0o100_644, 1, 10, 20)
    );
    assert_eq!(before.btime, before.ctime);
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    let again = get(&fs, &root, "file");
    assert_eq!(stat(&fs, &again), before);
    assert_eq!(list(&fs, &root), [b"file".to_vec()]);
}

/// A file that has all the names it can have is given them by hand.
#[test]
fn a_name_too_many_is_refused_and_changes_nothing() {
    let (_, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"file", &file()).unwrap();
    let names = |count: u32| {
        let mut attributes = made.inode().attributes();
        attributes.nlink.set(count);
        let volume = &fs.0;
        let mut op = volume.store.op(OpKind::Link, OpClass::Normal, 1).unwrap();
        made.inode().store_attributes(&mut op, &attributes);
        op.finish();
    };
    names(LINKS_MAX - 1);
    fs.link(&made, &root, b"last").unwrap();
    assert_eq!(errno(fs.link(&made, &root, b"one more")), libc::EMLINK);
    assert!(fs.lookup(&root, b"one more").unwrap().is_none());
    assert_eq!(stat(&fs, &made).nlink, LINKS_MAX);
}

#[test]
fn every_type_can_be_made() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    for kind in FileKind::ALL {
        let name = format!("{kind:?}");
        let name = name.as_bytes();
        let new = NewInode {
            mode: kind.mode() | 0o600,
            rdev: 0x1234_5678_9abc,
            ..file()
        };
        match kind {
            FileKind::Directory => fs.mkdir(&root, name, &new).unwrap(),
            FileKind::Symlink => fs.symlink(&root, name, b"target", &new).unwrap(),
            _ => fs.create(&root, name, &new).unwrap(),
        };
    }
    drop(root);
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    for kind in FileKind::ALL {
        let inode = get(&fs, &root, &format!("{kind:?}"));
        assert_eq!(inode.kind(), kind);
        let device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
        assert_eq!(
            stat(&fs, &inode).rdev,
            if device { 0x1234_5678_9abc } else { 0 }
        );
    }
    assert_eq!(stat(&fs, &root).nlink, 3);
    let mode = FileKind::Directory.mode() | 0o755;
    assert_eq!(
        errno(fs.create(&root, b"x", &NewInode { mode, ..file() })),
        libc::EINVAL
    );
    assert_eq!(
        errno(fs.create(
            &root,
            b"x",
            &NewInode {
                mode: 0o644,
                ..file()
            }
        )),
        libc::EINVAL
    );
}

#[test]
fn bad_names_are_refused_everywhere() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    for (name, want) in [
        (&b""[..], libc::EINVAL),
        (b".", libc::EINVAL),
        (b"..", libc::EINVAL),
        (b"a/b", libc::EINVAL),
        (&[b'x'; 256], libc::ENAMETOOLONG),
    ] {
        assert_eq!(errno(fs.create(&root, name, &file())), want);
        assert_eq!(errno(fs.mkdir(&root, name, &directory())), want);
        assert_eq!(errno(fs.symlink(&root, name, b"t", &file())), want);
        assert_eq!(errno(fs.link(&made, &root, name)), want);
        assert_eq!(errno(fs.unlink(&root, name)), want);
        assert_eq!(errno(fs.rmdir(&root, name)), want);
        assert_eq!(
            errno(fs.rename(&root, b"a", &root, name, crate::RenameMode::Replace)),
            want
        );
    }
    assert_eq!(errno(fs.lookup(&root, &[b'x'; 256])), libc::ENAMETOOLONG);
    fs.create(&root, &[b'x'; 255], &file()).unwrap();
    fs.create(&root, &[0xff, 0xfe, b'\n'], &file()).unwrap();
    assert_eq!(list(&fs, &root).len(), 3);
}

#[test]
fn refusals_change_nothing() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    fs.create(&dir, b"inner", &file()).unwrap();
    let before = (stat(&fs, &root), stat(&fs, &made), stat(&fs, &dir));
    assert_eq!(errno(fs.create(&root, b"a", &file())), libc::EEXIST);
    assert_eq!(errno(fs.mkdir(&root, b"a", &directory())), libc::EEXIST);
    assert_eq!(errno(fs.link(&made, &root, b"d")), libc::EEXIST);
    assert_eq!(errno(fs.link(&dir, &root, b"e")), libc::EPERM);
    assert_eq!(errno(fs.unlink(&root, b"none")), libc::ENOENT);
    assert_eq!(errno(fs.unlink(&root, b"d")), libc::EISDIR);
    assert_eq!(errno(fs.rmdir(&root, b"a")), libc::ENOTDIR);
    assert_eq!(errno(fs.rmdir(&root, b"d")), libc::ENOTEMPTY);
    assert_eq!(errno(fs.create(&made, b"x", &file())), libc::ENOTDIR);
    assert_eq!(errno(fs.lookup(&made, b"x")), libc::ENOTDIR);
    assert_eq!(errno(fs.symlink(&root, b"s", b"", &file())), libc::ENOENT);
    assert_eq!(
        errno(fs.symlink(&root, b"s", &[b'x'; 4096], &file())),
        libc::ENAMETOOLONG
    );
    assert_eq!(errno(fs.read_link(&made)), libc::EINVAL);
    assert_eq!(
        before,
        (stat(&fs, &root), stat(&fs, &made), stat(&fs, &dir))
    );
}

#[test]
fn removing_a_name_frees_the_inode_for_the_next() {
    // One partition: the number is found from whatever core this runs on.
    let disk = Disk::with_journals(1 << 17, 1);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let first = fs.create(&root, b"a", &file()).unwrap();
    let (ino, generation) = (first.ino(), first.generation());
    drop(first);
    fs.unlink(&root, b"a").unwrap();
    assert_eq!(errno(fs.inode(ino)), libc::ENOENT);
    let second = fs.create(&root, b"b", &file()).unwrap();
    assert_eq!((second.ino(), second.generation()), (ino, generation + 1));
    drop(second);
    fs.unlink(&root, b"b").unwrap();
    drop(root);
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    // The node with free inodes is found again once its pair of the NAT has been scanned.
    let made: Vec<InodeRef> = (0..17)
        .map(|n| {
            fs.create(&root, format!("{n}").as_bytes(), &file())
                .unwrap()
        })
        .collect();
    let reused = made
        .iter()
        .find(|inode| inode.ino() == ino)
        .expect("the number is used again");
    assert_eq!(reused.generation(), generation + 2);
}

#[test]
fn an_open_file_outlives_its_name() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    let ino = made.ino();
    fs.unlink(&root, b"a").unwrap();
    assert!(fs.lookup(&root, b"a").unwrap().is_none());
    assert_eq!(stat(&fs, &made).nlink, 0);
    assert_eq!(
        errno(fs.link(&made, &root, b"b")),
        libc::ENOENT,
        "it cannot come back"
    );
    let clone = made.clone();
    drop(made);
    assert_eq!(stat(&fs, &clone).nlink, 0);
    drop(clone);
    assert_eq!(errno(fs.inode(ino)), libc::ENOENT);
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn an_orphan_is_freed_after_a_crash() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"a", &file()).unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    let long = fs.symlink(&root, b"s", &[b'l'; 4000], &file()).unwrap();
    fs.set_xattr(&made, b"user.big", &[7; 60000], XattrMode::Any)
        .unwrap();
    let temporary = fs.temporary(&root, &file()).unwrap();
    fs.unlink(&root, b"a").unwrap();
    fs.rmdir(&root, b"d").unwrap();
    fs.unlink(&root, b"s").unwrap();
    fs.sync().unwrap();
    let inos = [made.ino(), dir.ino(), long.ino(), temporary.ino()];
    // A crash: nothing is dropped in order, nothing closed.
    std::mem::forget((made, dir, long, temporary, root, fs));
    let fs = disk.mount();
    for ino in inos {
        assert_eq!(errno(fs.inode(ino)), libc::ENOENT, "{ino:?}");
    }
    drop(disk.remount(fs));
}

#[test]
fn many_orphans_grow_the_chain() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let mut open = Vec::new();
    for n in 0..500 {
        let name = format!("{n}");
        open.push(fs.create(&root, name.as_bytes(), &file()).unwrap());
        fs.unlink(&root, name.as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    let inos: Vec<Ino> = open.iter().map(InodeRef::ino).collect();
    std::mem::forget((open, root, fs));
    let fs = disk.mount();
    assert!(inos.into_iter().all(|ino| fs.inode(ino).is_err()));
    drop(disk.remount(fs));
}

#[test]
fn a_temporary_file_gets_a_name() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.temporary(&root, &file()).unwrap();
    assert_eq!(stat(&fs, &made).nlink, 0);
    fs.link(&made, &root, b"named").unwrap();
    fs.link(&made, &root, b"twice").unwrap();
    assert_eq!(stat(&fs, &made).nlink, 2);
    let other = fs.temporary(&root, &file()).unwrap();
    let ino = other.ino();
    drop(other);
    assert_eq!(errno(fs.inode(ino)), libc::ENOENT);
    drop((made, root));
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    assert_eq!(list(&fs, &root), [b"named".to_vec(), b"twice".to_vec()]);
    assert_eq!(stat(&fs, &get(&fs, &root, "named")).nlink, 2);
}

#[test]
fn symlinks_of_any_length() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let lengths = [1, 287, 288, 289, 4015, 4016, 4017, 4095];
    for len in lengths {
        let target = vec![b't'; len];
        let link = fs
            .symlink(&root, format!("{len}").as_bytes(), &target, &file())
            .unwrap();
        assert_eq!(stat(&fs, &link).size, u64::try_from(len).unwrap());
        assert_eq!(stat(&fs, &link).mode, 0o120_777);
    }
    drop(root);
    let fs = disk.remount(fs);
    let root = fs.root().unwrap();
    for len in lengths {
        let name = format!("{len}");
        assert_eq!(
            fs.read_link(&get(&fs, &root, &name)).unwrap(),
            vec![b't'; len]
        );
        fs.unlink(&root, name.as_bytes()).unwrap();
    }
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn numbers_from_outside_are_checked() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    fs.create(&dir, b"f", &file()).unwrap();
    fs.sync().unwrap();
    for number in (0..20_000).chain([u64::MAX, 1 << 40]) {
        if let Ok(inode) = fs.inode(Ino(number)) {
            assert_eq!(inode.ino(), Ino(number));
            assert!(stat(&fs, &inode).nlink > 0);
        }
    }
    assert_eq!(fs.inode(dir.ino()).unwrap().ino(), dir.ino());
}

#[test]
fn what_makes_an_inode_returns_its_attributes() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let set_group = NewInode {
        mode: 0o2775,
        gid: 7,
        ..directory()
    };
    let at = fs.mkdir(&root, b"inherited", &set_group).unwrap();
    let list = [
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0,
        255, 255, 255, 255,
    ];
    let default = b"system.posix_acl_default";
    fs.set_xattr(&at, default, &list, XattrMode::Any).unwrap();
    let device = NewInode {
        mode: FileKind::BlockDevice.mode() | 0o640,
        uid: 3,
        rdev: 0x0801,
        ..file()
    };
    let (file, dir) = (file(), directory());
    for (n, new) in (b'a'..).zip([
        New::Node(&file),
        New::Node(&device),
        New::Directory(&dir),
        New::Symlink(&file, b"short"),
        New::Symlink(&file, &[b'x'; 900]),
    ]) {
        for parent in [&root, &at] {
            let (made, attributes) = fs.make(parent, &[n], new).unwrap();
            assert_eq!(attributes, fs.attributes(&made).unwrap(), "{new:?}");
            assert_eq!(attributes.ino, made.ino());
        }
    }
}

/// Cores that miss one name together would sleep one behind the other: the one that does not get
/// the bucket answers all the same, and keeps nothing.
#[test]
fn a_lookup_waits_for_no_bucket() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = fs.create(&root, b"made", &file()).unwrap();
    drop(fs.look_up_and_remember(&root, b"other").unwrap());
    fs.0.directories
        .dentries
        .forget(root.ino(), fs.0.directories.hash_of(b"made"));
    let looker = {
        let state = root.inode().state().read();
        let hash = fs.0.directories.hash_of(b"made");
        let leaf = fs.0.directories.leaf(&state, hash).unwrap().unwrap();
        let _held = leaf.lock().unwrap();
        let (fs, root) = (fs.clone(), root.clone());
        let looker = thread::spawn("looker", move || {
            let found = fs.look_up_and_remember(&root, b"made").unwrap();
            (found.unwrap().id(), fs.peek(root.id(), b"made"))
        });
        for _ in 0..1000 {
            if !looker.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(looker.is_finished(), "a lookup waits for the bucket");
        looker
    };
    assert_eq!(looker.join().unwrap(), (made.id(), crate::Peek::Unknown));
    drop(fs.look_up_and_remember(&root, b"made").unwrap());
    assert_eq!(fs.peek(root.id(), b"made"), crate::Peek::Found(made.id()));
}

/// A call that gives an inode a name leaves the answer in the dentry cache, and takes the old one
/// away.
#[test]
fn new_names_are_cached() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let peek = |name: &[u8]| fs.peek(root.id(), name);
    assert!(fs.look_up_and_remember(&root, b"a").unwrap().is_none());
    assert_eq!(peek(b"a"), crate::Peek::Absent);
    let a = fs.create(&root, b"a", &file()).unwrap();
    let found = crate::Peek::Found(a.id());
    assert_eq!(peek(b"a"), found);
    fs.link(&a, &root, b"b").unwrap();
    assert_eq!(peek(b"b"), found);
    fs.rename(&root, b"b", &root, b"c", crate::RenameMode::Replace)
        .unwrap();
    assert_eq!((peek(b"b"), peek(b"c")), (crate::Peek::Unknown, found));
    fs.unlink(&root, b"a").unwrap();
    assert_eq!(peek(b"a"), crate::Peek::Unknown);
    let d = fs.mkdir(&root, b"a", &directory()).unwrap();
    assert_eq!(peek(b"a"), crate::Peek::Found(d.id()));
}
