//! What to do about an error: told behind it, on the same line.
//!
//! **Problem.** The crates below say what happened and where; only the command knows what a user
//! can do about it, such as where a volume in use is mounted. **Structure.** Functions over the
//! causes of an error. **Invariants.** Nothing is changed, and no server is asked: it may hang.
//! **Crash.** Nothing.

use std::path::Path;

use dure_block::Error;
use dure_fuse::MountError;
use dure_fuse::mount::says_server_gone;
use rustix::io::Errno;

use crate::blank;
use crate::mounts;

/// The smallest volume: an image of less has to become larger.
const MKFS_BYTES: u64 = 4 << 20;

/// What can be done about `error`, if it is one of those that leave a choice.
pub(crate) fn of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(MountError::ServerGone { path }) = cause.downcast_ref() {
            return Some(clear(path));
        }
        match cause.downcast_ref()? {
            Error::Locked { path, .. } | Error::Busy { path } => in_use(path),
            Error::Open { path, os, .. } if says_server_gone(os.errno()) => Some(format!(
                "the server of a mount there is gone; {}",
                clear(path)
            )),
            Error::Open { os, .. } if os.errno() == Errno::ROFS.raw_os_error() => {
                Some("it can only be read; `dure mount -o ro` shows it".to_owned())
            }
            Error::Open { path, os, .. } if os.errno() == Errno::NOENT.raw_os_error() => {
                Some(missing(path))
            }
            Error::Open { os, .. } if os.errno() == Errno::ACCESS.raw_os_error() => Some(
                "its owner and mode, or those of a directory above it, do not let you".to_owned(),
            ),
            _ => None,
        }
    })
}

/// What can be done about `error`, which was met on the volume at `path`.
pub(crate) fn of_volume(error: &anyhow::Error, path: &Path) -> Option<String> {
    let path_shown = path.display();
    error.chain().find_map(|cause| match cause.downcast_ref()? {
        dure_fs::Error::TooSmall { what, .. } if *what == dure_fs::Error::VOLUME_ON_DEVICE => {
            Some(incomplete(path))
        }
        dure_fs::Error::NotDure => match blank::bytes_of_zeros(path)? {
            0..MKFS_BYTES => Some(format!(
                "it is empty; `dure mkfs --force --size 1G {path_shown}` makes a volume of it"
            )),
            _ => Some(format!(
                "it holds nothing but zeros; `dure mkfs {path_shown}` makes a volume of it"
            )),
        },
        _ => None,
    })
}

/// What to do about a volume whose end is not there.
pub(crate) fn incomplete(path: &Path) -> String {
    format!(
        "the copy is incomplete, or the device became smaller: copy the whole volume again, or save what \
         this part has with `dure rescue {} DIRECTORY`",
        path.display()
    )
}

fn missing(path: &Path) -> String {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    match directory.filter(|directory| !directory.is_dir()) {
        Some(directory) => format!("there is no directory {}", directory.display()),
        None => "`dure mkfs` makes volumes".to_owned(),
    }
}

fn clear(path: &Path) -> String {
    format!("`dure umount {}` clears it", path.display())
}

fn in_use(path: &Path) -> Option<String> {
    let mount = mounts::of(path)?;
    let directory = mount.directory.display();
    Some(if mount.is_dure() {
        format!("it is mounted on {directory}; `dure umount {directory}` ends that")
    } else {
        let kind = mount.kind;
        format!("it is mounted on {directory} as {kind}; `umount {directory}` ends that")
    })
}
