//! The kernel's list of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount, as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// What is mounted.
    pub(crate) source: PathBuf,
    /// On which directory.
    pub(crate) directory: PathBuf,
    /// The file system's type.
    pub(crate) kind: String,
    /// Options of this mount: `rw`, `nosuid`.
    pub(crate) options: Vec<String>,
    /// Options of the file system behind it: `rw`, `user_id=0`.
    pub(crate) super_options: Vec<String>,
}

impl Listed {
    /// Whether dure serves it.
    pub(crate) fn is_dure(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.dure" | "fuseblk.dure")
    }

    /// The user whose process serves it.
    pub(crate) fn user(&self) -> Option<u32> {
        let mut options = self.super_options.iter();
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

/// All mounts; the last one on a directory is the one that umount(2) ends.
pub(crate) fn all() -> Vec<Listed> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    // A name that is not UTF-8 must not hide all others.
    let mounts = String::from_utf8_lossy(&mounts);
    mounts.lines().filter_map(parse).collect()
}

/// Whether anything is mounted on `directory`.
pub(crate) fn is_mounted(directory: &Path) -> bool {
    let whole = directory.canonicalize();
    let whole = whole.as_deref().unwrap_or(directory);
    let mounts = all();
    let mut places = mounts.iter().map(|mount| mount.directory.as_path());
    places.any(|place| place == directory || place == whole)
}

/// What dure serves on `directory`.
pub(crate) fn on(directory: &Path) -> Option<Listed> {
    last(directory, Listed::is_dure)
}

/// What umount(2) of `directory` would end.
pub(crate) fn last_on(directory: &Path) -> Option<Listed> {
    last(directory, |_| true)
}

fn last(directory: &Path, is_meant: impl Fn(&Listed) -> bool) -> Option<Listed> {
    let mounts = all();
    let listed = |directory: &Path| {
        let mut mounts = mounts.iter().rev();
        mounts.find(|mount| mount.directory == directory && is_meant(mount))
    };
    // As it was typed, first: to resolve the path may ask a server that hangs.
    let found = listed(directory).or_else(|| listed(&directory.canonicalize().ok()?));
    found.cloned()
}

/// The volume mounted on `directory`.
pub(crate) fn source_of(directory: &Path) -> Option<PathBuf> {
    on(directory).map(|mount| mount.source)
}

/// The mount of the volume at `path`, with any type of file system; one that dure serves also if it
/// was mounted as a loop device over the same image, or `path` is one.
pub(crate) fn of(path: &Path) -> Option<Listed> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = all();
    let same = mounts.iter().find(|mount| mount.source == path);
    let found = same.or_else(|| {
        let image = image(&path);
        let mut served = mounts.iter().filter(|mount| mount.is_dure());
        served.find(|mount| self::image(&mount.source) == image)
    });
    found.cloned()
}

/// The image that a loop device is over; any other path is its own.
fn image(path: &Path) -> PathBuf {
    let over = |device: &Path| {
        let place = Path::new("/sys/block").join(device.strip_prefix("/dev").ok()?);
        let mut image = std::fs::read(place.join("loop/backing_file")).ok()?;
        image.pop_if(|byte| *byte == b'\n');
        Some(OsString::from_vec(image).into())
    };
    over(path).unwrap_or_else(|| path.to_owned())
}

/// `36 35 98:0 / /mnt/point rw,relatime - fuse.dure /path/v.img rw,...`; spaces are written
/// `\\040`.
fn parse(line: &str) -> Option<Listed> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let mut kind = kind.split(' ');
    let words = |text: &str| text.split(',').map(str::to_owned).collect();
    Some(Listed {
        directory: unescape(place.next()?).into(),
        options: words(place.next()?),
        kind: kind.next()?.to_owned(),
        source: unescape(kind.next()?).into(),
        super_options: words(kind.next()?),
    })
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
            "36 35 0:41 / /mnt/a\\040b rw,relatime shared:1 - fuse.dure /v/x.img rw,user_id=1000";
        let found = parse(line).unwrap();
        assert_eq!(found.source, Path::new("/v/x.img"));
        assert_eq!(found.directory, Path::new("/mnt/a b"));
        assert!(found.is_dure());
        assert_eq!(found.user(), Some(1000));
        assert_eq!(found.options, ["rw", "relatime"]);
        assert!(!parse(&line.replace("fuse.dure", "ext4")).unwrap().is_dure());
        assert_eq!(parse("nonsense"), None);
    }
}
