//! Image files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::program::{printed, text};

const MIB: u64 = 1 << 20;
/// Two segments of 2 MiB.
const LOG: u64 = 4 * MIB;

/// A flush of a commit would otherwise wait for the file system below, which allocates blocks and
/// logs that. Of a block device nobody allocates.
#[test]
fn an_image_has_blocks_for_the_logs_of_this_machines_cores() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    printed(&["mkfs", "--size", "16G", "--journals", "64", text(&image)]);
    let taken = fs::metadata(&image).unwrap().blocks() * 512;
    let cores = u64::try_from(dure_sync::core_count()).unwrap().min(64);
    let logs = cores * LOG;
    assert!((logs..logs + 4 * MIB).contains(&taken), "{taken} bytes");
    printed(&["check", text(&image)]);
}
