//! The rules of POSIX that the library adds to the file system: paths, permissions, lists,
//! descriptors.

use std::io::{Read, Seek as _, SeekFrom, Write};

use dure::acl::{self, AccessList, Entry, Tag};
use dure::{
    Access, AllocateMode, Capabilities, CreateOptions, Credentials, Error, FileKind, FileTimes,
    MountOptions, OpenOptions, RenameMode, Seek, Session, Special, TimeChange, Timestamp, Volume,
    XattrMode,
};
use dure_sync::thread;
use rustix::io::Errno;

pub(crate) fn volume() -> Volume {
    Volume::in_memory(32 << 20).expect("memory for a small volume")
}

#[track_caller]
pub(crate) fn fails<T: std::fmt::Debug>(result: Result<T, Error>, errno: Errno) {
    let error = result.expect_err("the call should fail");
    assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
}

fn alice(session: &Session) -> Session {
    session.with_credentials(Credentials::user(1000, 100, &[200]))
}

fn bob(session: &Session) -> Session {
    session.with_credentials(Credentials::user(1001, 101, &[]))
}

#[test]
fn an_error_says_what_was_tried_on_which_path_and_why() {
    let root = volume().root();
    root.create_dir_with_mode("a", 0o700).unwrap();
    let error = alice(&root).open("a/b").unwrap_err();
    assert_eq!(error.to_string(), "open a/b: permission denied");
    let error = std::io::Error::from(root.open("/no/where").unwrap_err());
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/where"), "{error}");
}

#[test]
fn names_and_paths_have_their_limits() {
    let root = volume().root();
    let long = "x".repeat(255);
    root.create_dir(&long).unwrap();
    fails(root.create_dir("x".repeat(256)), Errno::NAMETOOLONG);
    fails(root.metadata(""), Errno::NOENT);
    fails(root.metadata("a\0b"), Errno::INVAL);
    let deep = "./".repeat(2047) + ".";
    assert!(root.metadata(&deep).unwrap().is_dir());
    fails(root.metadata(deep + "/"), Errno::NAMETOOLONG);
}

#[test]
fn at_and_with_root_begin_elsewhere() {
    let root = volume().root();
    root.create_dir_all("a/b/c").unwrap();
    root.write("a/file", b"1").unwrap();
    root.write("file", b"2").unwrap();
    let at = root.at(&root.open("a").unwrap()).unwrap();
    assert_eq!(at.read("file").unwrap(), b"1");
    assert_eq!(at.read("../file").unwrap(), b"2");
    assert_eq!(at.read("/file").unwrap(), b"2");
    let inside = root.with_root("a").unwrap();
    assert_eq!(inside.read("../../file").unwrap(), b"1");
    assert_eq!(inside.read("/b/../file").unwrap(), b"1");
    inside.symlink("/file", "b/link").unwrap();
    assert_eq!(inside.read("b/link").unwrap(), b"1");
    assert_eq!(root.read("a/b/link").unwrap(), b"2");
    fails(root.at(&root.open("file").unwrap()), Errno::NOTDIR);
}

#[test]
fn the_umask_takes_bits_unless_a_default_list_is_there() {
    let root = volume().root();
    let session = root.with_credentials(Credentials::root().with_umask(0o027));
    session.create("file").unwrap();
    session.create_dir("dir").unwrap();
    assert_eq!(session.metadata("file").unwrap().mode(), 0o640);
    assert_eq!(session.metadata("dir").unwrap().mode(), 0o750);
    let list = list(&[(Tag::User(1000), 6), (Tag::Mask, 7)], [7, 5, 0]);
    session
        .set_xattr("dir", acl::DEFAULT, &list.to_bytes(), XattrMode::Any)
        .unwrap();
    session.create("dir/file").unwrap();
    assert_eq!(session.metadata("dir/file").unwrap().mode(), 0o660);
    let inherited = session.get_xattr("dir/file", acl::ACCESS).unwrap().unwrap();
    assert_eq!(AccessList::parse(&inherited).unwrap().mode(), 0o660);
    session.create_dir("dir/sub").unwrap();
    assert!(
        session
            .get_xattr("dir/sub", acl::DEFAULT)
            .unwrap()
            .is_some()
    );
}

