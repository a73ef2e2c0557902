//! The real tree the demo copies: the project's own sources and what cargo has downloaded.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// At most the volume's bytes divided by this are copied.
const SHARE: u64 = 16;
/// And at most so many files.
const FILES_MAX: usize = 4_000;

/// One file, directory or symlink to copy.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// On the host.
    pub(crate) from: PathBuf,
    /// Below the demo's directory in the volume.
    pub(crate) to: PathBuf,
    /// What it is.
    pub(crate) kind: ItemKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Directory,
    File,
    Symlink,
}

/// What is copied, parents before their children.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) items: Vec<Item>,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

/// Finds the tree, bounded by the size of the volume.
pub(crate) fn find(volume_bytes: u64) -> Sources {
    let bound = volume_bytes / SHARE;
    let mut sources = Sources::default();
    // Of `cargo run`; a program that was built elsewhere knows no folder of its builder.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let project = manifest.and_then(|manifest| manifest.join("../..").canonicalize().ok());
    let project = project.filter(|project| project.join("crates/dure-cli/Cargo.toml").is_file());
    if let Some(project) = project {
        walk(&project, Path::new("project"), bound, &mut sources);
    }
    if let Some(registry) = registry() {
        walk(&registry, Path::new("registry"), bound, &mut sources);
    }
    if sources.files == 0 {
        walk(
            Path::new("/usr/share"),
            Path::new("share"),
            bound,
            &mut sources,
        );
    }
    sources
}

fn registry() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let sources = home.join("registry/src");
    sources.is_dir().then_some(sources)
}

fn walk(root: &Path, to: &Path, bound: u64, sources: &mut Sources) {
    let mut pending = vec![(root.to_owned(), to.to_owned())];
    while let Some((from, to)) = pending.pop() {
        if sources.bytes >= bound || sources.files >= FILES_MAX {
            return;
        }
        sources.items.push(Item {
            from: from.clone(),
            to: to.clone(),
            kind: ItemKind::Directory,
        });
        let Ok(entries) = fs::read_dir(&from) else {
            continue;
        };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let Ok(metadata) = fs::symlink_metadata(&from) else {
                continue;
            };
            let skip = matches!(entry.file_name().as_bytes(), b"target" | b".git");
            let kind = match metadata.file_type() {
                kind if kind.is_dir() && !skip => {
                    pending.push((from, to));
                    continue;
                }
                kind if kind.is_file() => ItemKind::File,
                kind if kind.is_symlink() => ItemKind::Symlink,
                _ => continue,
            };
            if sources.bytes + metadata.len() > bound || sources.files >= FILES_MAX {
                continue;
            }
            sources.bytes += metadata.len();
            sources.files += 1;
            sources.items.push(Item { from, to, kind });
        }
    }
}
