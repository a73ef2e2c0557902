//! Mappings of files of the mount that the program has left.
//!
//! **Problem.** The server shares the memory of the program, and with it its mappings: the mount would be
//! in use for ever. **Structure.** The kernel lists them, with the device of each. **Invariants.** The
//! program has ended. What was stored in a mapping is written when it is unmapped. **On a crash** nothing.

use std::path::Path;

/// The device that is mounted on a directory.
pub(super) fn device(at: &Path) -> Option<(u32, u32)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let root = statx(CWD, at, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some((root.stx_dev_major, root.stx_dev_minor))
}

/// Unmaps all files of the mount `at`.
pub(super) fn unmap(at: &Path) {
    let Some(device) = device(at) else {
        return;
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, len) in maps.lines().filter_map(|line| mapping(line, device)) {
        // SAFETY: the program's, which has ended; no memory of the library is a file of the volume.
        let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(start), len) };
    }
}

/// Start and length of a mapping of the device.
fn mapping(line: &str, device: (u32, u32)) -> Option<(usize, usize)> {
    // Addresses, access, offset, device, inode, path.
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (major, minor) = words.nth(2)?.split_once(':')?;
    let number = |word| usize::from_str_radix(word, 16).ok();
    let part = |word| u32::from_str_radix(word, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    ((part(major)?, part(minor)?) == device).then_some((start, end - start))
}
