//! Where a file is: which volume, and which path in it.
//!
//! **Problem.** SQLite makes up names (`NAME-journal`, `NAME-wal`, `NAME-mj...`), stores some of them
//! in journals, and asks for them without the URI that the database was opened with. **Structure.**
//! So the path names the volume itself: it leads through the image file or the block device as if that
//! were a directory. **Invariants.** No file of the host has such a path. **Crash.** Nothing is kept.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::abi::code;
use crate::failure::{Failure, Outcome};

/// Which file or device: names may be several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Medium {
    /// Number of its file system, and of the file.
    Image(u64, u64),
    /// Number of the block device.
    Device(u64),
}

impl Medium {
    /// What is at a path of the host; `None`: nothing that could have a volume in it.
    pub(crate) fn at(path: &Path) -> Option<Medium> {
        let found = fs::metadata(path).ok()?;
        if found.is_file() {
            return Some(Medium::Image(found.dev(), found.ino()));
        }
        let device = found.file_type().is_block_device();
        device.then(|| Medium::Device(found.rdev()))
    }
}

/// A file in a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) medium: Medium,
    /// Where the volume is, on the host.
    pub(crate) image: PathBuf,
    /// Where the file is, in the volume.
    pub(crate) inner: PathBuf,
}

/// Splits a path of SQLite.
pub(crate) fn split(path: &Path) -> Outcome<Place> {
    // The path itself is tried last: a volume is no database.
    for image in path.ancestors().skip(1) {
        if let Some(medium) = Medium::at(image) {
            let inner = path
                .strip_prefix(image)
                .expect("it is one of its ancestors");
            return Ok(Place {
                medium,
                image: image.to_owned(),
                inner: Path::new("/").join(inner),
            });
        }
        if fs::symlink_metadata(image).is_ok() {
            break;
        }
    }
    let why = match Medium::at(path) {
        Some(_) => "names a volume and no database in it: add `/NAME`",
        None => "no part of the path is an image file or a block device: `VOLUME/NAME` is meant",
    };
    Err(Failure::new(
        code::CANTOPEN,
        format!("{}: {why}", path.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_through_the_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("v.img");
        fs::write(&image, b"").unwrap();
        let found = split(&image.join("a/b.db-journal")).unwrap();
        assert_eq!(found.image, image);
        assert_eq!(found.inner, Path::new("/a/b.db-journal"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&image, &link).unwrap();
        let other = split(&link.join("b.db")).unwrap();
        assert_eq!(other.medium, found.medium);
    }

    #[test]
    fn a_path_without_a_volume_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("v.img");
        fs::write(&image, b"").unwrap();
        for (path, why) in [
            (image, "add `/NAME`"),
            (folder.path().join("db"), "VOLUME/NAME"),
            (folder.path().join("missing/db"), "VOLUME/NAME"),
            (PathBuf::from("/dev/null/db"), "VOLUME/NAME"),
        ] {
            let failure = format!("{:?}", split(&path).unwrap_err());
            assert!(failure.contains(why), "{path:?}: {failure}");
        }
    }
}
