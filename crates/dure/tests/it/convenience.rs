//! Calls as in `std::fs`, and the end of a volume.

use std::path::{Path, PathBuf};

use dure::{
    CreateOptions, Credentials, Error, FileKind, MountOptions, OpenOptions, Permissions, Seek,
    Session, Volume,
};
use rustix::io::Errno;

use crate::rules::{fails, volume};

fn root() -> Session {
    volume().root()
}

#[test]
fn text_that_is_no_utf_8_is_refused() {
    let root = root();
    root.write("note", "두레".as_bytes()).unwrap();
    assert_eq!(root.read_to_string("note").unwrap(), "두레");
    root.write("note", &[0xff]).unwrap();
    let error = root.read_to_string("note").unwrap_err();
    assert_eq!(error.errno(), Errno::ILSEQ.raw_os_error());
    assert_eq!(error.path(), Some(Path::new("note")));
}

#[test]
fn a_copy_has_content_holes_and_permissions() {
    let root = root();
    let file = root.create("from").unwrap();
    file.write_all_at(b"head", 0).unwrap();
    file.write_all_at(b"tail", 5 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
    file.set_permissions(0o751).unwrap();
    root.write("to", &[1; 100]).unwrap();
    assert_eq!(root.copy("from", "to").unwrap(), 8 << 20);
    assert_eq!(root.read("to").unwrap(), root.read("from").unwrap());
    assert_eq!(root.metadata("to").unwrap().mode(), 0o751);
    let copy = root.open("to").unwrap();
    assert_eq!(copy.seek_to(Seek::Data(4096)).unwrap(), 5 << 20);
    assert!(root.metadata("to").unwrap().blocks() <= 4 * 8, "holes stay");
    // An empty one.
    root.write("from", b"").unwrap();
    assert_eq!(root.copy("from", "to").unwrap(), 0);
    assert_eq!(root.metadata("to").unwrap().len(), 0);
}

#[test]
fn a_file_that_is_copied_to_itself_keeps_its_content() {
    let root = root();
    root.write("a", b"content").unwrap();
    root.hard_link("a", "b").unwrap();
    fails(root.copy("a", "b"), Errno::INVAL);
    fails(root.copy("a", "a"), Errno::INVAL);
    assert_eq!(root.read("a").unwrap(), b"content");
    root.create_dir("d").unwrap();
    fails(root.copy("d", "c"), Errno::INVAL);
    assert!(!root.exists("c").unwrap());
    fails(root.copy("none", "c"), Errno::NOENT);
}

#[test]
fn an_entry_knows_its_path_and_its_attributes() {
    let root = root();
    root.create_dir_all("a/b").unwrap();
    root.write("a/file", b"12345").unwrap();
    root.symlink("file", "a/link").unwrap();
    let listing = root.read_dir("a").unwrap();
    let entries: Vec<_> = listing.collect::<Result<_, Error>>().unwrap();
    let mut paths: Vec<PathBuf> = entries.iter().map(dure::DirEntry::path).collect();
    paths.sort();
    assert_eq!(paths, ["a/b", "a/file", "a/link"].map(PathBuf::from));
    for entry in &entries {
        let metadata = entry.metadata().unwrap();
        assert_eq!(
            (metadata.ino(), metadata.kind()),
            (entry.ino(), entry.kind())
        );
        if entry.kind() == FileKind::File {
            assert_eq!(metadata.len(), 5);
        }
    }
    let file = entries
        .iter()
        .find(|entry| entry.file_name() == "file")
        .unwrap();
    // It is looked for in the directory that was listed, not by the path.
    root.rename("a", "moved").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    root.remove_file("moved/file").unwrap();
    let error = file.metadata().unwrap_err();
    assert_eq!(error.to_string(), "stat a/file: no such file or directory");
}

#[test]
fn attributes_of_entries_need_the_right_to_search() {
    let root = root();
    root.create_dir("listed").unwrap();
    root.write("listed/file", b"").unwrap();
    root.set_permissions("listed", 0o744).unwrap();
    let user = root.with_credentials(Credentials::user(1000, 100, &[]));
    let entry = user.read_dir("listed").unwrap().next().unwrap().unwrap();
    fails(entry.metadata(), Errno::ACCESS);
    root.set_permissions("listed", 0o755).unwrap();
    assert!(entry.metadata().unwrap().is_file());
}

#[test]
fn permissions_are_twelve_bits() {
    let root = root();
    root.write("file", b"").unwrap();
    root.set_permissions("file", Permissions::from_mode(0o10_4750))
        .unwrap();
    let mut permissions = root.metadata("file").unwrap().permissions();
    assert_eq!(permissions.mode(), 0o4750);
    assert!(!permissions.readonly());
    permissions.set_readonly(true);
    assert!(permissions.readonly());
    assert_eq!(permissions, Permissions::from(0o4550));
    permissions.set_readonly(false);
    assert_eq!(permissions.mode(), 0o4750);
    assert_eq!(format!("{permissions:?}"), "Permissions(0o4750)");
}

#[test]
fn a_closed_volume_is_read_only_and_in_use_until_its_last_handle_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume.img");
    let options = CreateOptions {
        image_bytes: Some(32 << 20),
        ..CreateOptions::default()
    };
    let volume = Volume::create(&path, &options).unwrap();
    let root = volume.root();
    let both = OpenOptions::new().read(true).write(true).create(true);
    let file = both.open(&root, "file").unwrap();
    file.write_all_at(b"before", 0).unwrap();
    volume.close().unwrap();
    volume.close().unwrap();
    fails(file.write_at(b"x", 0), Errno::ROFS);
    fails(file.set_len(0), Errno::ROFS);
    fails(file.set_permissions(0o600), Errno::ROFS);
    fails(root.write("new", b""), Errno::ROFS);
    fails(root.remove_file("file"), Errno::ROFS);
    assert_eq!(root.read("file").unwrap(), b"before");
    let open = || Volume::open(&path, MountOptions::default());
    // Nobody else can change what these handles read.
    drop((volume, root));
    fails(open(), Errno::BUSY);
    drop(file);
    let again = open().unwrap();
    assert_eq!(again.root().read("file").unwrap(), b"before");
}
