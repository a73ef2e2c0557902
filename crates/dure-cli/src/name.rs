//! `mkfs.dure`, `mount.dure`, `mount.fuse.dure` and `fsck.dure`: the names by which mkfs(8),
//! mount(8) and fsck(8) call us, and the options they pass.

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
        Some("fsck.dure") => return fsck(rest),
        _ => return std::iter::once("dure".into()).chain(rest).collect(),
    };
    let head = ["dure".into(), command.into()];
    match command {
        "mount" => head.into_iter().chain(mount(rest)).collect(),
        _ => head.into_iter().chain(rest).collect(),
    }
}

/// mount(8) passes `-n`, `-s`, `-v` and `-f`, which mean nothing here, and repeats `-o`.
fn mount(rest: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    rest.filter(|arg| !matches!(arg.to_str(), Some("-n" | "-s" | "-v" | "-f")))
}

/// fsck(8) passes `-a` or `-p` (repair what is safe), `-y` (the same here), `-n` (repair nothing),
/// `-f` (always check, as we do) and `-C` (progress, which we show on a terminal anyway).
fn fsck(rest: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut expanded: Vec<OsString> = vec!["dure".into(), "check".into()];
    for arg in rest {
        match arg.to_str() {
            Some("-a" | "-p" | "-y") => expanded.push("--repair".into()),
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
            ["dure", "check", "--repair", "v"]
        );
        assert_eq!(expanded(&["fsck.dure", "-n", "v"]), ["dure", "check", "v"]);
        assert_eq!(
            expanded(&["mount.dure", "-n", "v", "m"]),
            ["dure", "mount", "v", "m"]
        );
    }
}
