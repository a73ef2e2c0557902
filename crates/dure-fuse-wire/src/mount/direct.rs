//! mount(2) as root: the only way to a `fuseblk` mount, and no helper program is needed.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::{MountError, Settings};
use crate::transport::device;

/// Mounts on `path`; returns the connection to the kernel.
pub(super) fn mount(path: &Path, settings: &Settings) -> Result<OwnedFd, MountError> {
    let fuse = File::options().read(true).write(true).open(device::PATH);
    let fuse = fuse.map_err(MountError::NoFuse)?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        fuse.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    if settings.allow_other {
        data.push_str(",allow_other");
    }
    let kind = if settings.block_device {
        data.push_str(",blksize=4096");
        format!("fuseblk.{}", settings.subtype)
    } else {
        format!("fuse.{}", settings.subtype)
    };
    let flags = settings.flags;
    let data = CString::new(data).expect("mount data holds no zero byte");
    rustix::mount::mount(
        settings.source.as_str(),
        path,
        kind.as_str(),
        flags,
        data.as_c_str(),
    )
    .map_err(|error| MountError::Mount {
        path: path.to_owned(),
        source: error.into(),
    })?;
    Ok(fuse.into())
}
