//! A tree with everything that a file system has, sent as a whole.

use super::*;
use crate::metadata::{FileTimes, TimeChange, Timestamp};
use crate::{Cause, Special, XattrMode, acl};

/// A list with a named user.
pub(super) fn list() -> Vec<u8> {
    let entry = |tag, permissions| acl::Entry { tag, permissions };
    let entries = vec![
        entry(acl::Tag::Owner, 7),
        entry(acl::Tag::User(5), 6),
        entry(acl::Tag::OwningGroup, 5),
        entry(acl::Tag::Mask, 5),
        entry(acl::Tag::Other, 0),
    ];
    acl::AccessList::new(entries).unwrap().to_bytes()
}

fn made() -> Disk {
    let disk = Disk::new(8192);
    let session = disk.volume.root();
    session.create_dir_all("a/b/c").unwrap();
    session.write("a/file", b"one").unwrap();
    session.write("a/b/large", &vec![7; 3 << 20]).unwrap();
    session.hard_link("a/file", "a/b/c/same").unwrap();
    session.symlink("../file", "a/b/link").unwrap();
    session.symlink("x".repeat(4000), "long").unwrap();
    session.mknod("pipe", Special::Fifo, 0o640).unwrap();
    session
        .mknod("null", Special::CharacterDevice(0x103), 0o666)
        .unwrap();
    session
        .mknod("disk", Special::BlockDevice(0x800), 0o660)
        .unwrap();
    let sparse = session.create("sparse").unwrap();
    sparse.write_all_at(b"end", 20 << 20).unwrap();
    sparse.set_len((30 << 20) + 17).unwrap();
    session
        .set_xattr("a/file", b"user.color", b"red", XattrMode::Any)
        .unwrap();
    session
        .set_xattr("/", b"user.root", &[9; 60_000], XattrMode::Any)
        .unwrap();
    session.chown("a/file", Some(7), Some(1 << 31)).unwrap();
    session.set_permissions("a/file", 0o6751).unwrap();
    session.set_permissions("a/b", 0o3770).unwrap();
    let time = |secs, nanos| TimeChange::Set(Timestamp { secs, nanos });
    let times = FileTimes {
        accessed: time(5_000_000_000, 1),
        modified: time(-3, 999_999_999),
    };
    session.set_times("a/file", times).unwrap();
    session.set_symlink_times("a/b/link", times).unwrap();
    session.set_times("a", times).unwrap();
    session.set_times("/", times).unwrap();
    // Entries inherit it, and those that were made before have none.
    let list = list();
    let any = XattrMode::Any;
    session.set_xattr("a/b", acl::DEFAULT, &list, any).unwrap();
    session
        .set_xattr("a/file", acl::ACCESS, &list, any)
        .unwrap();
    disk
}

#[test]
fn a_whole_tree_is_the_same_elsewhere() {
    let disk = made();
    let then = disk.take("monday");
    let stream = disk.stream("monday", None);
    assert_eq!(stream, disk.stream("monday", None), "the same bytes again");
    assert!(stream.len() < 4 << 20, "holes take no room");
    let copy = Disk::new(16384);
    let received = copy.receive(&stream).unwrap();
    assert_eq!(
        (received.snapshot.as_str(), received.skipped),
        ("monday", 0)
    );
    assert_eq!(received.bytes, stream.len() as u64);
    expect_same(&then, &content(copy.fs()));
    expect_same(&then, &copy.past("monday"));
    copy.expect_sound();
    let accessed = copy.volume.root().symlink_metadata("a/file").unwrap();
    assert_eq!(accessed.accessed().secs, 5_000_000_000);
    // Again: nothing is to do.
    let again = copy.receive(&stream).unwrap();
    assert_eq!(again.skipped, stream.len() as u64);
    assert_eq!(copy.volume.snapshots().len(), 1);
    // Of the copy, the same stream: it is of the same snapshot.
    assert_eq!(copy.stream("monday", None).len(), stream.len());
    let third = Disk::new(8192);
    third.receive(&copy.stream("monday", None)).unwrap();
    third.volume.root().read("a/b/large").unwrap();
    expect_same(&then, &content(third.fs()));
    assert_eq!(third.receive(&stream).unwrap().skipped, stream.len() as u64);
}

#[test]
fn a_whole_stream_needs_an_empty_volume_and_a_free_name() {
    let disk = made();
    disk.take("monday");
    let stream = disk.stream("monday", None);
    let copy = Disk::new(8192);
    copy.volume.root().write("mine", b"kept").unwrap();
    let error = copy.receive(&stream).unwrap_err();
    assert!(matches!(
        error.cause(),
        Cause::Stream(super::super::Fault::NotEmpty)
    ));
    copy.volume.root().remove_file("mine").unwrap();
    copy.volume.create_snapshot("monday").unwrap();
    let error = copy.receive(&stream).unwrap_err().to_string();
    assert!(error.contains("called monday already"), "{error}");
    let received = receive(&copy.volume, Some("other"), &mut &stream[..], &mut go).unwrap();
    assert_eq!(received.snapshot, "other");
    assert_eq!(copy.past("other"), content(copy.fs()));
}

#[test]
fn an_empty_volume_can_be_sent() {
    let disk = Disk::new(4096);
    let then = disk.take("nothing");
    let copy = Disk::new(4096);
    copy.receive(&disk.stream("nothing", None)).unwrap();
    expect_same(&then, &content(copy.fs()));
}

/// Longer than a system call takes.
#[test]
fn paths_of_any_length_are_sent() {
    let disk = Disk::new(4096);
    let new = dure_fs::NewInode {
        mode: 0o755,
        ..dure_fs::NewInode::default()
    };
    let mut directory = disk.fs().root().unwrap();
    for n in 0..60 {
        let name = format!("{n}{}", "d".repeat(200));
        let made = disk.fs().mkdir(&directory, name.as_bytes(), &new);
        directory = made.unwrap();
    }
    let file = dure_fs::NewInode {
        mode: 0o100_644,
        ..new
    };
    disk.fs().create(&directory, b"file", &file).unwrap();
    let then = disk.take("deep");
    assert!(then.keys().any(|path| path.len() > 12_000));
    let copy = Disk::new(4096);
    copy.receive(&disk.stream("deep", None)).unwrap();
    expect_same(&then, &content(copy.fs()));
    disk.fs().unlink(&directory, b"file").unwrap();
    let then = disk.take("after");
    copy.receive(&disk.stream("after", Some("deep"))).unwrap();
    expect_same(&then, &content(copy.fs()));
}

#[test]
fn a_tree_with_the_reserved_name_is_not_sent() {
    let disk = Disk::new(4096);
    disk.volume.root().create_dir(".dure-receive").unwrap();
    disk.take("one");
    let error = send(&disk.volume, "one", None, &mut Vec::new(), &mut go).unwrap_err();
    assert!(error.to_string().contains("reserved"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}