fn list(named: &[(Tag, u32)], [owner, group, other]: [u32; 3]) -> AccessList {
    let classes = [
        (Tag::Owner, owner),
        (Tag::OwningGroup, group),
        (Tag::Other, other),
    ];
    let all = classes.iter().chain(named);
    let all = all
        .map(|&(tag, permissions)| Entry { tag, permissions })
        .collect();
    AccessList::new(all).expect("a complete list")
}

#[test]
fn an_access_list_decides_for_those_it_names() {
    let root = volume().root();
    root.write("file", b"secret").unwrap();
    root.set_permissions("file", 0o640).unwrap();
    fails(alice(&root).open("file"), Errno::ACCESS);
    let list = list(
        &[(Tag::User(1000), 6), (Tag::Group(101), 4), (Tag::Mask, 6)],
        [6, 0, 0],
    );
    root.set_xattr("file", acl::ACCESS, &list.to_bytes(), XattrMode::Any)
        .unwrap();
    assert_eq!(
        root.metadata("file").unwrap().mode(),
        0o660,
        "the mask is the group class"
    );
    alice(&root)
        .access("file", Access::READ.and(Access::WRITE))
        .unwrap();
    bob(&root).access("file", Access::READ).unwrap();
    fails(bob(&root).access("file", Access::WRITE), Errno::ACCESS);
    // chmod changes the mask, which bounds them.
    root.set_permissions("file", 0o640).unwrap();
    alice(&root).access("file", Access::READ).unwrap();
    fails(alice(&root).access("file", Access::WRITE), Errno::ACCESS);
    fails(
        alice(&root).set_xattr("file", acl::ACCESS, b"", XattrMode::Any),
        Errno::PERM,
    );
    root.set_xattr("file", acl::ACCESS, b"", XattrMode::Any)
        .unwrap();
    fails(alice(&root).access("file", Access::READ), Errno::ACCESS);
}

#[test]
fn set_id_bits_go_when_somebody_else_writes() {
    let root = volume().root();
    root.write("file", b"x").unwrap();
    root.set_permissions("file", 0o6777).unwrap();
    let mode = || root.metadata("file").unwrap().mode();
    let as_root = OpenOptions::new().write(true).open(&root, "file").unwrap();
    as_root.write_at(b"y", 0).unwrap();
    assert_eq!(mode(), 0o6777, "root keeps them");
    let as_alice = OpenOptions::new()
        .write(true)
        .open(&alice(&root), "file")
        .unwrap();
    as_alice.write_at(b"", 0).unwrap();
    assert_eq!(mode(), 0o6777, "nothing was written");
    as_alice.write_at(b"z", 0).unwrap();
    assert_eq!(mode(), 0o777);
    root.set_permissions("file", 0o4777).unwrap();
    as_alice.write_at(b"z", 1).unwrap();
    assert_eq!(mode(), 0o777, "also when the bits came after the open");
    root.set_permissions("file", 0o4777).unwrap();
    root.chown("file", Some(1000), None).unwrap();
    assert_eq!(mode(), 0o777, "not even root keeps them over chown");
}

#[test]
fn owners_change_what_they_may() {
    let root = volume().root();
    root.write("file", b"").unwrap();
    root.chown("file", Some(1000), Some(100)).unwrap();
    let (alice, bob) = (alice(&root), bob(&root));
    fails(bob.set_permissions("file", 0o777), Errno::PERM);
    fails(bob.chown("file", Some(1001), None), Errno::PERM);
    fails(alice.chown("file", Some(1001), None), Errno::PERM);
    fails(alice.chown("file", None, Some(101)), Errno::PERM);
    alice.chown("file", None, Some(200)).unwrap();
    alice.set_permissions("file", 0o2755).unwrap();
    assert_eq!(root.metadata("file").unwrap().mode(), 0o2755);
    root.chown("file", None, Some(300)).unwrap();
    alice.set_permissions("file", 0o2755).unwrap();
    assert_eq!(
        root.metadata("file").unwrap().mode(),
        0o755,
        "not in the group any more"
    );
}

