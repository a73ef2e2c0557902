//! The files whose content `dure check --data` found damaged, by their paths.
//!
//! **Structure.** The issues have the inodes; all directories are listed to find their names, once.
//! **Invariants.** What cannot be read is left out: its files are told by number. **Crash.** Nothing is
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use dure::{FileKind, Volume};
use dure_block::Device;
use dure_block::count::Count;
use dure_check::{IssueKind, Report};
use dure_fs::MountOptions;
use dure_sync::Arc;

use super::changes::shown;

/// A file with pages that do not match their checksums.
#[derive(Debug, serde::Serialize)]
pub(super) struct Damaged {
    /// Inode number.
    file: u64,
    /// How many of its pages were found.
    pages: u64,
    /// All paths that lead to it, in one line each; none if no directory that can be read has it.
    paths: Vec<String>,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, pages) = (self.file, Count::of(self.pages, "page"));
        match &self.paths[..] {
            [] => write!(f, "file {file}, which no directory names: {pages}"),
            paths => write!(f, "{} (file {file}): {pages}", paths.join(", ")),
        }
    }
}

/// Those of a report of the volume on `device`.
pub(super) fn files(device: Arc<dyn Device>, report: &Report) -> Vec<Damaged> {
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    for issue in report.issues() {
        if let IssueKind::DataChecksum { ino, .. } = issue.kind {
            *pages.entry(ino.0).or_default() += 1;
        }
    }
    if pages.is_empty() {
        return Vec::new();
    }
    let mut paths = paths(device, &pages.keys().copied().collect());
    let damaged = pages.into_iter().map(|(file, pages)| Damaged {
        file,
        pages,
        paths: paths.remove(&file).unwrap_or_default(),
    });
    damaged.collect()
}

/// All paths to these inodes.
fn paths(device: Arc<dyn Device>, inodes: &BTreeSet<u64>) -> BTreeMap<u64, Vec<String>> {
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let Ok(volume) = Volume::open_on(device, options) else {
        return found;
    };
    let session = volume.root();
    let mut directories = vec![PathBuf::new()];
    // A damaged volume may have a directory in itself.
    let mut seen = BTreeSet::new();
    while let Some(directory) = directories.pop() {
        let place = PathBuf::from("/").join(&directory);
        let Ok(entries) = session.read_dir(&place) else {
            continue;
        };
        for entry in entries.map_while(Result::ok) {
            let path = directory.join(entry.file_name());
            if inodes.contains(&entry.ino()) {
                let path = shown(path.as_os_str().as_bytes());
                found.entry(entry.ino()).or_default().push(path);
            }
            if entry.kind() == FileKind::Directory && seen.insert(entry.ino()) {
                directories.push(path);
            }
        }
    }
    found
}
