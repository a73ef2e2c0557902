//! Where snapshots are mounted for links: directories that no other user can change.
//!
//! **Structure.** `/run/dure` of root, `$XDG_RUNTIME_DIR/dure` of a user or, without that,
//! `/tmp/dure-UID`; there a directory for each server, whose name tells whether that still runs.
//! **Crash.** What a server leaves when it is killed the next one of the user takes away.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dure_sync::clock;
use rustix::fs::Access;
use rustix::process::geteuid;

/// Where the servers of this user show snapshots for links.
pub(super) fn directory_of_all() -> PathBuf {
    let user = geteuid();
    let place = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => Some(PathBuf::from("/run")),
        place => place.map(PathBuf::from),
    };
    let usable = |place: &PathBuf| rustix::fs::access(place, Access::WRITE_OK).is_ok();
    let place = place.and_then(|place| place.canonicalize().ok());
    match place.filter(usable) {
        Some(place) => place.join("dure"),
        None => std::env::temp_dir().join(format!("dure-{}", user.as_raw())),
    }
}

/// Whether it is a directory of this user that others cannot change.
pub(super) fn is_own(directory: &Path) -> bool {
    let found = fs::symlink_metadata(directory);
    found.is_ok_and(|found| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
    })
}

/// The namespace of this process's number: other namespaces have the same numbers.
fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect()
}

/// A name that no other server has, also of those that had the same number.
pub(super) fn name_of_server() -> String {
    let now = clock::monotonic_ns();
    format!("{}.{}.{now:x}", namespace(), std::process::id())
}

/// Whether the server with this name is there no more. One with the number of this process is
/// another one: this one has no directory yet.
pub(super) fn was_killed(name: &str) -> bool {
    let mut parts = name.split('.');
    let (space, process) = (parts.next(), parts.next());
    let process: Option<u32> = process.and_then(|process| process.parse().ok());
    let Some(process) = process else {
        return false;
    };
    let is_own = process == std::process::id();
    space == Some(&*namespace()) && (is_own || is_gone(process))
}

/// Whether there is no such process, or only what is left of it until it is waited for.
fn is_gone(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    status.map_or(true, |status| status.contains(") Z "))
}

#[cfg(test)]
mod tests {
    use super::{name_of_server, namespace, was_killed};

    #[test]
    fn only_a_server_of_this_namespace_that_is_gone_was_killed() {
        assert!(
            was_killed(&name_of_server()),
            "one before, with this number"
        );
        assert!(!was_killed(&format!("{}.1.0", namespace())));
        assert!(!was_killed("0.999999999.0"), "of another namespace");
        assert!(was_killed(&format!("{}.999999999.0", namespace())));
        for name in ["", "1", "x.y.z", "..", "4026531836.-1.0"] {
            assert!(!was_killed(name), "{name}");
        }
    }
}
