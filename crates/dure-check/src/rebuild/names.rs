//! Paths of inodes, to say by name what is lost.

use std::collections::BTreeMap;

use dure_store::units::Ino;

use super::directories::names_of;
use super::edit::Edit;
use crate::issue::IssueKind;
use crate::loss::Loss;

/// Directories on a path at most: more is a cycle.
const DEPTH_MAX: usize = 4096;

/// One name of every inode, and its directory.
type Names = BTreeMap<Ino, (Ino, Vec<u8>)>;

fn all_names(edit: &mut Edit<'_, '_>) -> Names {
    let mut names = Names::new();
    for (directory, nodes) in edit.buckets() {
        for nid in nodes {
            let image = edit.context.image(nid);
            for name in image.iter().flat_map(names_of) {
                names.entry(name.ino).or_insert((directory, name.name));
            }
        }
    }
    names
}

fn path(names: &Names, ino: Ino) -> Option<Vec<u8>> {
    if ino == Ino::ROOT {
        return Some(b"/".to_vec());
    }
    let mut parts = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let (directory, name) = names.get(&at)?;
        parts.push(name);
        at = *directory;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    let mut path = Vec::new();
    for part in parts.into_iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Some(path)
}

/// The losses with paths, and the pages whose content is destroyed.
pub(super) fn losses(edit: &mut Edit<'_, '_>) -> Vec<Loss> {
    let mut losses = std::mem::take(&mut edit.losses);
    let mut pages: BTreeMap<Ino, (u64, u64)> = BTreeMap::new();
    for issue in edit.context.report.issues() {
        if let IssueKind::DataChecksum { ino, page, .. } = issue.kind {
            let (count, _) = pages.entry(ino).or_insert((0, page));
            *count += 1;
        }
    }
    losses.extend(pages.into_iter().map(|(ino, (count, first))| Loss {
        ino,
        path: None,
        what: match count {
            1 => format!("page {first} is destroyed and cannot be read"),
            _ => format!("{count} pages from page {first} on are destroyed and cannot be read"),
        },
    }));
    if losses.is_empty() {
        return losses;
    }
    let names = all_names(edit);
    for loss in &mut losses {
        let own = path(&names, loss.ino);
        loss.path = match (own, loss.path.take()) {
            (Some(directory), Some(name)) => {
                let end = if directory.ends_with(b"/") {
                    &b""[..]
                } else {
                    b"/"
                };
                Some([&directory[..], end, &name[..]].concat())
            }
            (own, name) => own.or(name),
        };
    }
    losses
}
