//! Which cache the writes of a mount fill, and how much may wait there.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::program::{Loop, Mounted, can_mount, printed, text, volume};

/// What the kernel lets wait of the mount at `directory`, in bytes.
fn limit(directory: &Path, suffix: &str) -> u64 {
    let device = fs::metadata(directory).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let limits = format!("/sys/class/bdi/{major}:{minor}{suffix}");
    let of = |name| fs::read_to_string(format!("{limits}/{name}")).unwrap();
    // A limit of its own it keeps: a server may hang.
    assert_eq!(of("strict_limit").trim(), "1");
    of("max_bytes").trim().parse().unwrap()
}

/// The value of a row that `dure info` shows of a mount.
fn row(directory: &Path, key: &str) -> Option<String> {
    let info = printed(&["info", text(directory)]);
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(&format!("{key:<20} ")));
    found.map(str::to_owned)
}

/// The volume has 64 MiB: of what it has free, a thirty-second part in powers of two.
#[test]
fn the_kernel_collects_as_much_as_there_is_room_for() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    for options in ["rw", "writeback"] {
        let mounted = Mounted::new(&image, "m", options);
        let cache = row(&mounted.0, "write cache").unwrap();
        assert_eq!(cache, "writeback, up to 1.0 MiB, for which room is kept");
        // The kernel keeps it as a part of its memory for dirty pages, which moves meanwhile.
        let limit = limit(&mounted.0, "");
        assert!((512 << 10..2 << 20).contains(&limit), "{limit}");
        mounted.end();
    }
    let mounted = Mounted::new(&image, "m", "writethrough");
    assert_eq!(row(&mounted.0, "write cache").unwrap(), "writethrough");
    assert_eq!(
        row(&mounted.0, "why writethrough"),
        None,
        "it was asked for"
    );
    mounted.end();
    let Some(looped) = Loop::new(&image) else {
        return;
    };
    let directory = folder.path().join("n");
    fs::create_dir(&directory).unwrap();
    printed(&["mount", text(&looped.0), text(&directory)]);
    let mounted = Mounted(directory);
    let limit = limit(&mounted.0, "-fuseblk");
    assert!(limit < 2 << 20, "{limit}");
    mounted.end();
}

#[test]
fn a_volume_that_is_too_small_is_written_through() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("small.img");
    printed(&["mkfs", "--size", "24M", text(&image)]);
    let mounted = Mounted::new(&image, "m", "rw");
    assert_eq!(row(&mounted.0, "write cache").unwrap(), "writethrough");
    let why = row(&mounted.0, "why writethrough").unwrap();
    assert_eq!(why, "the volume is too small to keep room for it");
    mounted.end();
}
