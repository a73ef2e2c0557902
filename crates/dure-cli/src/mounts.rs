//! The kernel's list of mounts.

use std::path::{Path, PathBuf};

/// The volume mounted on `directory`, from the kernel's list of mounts.
pub(crate) fn source_of(directory: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // As it was typed, first: to resolve the path may ask a server that hangs.
    listed(&mounts, directory).or_else(|| listed(&mounts, &directory.canonicalize().ok()?))
}

fn listed(mounts: &str, directory: &Path) -> Option<PathBuf> {
    // The last mount on a directory is the one that umount(2) ends.
    mounts.lines().rev().find_map(|line| parse(line, directory))
}

/// `36 35 98:0 / /mnt/point rw,relatime - fuse.dure /path/v.img rw,...`; spaces are written
/// `\\040`.
fn parse(line: &str, directory: &Path) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let at = unescape(place.split(' ').nth(4)?);
    let mut kind = kind.split(' ');
    let is_dure = matches!(kind.next()?, "fuse.dure" | "fuseblk.dure");
    let source = unescape(kind.next()?);
    (is_dure && Path::new(&at) == directory).then(|| PathBuf::from(source))
}

fn unescape(text: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_mount_is_found() {
        let line =
            "36 35 0:41 / /mnt/a\\040b rw,relatime shared:1 - fuse.dure /v/x.img rw,user_id=0";
        assert_eq!(parse(line, Path::new("/mnt/a b")), Some("/v/x.img".into()));
        assert_eq!(parse(line, Path::new("/mnt/a")), None);
        assert_eq!(
            parse(&line.replace("fuse.dure", "ext4"), Path::new("/mnt/a b")),
            None
        );
    }
}
