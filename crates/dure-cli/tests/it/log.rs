//! The log of a mount's server, and what `dure info` says of a mounted volume.

use std::fs;

use crate::program::{Mounted, can_mount, dure, printed, refused, text, volume};

const PAGE: usize = 4096;

#[test]
fn a_mount_and_the_damage_it_meets_are_in_its_log() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let source = folder.path().join("rotten");
    fs::write(&source, [0xa7; 3 * PAGE]).unwrap();
    printed(&["put", "-q", text(&image), text(&source), "/"]);
    let mut bytes = fs::read(&image).unwrap();
    let page = bytes.chunks(PAGE).position(|page| page == [0xa7; PAGE]);
    bytes[page.unwrap() * PAGE] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let file = folder.path().join("dure.log");
    let mount = Mounted::new(&image, "m", &format!("log={}", text(&file)));
    assert!(fs::read(mount.path("rotten")).is_err());
    for path in [&image, &mount.path("")] {
        let info = printed(&["info", text(path)]);
        assert!(info.contains("state                mounted\n"), "{info}");
        let transports = ["uring\n", "device\n"].map(|word| format!("transport            {word}"));
        let is_shown = transports.map(|line| info.contains(&line));
        assert_ne!(is_shown[0], is_shown[1], "{info}");
        assert_eq!(info.contains("why no rings"), is_shown[1], "{info}");
        assert!(info.contains(" error: "), "{info}");
        assert!(info.contains("info: mounted on "), "{info}");
    }
    let json = printed(&["info", "--json", text(&image)]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // The kernel asks for a page that fails more than once.
    assert!(json["log"].as_array().unwrap().len() >= 2, "{json}");
    let top = printed(&["top", "--once", text(&image)]);
    assert!(top.contains(" error: "), "{top}");
    mount.end();
    let log = fs::read_to_string(&file).unwrap();
    // Where the kernel has no rings the mount says so first.
    let is_about_rings = |line: &&str| line.contains(" transport=uring: ");
    let lines: Vec<&str> = log.lines().skip_while(is_about_rings).collect();
    let [first, damage @ .., last] = &lines[..] else {
        panic!("{log}");
    };
    assert!(
        first.contains("mounted on ") && last.contains("unmounted"),
        "{log}"
    );
    assert!(!damage.is_empty(), "{log}");
    assert!(damage.iter().all(|line| line.contains("checksum")), "{log}");
    assert!(
        lines.iter().all(|line| line.contains(text(&image))),
        "{log}"
    );
    assert!(printed(&["info", text(&image)]).contains("clean\n"));
}

/// It was mounted as if nothing had happened.
#[test]
fn a_mount_says_that_the_first_superblock_is_damaged() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[..PAGE].fill(0);
    fs::write(&image, &bytes).unwrap();
    let said = || {
        let mount = Mounted::new(&image, "m", "");
        let info = printed(&["info", text(&image)]);
        mount.end();
        info.contains("the first superblock is damaged")
    };
    assert!(said());
    assert_eq!(
        dure(&["check", "--repair", text(&image)]).status.code(),
        Some(1)
    );
    assert!(!said());
}

#[test]
fn a_log_that_cannot_be_written_is_no_mount() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let (image, place) = (text(&image), text(folder.path()));
    let refusal = refused(&["mount", image, "/mnt", "--foreground", "--log", place]);
    assert!(refusal.contains("Is a directory"), "{refusal}");
    let refusal = refused(&["mount", image, "/mnt", "-o", "log-level=loud"]);
    assert!(
        refusal.contains("error, warning, info or debug"),
        "{refusal}"
    );
}