#[test]
fn times_are_set_by_the_owner_or_by_a_writer_to_now() {
    let root = volume().root();
    root.write("file", b"").unwrap();
    root.set_permissions("file", 0o666).unwrap();
    let time = Timestamp {
        secs: 1 << 33,
        nanos: 123_456_789,
    };
    let set = FileTimes {
        accessed: TimeChange::Keep,
        modified: TimeChange::Set(time),
    };
    root.set_times("file", set).unwrap();
    assert_eq!(root.metadata("file").unwrap().modified(), time);
    fails(bob(&root).set_times("file", set), Errno::PERM);
    let now = FileTimes {
        accessed: TimeChange::Now,
        modified: TimeChange::Now,
    };
    fails(
        bob(&root).set_times(
            "file",
            FileTimes {
                accessed: TimeChange::Keep,
                ..now
            },
        ),
        Errno::PERM,
    );
    bob(&root).set_times("file", now).unwrap();
    assert!(root.metadata("file").unwrap().modified() < time);
    root.set_permissions("file", 0o644).unwrap();
    fails(bob(&root).set_times("file", now), Errno::ACCESS);
    bob(&root).set_times("file", FileTimes::default()).unwrap();
}

#[test]
fn a_descriptor_has_a_position_that_its_clones_share() {
    let root = volume().root();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(&root, "file")
        .unwrap();
    file.write_all(b"hello world").unwrap();
    let mut clone = file.try_clone();
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 6);
    let mut word = String::new();
    clone.read_to_string(&mut word).unwrap();
    assert_eq!(word, "world");
    assert_eq!(file.stream_position().unwrap(), 11);
    fails(file.seek_to(Seek::Current(-12)), Errno::INVAL);
    fails(file.seek_to(Seek::Data(11)), Errno::NXIO);
    file.allocate(AllocateMode::Punch, 0, 5).unwrap();
    assert_eq!(root.read("file").unwrap(), b"\0\0\0\0\0 world");
    fails(root.open("file").unwrap().write_at(b"x", 0), Errno::BADF);
    fails(root.open("file").unwrap().set_len(0), Errno::INVAL);
    fails(
        root.create("file").unwrap().read_at(&mut [0], 0),
        Errno::BADF,
    );
}

#[test]
fn appending_goes_to_the_end_and_leaves_the_position_behind_it() {
    let root = volume().root();
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&root, "log")
        .unwrap();
    log.write_all(b"one ").unwrap();
    root.truncate("log", 2).unwrap();
    log.write_at(b"two", 0).unwrap();
    log.write_all(b"!").unwrap();
    assert_eq!(log.seek_to(Seek::Current(0)).unwrap(), 6);
    assert_eq!(root.read("log").unwrap(), b"ontwo!");
}

#[test]
fn a_temporary_file_gets_a_name_or_goes() {
    let root = volume().root();
    let before = root.read_dir("/").unwrap().count();
    let file = root.temporary(".", 0o600).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(root.read_dir("/").unwrap().count(), before);
    root.link_file(&file, "name").unwrap();
    assert_eq!(root.read("name").unwrap(), b"content");
    root.remove_file("name").unwrap();
    fails(root.link_file(&file, "again"), Errno::NOENT);
    assert_eq!(file.metadata().unwrap().len(), 7, "still open");
}

#[test]
fn directories_are_read_in_batches_and_removed_as_a_whole() {
    let root = volume().root();
    root.create_dir_all("top/a/b").unwrap();
    root.create_dir_all("top/a/b").unwrap();
    for n in 0..300 {
        root.write(format!("top/file{n}"), b"").unwrap();
    }
    root.mknod("top/pipe", Special::Fifo, 0o600).unwrap();
    root.symlink("/", "top/a/link").unwrap();
    let entries: Vec<_> = root.read_dir("top").unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 302);
    let pipe = entries
        .iter()
        .find(|entry| entry.file_name() == "pipe")
        .unwrap();
    assert_eq!(pipe.kind(), FileKind::Fifo);
    fails(root.open("top/pipe"), Errno::NXIO);
    fails(root.remove_dir("top"), Errno::NOTEMPTY);
    root.remove_dir_all("top").unwrap();
    assert!(!root.exists("top").unwrap());
    assert!(root.exists("/").unwrap());
}

