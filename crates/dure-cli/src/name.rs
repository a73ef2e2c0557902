//! `mkfs.dure`, `mount.dure`, `mount.fuse.dure`, `umount.dure` and `fsck.dure`: the names by which
//! mkfs(8), mount(8), umount(8) and fsck(8) call us, and the options they pass.

use std::ffi::OsString;
use std::path::Path;

/// The command line as if the subcommand had been typed.
#[must_use]
pub fn expand(argv: Vec<OsString>) -> Vec<OsString> {
    let called = argv
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    let rest = argv.into_iter().skip(1);
    let command = match called.as_deref() {
        Some("mkfs.dure") => "mkfs",
        Some("mount.dure" | "mount.fuse.dure") => "mount",
        Some("umount.dure" | "umount.fuse.dure" | "umount.fuseblk.dure") => "umount",
        Some("fsck.dure") => return fsck(rest),
        _ => return std::iter::once("dure".into()).chain(rest).collect(),
    };
    let head = ["dure".into(), command.into()];
    match command {
        "umount" => head.into_iter().chain(umount(rest)).collect(),
        _ => head.into_iter().chain(rest).collect(),
    }
}

/// Whether mount(8) calls us: it takes 1 for wrong arguments, and 2 for an error of the system.
#[must_use]
pub fn is_mount_helper(argv: &[OsString]) -> bool {
    let name = argv.first().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == "mount.dure" || name == "mount.fuse.dure")
}

/// umount(8) passes `-l` (lazy), which is ours too, and `-n`, `-f`, `-r`, `-v`, which are not: the
/// kernel keeps the list of mounts, and no server is left behind by force.
fn umount(rest: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    rest.filter(|arg| !matches!(arg.to_str(), Some("-n" | "-f" | "-r" | "-v")))
}

/// fsck(8) passes `-a` or `-p` (repair what is safe: no user is there to be asked), `-y` (repair
/// all), `-n` (repair nothing), `-f` (always check, as we do) and `-C` (progress, which we show on
/// a terminal anyway).
fn fsck(rest: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut expanded: Vec<OsString> = vec!["dure".into(), "check".into()];
    for arg in rest {
        match arg.to_str() {
            Some("-a" | "-p") => expanded.extend(["--repair".into(), "--safe".into()]),
            Some("-y") => expanded.push("--repair".into()),
            Some("-n" | "-f" | "-V" | "-T") => {}
            Some(text) if text.starts_with("-C") => {}
            _ => expanded.push(arg),
        }
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn expanded(words: &[&str]) -> Vec<String> {
        let argv = words.iter().map(Into::into).collect();
        expand(argv)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn names_become_subcommands() {
        assert_eq!(expanded(&["/sbin/mkfs.dure", "v"]), ["dure", "mkfs", "v"]);
        assert_eq!(
            expanded(&["mount.fuse.dure", "v", "m", "-o", "ro"])[..2],
            ["dure", "mount"]
        );
        assert_eq!(expanded(&["./dure", "info", "v"]), ["dure", "info", "v"]);
    }

    #[test]
    fn options_of_fsck_and_mount_are_understood() {
        assert_eq!(
            expanded(&["fsck.dure", "-a", "-C0", "v"]),
            ["dure", "check", "--repair", "--safe", "v"]
        );
        assert_eq!(
            expanded(&["fsck.dure", "-y", "v"]),
            ["dure", "check", "--repair", "v"]
        );
        assert_eq!(expanded(&["fsck.dure", "-n", "v"]), ["dure", "check", "v"]);
        assert_eq!(
            expanded(&["umount.fuse.dure", "m", "-n", "-l"]),
            ["dure", "umount", "m", "-l"]
        );
        assert_eq!(
            expanded(&["umount.fuseblk.dure", "m"]),
            ["dure", "umount", "m"]
        );
    }
}
