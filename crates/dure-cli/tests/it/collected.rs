//! Writes that the kernel collects (`-o writeback`).

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::program::{Loop, Mounted, can_mount, printed, text, volume};

/// A hundredth, as the kernel has it, made writers wait for the server after few of them.
#[test]
fn writes_that_the_kernel_collects_take_up_to_half_of_the_memory_for_dirty_pages() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let ratio = |mounted: &Mounted, suffix: &str| {
        let device = fs::metadata(&mounted.0).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let limits = format!("/sys/class/bdi/{major}:{minor}{suffix}");
        let of = |name| fs::read_to_string(format!("{limits}/{name}")).unwrap();
        // A limit of its own it keeps: a server may hang.
        assert_eq!(of("strict_limit").trim(), "1");
        of("max_ratio").trim().parse::<u32>().unwrap()
    };
    for (options, want) in [("writethrough", 1), ("writeback", 50)] {
        let mounted = Mounted::new(&image, "m", options);
        assert_eq!(ratio(&mounted, ""), want, "{options}");
        mounted.end();
    }
    let Some(looped) = Loop::new(&image) else {
        return;
    };
    let directory = folder.path().join("n");
    fs::create_dir(&directory).unwrap();
    printed(&[
        "mount",
        "-o",
        "writeback",
        text(&looped.0),
        text(&directory),
    ]);
    let mounted = Mounted(directory);
    assert_eq!(ratio(&mounted, "-fuseblk"), 50);
    mounted.end();
}
