use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::{FileTimes, Seek, Special, TimeChange, Timestamp, Volume, XattrMode};

fn go(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn make_host_tree(at: &Path) {
    fs::create_dir(at.join("sub")).unwrap();
    fs::write(at.join("sub/file"), b"content").unwrap();
    fs::hard_link(at.join("sub/file"), at.join("other")).unwrap();
    symlink("sub/file", at.join("link")).unwrap();
    host::make_special(&at.join("pipe"), rustix::fs::FileType::Fifo, 0).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    fs::set_permissions(at.join("sub/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at.join("sub"), fs::Permissions::from_mode(0o2770)).unwrap();
}

#[test]
fn a_tree_comes_back_as_it_went() {
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("source");
    fs::create_dir(&source).unwrap();
    make_host_tree(&source);
    let volume = Volume::in_memory(64 << 20).unwrap();
    let session = volume.root();
    let times = FileTimes {
        accessed: TimeChange::Set(Timestamp {
            secs: 5_000_000_000,
            nanos: 7,
        }),
        modified: TimeChange::Set(Timestamp {
            secs: -3,
            nanos: 999_999_999,
        }),
    };
    let progress = put(&session, &source, "copy", &mut go).unwrap();
    assert_eq!(progress.files, 7);
    assert_eq!(progress.bytes, 3 + 7, "holes are not copied");

    let file = session.metadata("copy/sub/file").unwrap();
    assert_eq!((file.mode(), file.nlink()), (0o4751, 2));
    assert_eq!(file.ino(), session.metadata("copy/other").unwrap().ino());
    assert_eq!(session.read("copy/link").unwrap(), b"content");
    let sparse = session.open("copy/sparse").unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), (10 << 20) + 3);
    assert_eq!(sparse.seek_to(Seek::Data(0)).unwrap(), 10 << 20);
    session.set_times("copy/sub", times).unwrap();
    session
        .set_xattr("copy/other", b"user.color", b"red", XattrMode::Any)
        .unwrap();

    let target = host.path().join("target");
    let back = get(&session, "copy", &target, &mut go).unwrap();
    assert_eq!(back.files, 7);
    let sub = fs::metadata(target.join("sub")).unwrap();
    assert_eq!(sub.mode() & 0o7777, 0o2770);
    assert_eq!((sub.mtime(), sub.mtime_nsec()), (-3, 999_999_999));
    assert_eq!((sub.atime(), sub.atime_nsec()), (5_000_000_000, 7));
    let (a, b) = (target.join("sub/file"), target.join("other"));
    assert_eq!(
        fs::metadata(&a).unwrap().ino(),
        fs::metadata(&b).unwrap().ino()
    );
    assert_eq!(fs::metadata(&a).unwrap().mode() & 0o7777, 0o4751);
    let sparse = fs::metadata(target.join("sparse")).unwrap();
    assert_eq!(sparse.len(), (10 << 20) + 3);
    assert!(
        sparse.blocks() < 1024,
        "holes stay holes: {} blocks",
        sparse.blocks()
    );
    let colour = host::attributes(&b).unwrap();
    let red = (b"user.color".to_vec(), b"red".to_vec());
    assert!(
        colour.contains(&red) || back.attributes_skipped > 0,
        "{colour:?}"
    );
}

#[test]
fn a_failure_names_the_path_and_a_break_stops() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let session = volume.root();
    let error = put(&session, "/no/such/thing", "copy", &mut go).unwrap_err();
    assert!(
        error.to_string().starts_with("read /no/such/thing: "),
        "{error}"
    );
    session.create_dir("dir").unwrap();
    session.mknod("dir/pipe", Special::Fifo, 0o644).unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut stop = |_: &Progress| ControlFlow::Break(());
    let error = get(&session, "dir", host.path().join("x"), &mut stop).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::INTR.raw_os_error());
}
