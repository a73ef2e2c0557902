//! The NUMA node of a file: what sysfs says of the device below it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The node of the device that `path` is, or lies on; `None` if the kernel does not tell.
pub(crate) fn node_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::FileTypeExt;
    let data = std::fs::metadata(path).ok()?;
    let device = match data.file_type().is_block_device() {
        true => data.rdev(),
        false => data.dev(),
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let base = format!("/sys/dev/block/{major}:{minor}");
    // Of a partition, its disk knows.
    let places = ["device/numa_node", "../device/numa_node"];
    let read = |place: &&str| std::fs::read_to_string(format!("{base}/{place}")).ok();
    let text = places.iter().find_map(read)?;
    // -1: none.
    text.trim().parse().ok()
}