#[test]
fn only_root_makes_devices_and_trusted_attributes() {
    let root = volume().root();
    root.set_permissions("/", 0o777).unwrap();
    let alice = alice(&root);
    fails(
        alice.mknod("disk", Special::BlockDevice(0x801), 0o600),
        Errno::PERM,
    );
    root.mknod("disk", Special::BlockDevice(0x801), 0o600)
        .unwrap();
    assert_eq!(root.metadata("disk").unwrap().rdev(), 0x801);
    alice.write("file", b"").unwrap();
    fails(
        alice.set_xattr("file", b"trusted.a", b"1", XattrMode::Any),
        Errno::PERM,
    );
    fails(
        alice.set_xattr("file", b"other.a", b"1", XattrMode::Any),
        Errno::NOTSUP,
    );
    fails(
        alice.set_xattr("file", b"user.", b"1", XattrMode::Any),
        Errno::INVAL,
    );
    root.set_xattr("file", b"trusted.a", b"1", XattrMode::Create)
        .unwrap();
    alice
        .set_xattr("file", b"user.b", b"2", XattrMode::Any)
        .unwrap();
    assert_eq!(alice.list_xattr("file").unwrap(), [b"user.b"]);
    assert_eq!(alice.get_xattr("file", b"trusted.a").unwrap(), None);
    assert_eq!(root.list_xattr("file").unwrap().len(), 2);
}

#[test]
fn a_directory_moves_only_where_it_may() {
    let root = volume().root();
    root.create_dir_all("a/b/c").unwrap();
    root.write("a/b/file", b"").unwrap();
    fails(root.rename("a", "a/b/x"), Errno::INVAL);
    fails(root.rename("a/b/file", "a"), Errno::NOTEMPTY);
    fails(
        root.rename_with("a", "a/b", RenameMode::Exchange),
        Errno::INVAL,
    );
    fails(root.rename("a/.", "x"), Errno::BUSY);
    fails(root.rename("a/b/file", "x/"), Errno::NOTDIR);
    root.rename("a/b/", "x/").unwrap();
    root.rename_with("x/file", "x/c", RenameMode::Exchange)
        .unwrap();
    assert!(root.metadata("x/file").unwrap().is_dir());
    fails(
        root.rename_with("x/c", "x/file", RenameMode::NoReplace),
        Errno::EXIST,
    );
}

#[test]
fn eight_threads_share_a_volume() {
    let volume = volume();
    thread::scope(|scope| {
        for n in 0..8 {
            let session = volume.root();
            scope.spawn(move || {
                session.create_dir(format!("d{n}")).unwrap();
                for i in 0..50 {
                    let path = format!("d{n}/f{i}");
                    session.write(&path, path.as_bytes()).unwrap();
                    session.rename(&path, format!("d{n}/g{i}")).unwrap();
                    session
                        .open(format!("d{n}/g{i}"))
                        .unwrap()
                        .sync_all()
                        .unwrap();
                }
            });
        }
    });
    for n in 0..8 {
        assert_eq!(volume.root().read_dir(format!("d{n}")).unwrap().count(), 50);
        assert_eq!(
            volume.root().read(format!("d{n}/g7")).unwrap(),
            format!("d{n}/f7").as_bytes()
        );
    }
    volume.close().unwrap();
}

#[test]
fn a_volume_in_a_file_is_made_closed_and_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fails(Volume::open(&path, MountOptions::default()), Errno::NOENT);
    let options = CreateOptions {
        image_bytes: Some(32 << 20),
        ..CreateOptions::default()
    };
    let volume = Volume::create(&path, &options).unwrap();
    let second = Volume::open(&path, MountOptions::default()).unwrap_err();
    assert_eq!(second.path(), Some(path.as_path()), "{second}");
    volume.root().write("file", b"kept").unwrap();
    volume.close().unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open(&path, MountOptions::default()).unwrap();
    assert_eq!(volume.root().read("file").unwrap(), b"kept");
    let before = volume.statistics();
    volume.root().write("big", &vec![1; 4 << 20]).unwrap();
    volume.sync().unwrap();
    let after = volume.statistics();
    assert!(
        after.blocks_free + 1024 <= before.blocks_free,
        "{before:?} {after:?}"
    );
    drop(volume);
    let read_only = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let volume = Volume::open(&path, read_only).unwrap();
    assert_eq!(volume.root().read("big").unwrap().len(), 4 << 20);
    fails(volume.root().write("x", b""), Errno::ROFS);
}

