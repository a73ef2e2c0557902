//! How much of a mount's data may wait in the kernel's cache.
//!
//! **Problem.** The kernel collects writes of a mount whose server takes `WRITEBACK_CACHE`. Since
//! such a server may be anybody's, and may hang, a hundredth of all the memory for dirty pages is
//! what a mount gets: beyond it, writers wait for the server. **Structure.** Root, who mounts for
//! the whole machine as with any other file system, gives the mount a half.
//! **Invariants.** The mount stays under a limit of its own (`strict_limit`), so a server that hangs
//! leaves others the other half. A limit that somebody has set is left as it is, and so is that of a
//! mount by a user, who may not set it. **Crash.** What waits there is lost with the machine; with
//! the server, too.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Percent of the memory for dirty pages: as mounted, and what is set.
const MAX_RATIO: (u32, u32) = (1, 50);

/// Of the mount at `path`, which may not be served yet.
///
/// # Errors
/// Those of sysfs: it is read-only, or of others. Nothing is changed.
pub(super) fn widen(path: &Path, is_fuseblk: bool) -> io::Result<()> {
    // Without a request to the server.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let mount = statx(CWD, path, flags, StatxFlags::empty())?;
    let suffix = if is_fuseblk { "-fuseblk" } else { "" };
    let (major, minor) = (mount.stx_dev_major, mount.stx_dev_minor);
    let ratio = format!("/sys/class/bdi/{major}:{minor}{suffix}/max_ratio");
    if fs::read_to_string(&ratio)?.trim() == MAX_RATIO.0.to_string() {
        fs::write(&ratio, MAX_RATIO.1.to_string())?;
    }
    Ok(())
}
