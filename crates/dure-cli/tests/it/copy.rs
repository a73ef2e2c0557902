//! `dure put` and `dure get` of several sources at once.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::program::{dure, errors, printed, refused, text, volume};

/// Each source had a map of its own, and the second name became a second file.
#[test]
fn hard_links_between_sources_stay_hard_links() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a"), "sown").unwrap();
    fs::hard_link(path("a"), path("b")).unwrap();
    printed(&[
        "put",
        "-q",
        text(&image),
        text(&path("a")),
        text(&path("b")),
        "/",
    ]);
    let listed = printed(&["ls", "-l", text(&image), "/"]);
    let links = listed.lines().filter(|line| line.contains(" 2 ")).count();
    assert_eq!(links, 2, "{listed}");
    fs::create_dir(path("out")).unwrap();
    printed(&["get", "-q", text(&image), "/a", "/b", text(&path("out"))]);
    let inode = |name: &str| fs::metadata(path("out").join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("b"));
}

/// A clone is the tree, with its links, and takes no room; what is written to it leaves the source.
#[test]
fn a_tree_is_cloned_within_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("tree/deep")).unwrap();
    let content: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    fs::write(path("tree/deep/large"), &content).unwrap();
    fs::hard_link(path("tree/deep/large"), path("tree/link")).unwrap();
    std::os::unix::fs::symlink("deep/large", path("tree/symbolic")).unwrap();
    let image = text(&image);
    printed(&["put", "-q", image, text(&path("tree")), "/tree"]);
    let said = printed(&["clone", image, "/tree", "/copy"]);
    assert!(said.contains("5 files and directories"), "{said}");
    let info = printed(&["info", image]);
    let spared = info.lines().find(|line| line.contains("spared by clones"));
    assert!(spared.is_some_and(|line| line.contains("74")), "{info}");
    fs::write(path("new"), "sown").unwrap();
    printed(&["put", "-q", image, text(&path("new")), "/copy/deep/large"]);
    printed(&["rm", "-r", image, "/tree"]);
    printed(&["get", "-q", image, "/copy", text(&path("out"))]);
    assert!(fs::read(path("out/link")).unwrap() == content);
    assert_eq!(fs::read(path("out/deep/large")).unwrap(), b"sown");
    let target = fs::read_link(path("out/symbolic")).unwrap();
    assert_eq!(target.to_str(), Some("deep/large"));
    let said = refused(&["clone", image, "/copy", "/copy/deep/again"]);
    assert!(said.contains("into itself"), "{said}");
    printed(&["check", image]);
}

/// A copy ended at the first damaged page, and left a part of the file under its name.
#[test]
fn a_copy_goes_on_behind_a_damaged_file_and_leaves_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("tree")).unwrap();
    let lines: String = (0..40_000).map(|line| format!("{line}\n")).collect();
    for (name, content) in [("a", "first"), ("large", lines.as_str()), ("z", "last")] {
        fs::write(path("tree").join(name), content).unwrap();
    }
    printed(&["put", "-q", text(&image), text(&path("tree")), "/tree"]);
    let mut bytes = fs::read(&image).unwrap();
    let damaged = b"\n20000\n";
    let mut windows = bytes.windows(damaged.len());
    let at = windows.position(|window| window == damaged).unwrap();
    bytes[at + 2] ^= 1;
    fs::write(&image, bytes).unwrap();
    let output = dure(&["get", text(&image), "/", text(&path("out"))]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    let offset = lines.find("\n20000\n").unwrap() / 4096 * 4096;
    let line = format!("/tree/large is not copied: byte {offset} cannot be read: corrupt");
    assert!(said.contains(&line), "{said}");
    assert!(said.contains("`dure rescue"), "{said}");
    assert_eq!(fs::read(path("out/tree/a")).unwrap(), b"first");
    assert_eq!(fs::read(path("out/tree/z")).unwrap(), b"last");
    assert!(!path("out/tree/large").exists(), "a part is left");
    refused(&["get", text(&image), "/tree/large", text(&path("one"))]);
    assert!(!path("one").exists(), "a part is left");
}

/// It said that a file was cloned, and had replaced it by itself.
#[test]
fn a_file_is_not_cloned_onto_itself() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    let file = folder.path().join("file");
    fs::write(&file, "sown").unwrap();
    printed(&["put", "-q", v, text(&file), "/copy"]);
    for to in ["/copy", "/", "copy"] {
        let said = refused(&["clone", v, "/copy", to]);
        assert!(said.contains("clone a file onto itself"), "{said}");
    }
    assert_eq!(printed(&["cat", v, "/copy"]), "sown");
}