#[test]
fn synchronous_writes_survive_the_power_cut() {
    use dure_block::ram::RamDevice;
    let disk = dure_sync::Arc::new(RamDevice::new("disk", 8192));
    let device = dure_block::share(dure_sync::Arc::clone(&disk));
    let format = dure::FormatOptions::default();
    let mount = MountOptions {
        background: dure::Background::None,
        ..MountOptions::default()
    };
    let volume = Volume::create_on(device, &format, mount.clone()).unwrap();
    let root = volume.root();
    let options = OpenOptions::new().write(true).create(true);
    for (name, options) in [
        ("later", options.clone()),
        ("data", options.clone().data_sync(true)),
        ("all", options.sync(true)),
    ] {
        options
            .open(&root, name)
            .unwrap()
            .write_all_at(b"durable", 0)
            .unwrap();
    }
    let copy = dure_block::share(RamDevice::from_image("disk", &disk.snapshot()));
    let after = Volume::open_on(copy, mount).unwrap();
    assert_eq!(after.root().read("data").unwrap(), b"durable");
    assert_eq!(after.root().read("all").unwrap(), b"durable");
    let later = after.root().read("later").unwrap_or_default();
    assert_ne!(
        later, b"durable",
        "nobody asked for it: the test could not fail otherwise"
    );
}

#[test]
fn credentials_of_the_process_are_those_of_the_kernel() {
    let caller = Credentials::of_process();
    let root = rustix::process::geteuid().is_root();
    assert_eq!(caller.capabilities == Capabilities::Root, root);
    assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
}

/// Removing a tree went by paths, and so through a link in the place of a directory: what the link
/// led to was emptied.
#[test]
fn a_tree_is_removed_without_following_links() {
    let volume = volume();
    let root = volume.root();
    root.create_dir_all("/elsewhere/sub").unwrap();
    root.write("/elsewhere/kept", b"kept").unwrap();
    root.symlink("/elsewhere", "/link").unwrap();
    let error = root.remove_dir_all("/link").unwrap_err();
    assert_eq!(error.errno(), Errno::NOTDIR.raw_os_error());
    root.create_dir_all("/tree/a/b/c").unwrap();
    root.symlink("/elsewhere", "/tree/a/link").unwrap();
    root.write("/tree/a/b/file", b"gone").unwrap();
    root.remove_dir_all("/tree").unwrap();
    assert!(root.symlink_metadata("/tree").is_err());
    assert_eq!(root.read("/elsewhere/kept").unwrap(), b"kept");
    assert!(root.metadata("/elsewhere/sub").unwrap().is_dir());
}

/// The walk without references stops at a name that is not cached, and the other one goes on from
/// the directory it had reached. Behind a link that is the directory of another path.
#[test]
fn a_name_behind_a_link_that_is_not_cached_is_looked_up_in_its_own_path() {
    let volume = volume();
    let root = volume.root();
    root.create_dir_all("/a").unwrap();
    root.create_dir_all("/b").unwrap();
    root.write("/b/link", b"another file of that name").unwrap();
    root.write("/b/file", b"old").unwrap();
    root.symlink("/b/file", "/a/link").unwrap();
    for _ in 0..4 {
        assert_eq!(root.metadata("/a/link").unwrap().len(), 3);
    }
    // A new entry is not in the dentry cache; the link and its target are.
    root.remove_file("/b/file").unwrap();
    root.write("/b/file", b"newer").unwrap();
    assert_eq!(root.metadata("/a/link").unwrap().len(), 5);
    assert_eq!(root.read("/a/link").unwrap(), b"newer");
}
