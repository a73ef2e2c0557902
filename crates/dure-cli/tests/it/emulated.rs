//! Image files that are used as if they were persistent memory.

use std::fs;

use crate::program::{Mounted, can_mount, dure, errors, printed, refused, text, volume};

/// What was synced is in the image although nothing was flushed: it survives the end of the server.
#[test]
fn a_volume_can_be_in_emulated_persistent_memory() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let (place, crashed) = (folder.path().join("m"), folder.path().join("crashed.img"));
    fs::create_dir(&place).unwrap();
    let no = refused(&["mount", "-o", "nvm=yes", text(&volume), text(&place)]);
    assert!(no.contains("auto, off, direct, emulated, optane"), "{no}");
    let direct = ["mount", "-o", "nvm=direct", text(&volume), text(&place)];
    let no = errors(&dure(&direct));
    assert!(no.contains("not on persistent memory"), "{no}");
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&volume, "m", "nvm=emulated,commit=3600");
    fs::write(mounted.path("f"), b"written").unwrap();
    fs::File::open(mounted.path("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    fs::copy(&volume, &crashed).unwrap();
    assert_eq!(printed(&["cat", text(&crashed), "/f"]), "written");
    mounted.end();
    printed(&["check", text(&volume)]);
    let mounted = Mounted::new(&volume, "m", "nvm=off");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"written");
    mounted.end();
}

/// Without a page cache what a call has returned for is in the image, although nothing was synced.
#[test]
fn without_a_page_cache_calls_are_durable_when_they_return() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let (place, crashed) = (folder.path().join("m"), folder.path().join("crashed.img"));
    fs::create_dir(&place).unwrap();
    let refused_for = |options: &str| {
        errors(&dure(&[
            "mount",
            "-o",
            options,
            text(&volume),
            text(&place),
        ]))
    };
    let no = refused_for("page_cache=none");
    assert!(no.contains("not wholly in persistent memory"), "{no}");
    let no = refused_for("nvm=emulated,durability=strict");
    assert!(no.contains("page_cache=none"), "{no}");
    if !can_mount() {
        return;
    }
    let no = refused_for("nvm=emulated,page_cache=none,writeback");
    assert!(no.contains("durable when it returns"), "{no}");
    let mounted = Mounted::new(&volume, "m", "nvm=emulated,page_cache=none,commit=3600");
    let long = vec![7; 300_000];
    fs::write(mounted.path("f"), b"written").unwrap();
    fs::write(mounted.path("long"), &long).unwrap();
    fs::rename(mounted.path("f"), mounted.path("moved")).unwrap();
    assert_eq!(fs::read(mounted.path("long")).unwrap(), long);
    fs::copy(&volume, &crashed).unwrap();
    assert_eq!(printed(&["cat", text(&crashed), "/moved"]), "written");
    assert_eq!(printed(&["cat", text(&crashed), "/long"]).len(), long.len());
    assert_eq!(printed(&["ls", text(&crashed)]), "long\nmoved\n");
    mounted.end();
    printed(&["check", text(&volume)]);
}
