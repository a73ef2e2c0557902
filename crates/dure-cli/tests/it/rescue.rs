//! `dure rescue`: what it brings to the host, what it says, and what it refuses.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::program::{dure, errors, printed, refused, text, volume};

const PAGE: usize = 4096;

/// Fills the volume with a tree of the host, and returns the tree.
fn filled(folder: &Path, image: &Path) -> std::path::PathBuf {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), vec![b'f'; 3 * PAGE + 5]).unwrap();
    fs::hard_link(tree.join("sub/file"), tree.join("again")).unwrap();
    fs::set_permissions(tree.join("again"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("sub/file", tree.join("link")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 16 << 20).unwrap();
    let hit: Vec<u8> = (0..4_u8).flat_map(|n| vec![0xa0 + n; PAGE]).collect();
    fs::write(tree.join("hit"), hit).unwrap();
    let color = (tree.join("again"), c"user.color", b"red");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&color.0, color.1, color.2, flags).unwrap();
    fs::File::open(tree.join("sub"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1234, 567))
        .unwrap();
    printed(&["put", "-q", text(image), text(&tree), "/"]);
    tree
}

fn compare(tree: &Path, got: &Path) {
    for name in ["sub/file", "again", "sparse"] {
        let same = fs::read(tree.join(name)).unwrap() == fs::read(got.join(name)).unwrap();
        assert!(same, "{name}");
    }
    let file = fs::metadata(got.join("again")).unwrap();
    assert_eq!(
        file.ino(),
        fs::metadata(got.join("sub/file")).unwrap().ino()
    );
    let root = rustix::process::geteuid().is_root();
    let mode = if root { 0o4751 } else { 0o751 };
    assert_eq!(file.mode() & 0o7777, mode);
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(got.join("again"), c"user.color", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"red");
    let target = fs::read_link(got.join("link")).unwrap();
    assert_eq!(target, Path::new("sub/file"));
    let sub = fs::metadata(got.join("sub")).unwrap();
    assert_eq!((sub.mtime(), sub.mtime_nsec()), (1234, 567));
    let sparse = fs::metadata(got.join("sparse")).unwrap();
    assert!(sparse.blocks() < 64, "{} blocks", sparse.blocks());
}

#[test]
fn a_whole_volume_comes_out_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let tree = filled(folder.path(), &image);
    let got = folder.path().join("got");
    let said = printed(&["rescue", text(&image), text(&got)]);
    assert!(said.starts_with("8 files and directories"), "{said}");
    compare(&tree, &got.join("tree"));
    assert_eq!(
        fs::read(tree.join("hit")).unwrap(),
        fs::read(got.join("tree/hit")).unwrap()
    );
    let refusal = refused(&["rescue", text(&image), text(&got)]);
    assert!(refusal.contains("is not empty"), "{refusal}");
}

#[test]
fn a_volume_without_a_header_is_read_and_losses_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let tree = filled(folder.path(), &image);
    let mut bytes = fs::read(&image).unwrap();
    bytes[2 * PAGE..6 * PAGE].fill(0);
    let page = bytes
        .chunks(PAGE)
        .position(|page| page == [0xa2; PAGE])
        .unwrap();
    bytes[page * PAGE + 7] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let got = folder.path().join("got");
    fs::create_dir(&got).unwrap();
    refused(&["ls", text(&image), "/"]);
    let output = dure(&["rescue", text(&image), text(&got)]);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}{}", errors(&output));
    assert!(said.contains("lost: volume header"), "{said}");
    assert!(said.contains("lost: /tree/hit (inode "), "{said}");
    assert!(
        said.contains("pages 2 to 2 are destroyed and read as zeroes"),
        "{said}"
    );
    compare(&tree, &got.join("tree"));
    let hit = fs::read(got.join("tree/hit")).unwrap();
    let pages: Vec<u8> = hit.chunks(PAGE).map(|page| page[9]).collect();
    assert_eq!(pages, [0xa0, 0xa1, 0, 0xa3]);
    assert!(
        fs::read(&image).unwrap() == bytes,
        "the volume is as it was"
    );
}

#[test]
fn a_repair_with_an_undo_file_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    filled(folder.path(), &image);
    let file = folder.path().join("undo");
    let repair = ["check", "--repair", "--undo", text(&file), text(&image)];
    printed(&repair);
    assert!(!file.exists(), "nothing was written");
    let mut bytes = fs::read(&image).unwrap();
    bytes[2 * PAGE..6 * PAGE].fill(0);
    fs::write(&image, &bytes).unwrap();
    let output = dure(&repair);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let said = format!(
        "`dure undo {} {}` takes this back",
        text(&file),
        text(&image)
    );
    assert!(errors(&output).contains(&said), "{}", errors(&output));
    let repaired = fs::read(&image).unwrap();
    let refusal = refused(&repair);
    assert!(refusal.contains("cannot make the undo file"), "{refusal}");
    printed(&["undo", text(&file), text(&image)]);
    assert!(fs::read(&image).unwrap() == bytes);
    fs::write(&image, &repaired).unwrap();
    printed(&["mkdir", text(&image), "/new"]);
    let refusal = refused(&["undo", text(&file), text(&image)]);
    assert!(
        refusal.contains("was changed after the repair"),
        "{refusal}"
    );
    printed(&["ls", text(&image), "/new"]);
}

#[test]
fn a_safe_repair_leaves_what_needs_a_rebuild() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    filled(folder.path(), &image);
    let mut bytes = fs::read(&image).unwrap();
    bytes[2 * PAGE..6 * PAGE].fill(0);
    fs::write(&image, &bytes).unwrap();
    let safe = dure(&["check", "--repair", "--safe", text(&image)]);
    let code = safe.status.code();
    assert!(matches!(code, Some(4 | 8)), "{code:?} {}", errors(&safe));
    assert!(fs::read(&image).unwrap() == bytes, "it wrote");
    let whole = dure(&["check", "--repair", text(&image)]);
    assert_eq!(whole.status.code(), Some(1), "{}", errors(&whole));
}

/// The repair ended with 0, as if nothing had been written; so did the check before it, as if nothing
/// was wrong.
#[test]
fn a_superblock_that_is_made_again_is_a_repair() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[..PAGE].fill(0);
    fs::write(&image, &bytes).unwrap();
    for (arguments, code) in [
        (&["check"][..], 4),
        (&["check", "--repair"], 1),
        (&["check"], 0),
    ] {
        let output = dure(&[arguments, &[text(&image)]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
    }
}

/// init reboots the machine if fsck ends with 2.
#[test]
fn wrong_arguments_of_a_check_end_with_sixteen() {
    for arguments in [&["check", "--nonsense"][..], &["check", "--safe", "v"]] {
        assert_eq!(dure(arguments).status.code(), Some(16), "{arguments:?}");
    }
    assert_eq!(dure(&["info", "--nonsense"]).status.code(), Some(2));
}
