//! `dure put` and `dure get` of several sources at once.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::program::{printed, text, volume};

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
