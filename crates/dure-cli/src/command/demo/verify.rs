//! What must be there after recovery.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use dure::Session;

use super::directory;
use super::source::{ItemKind, Sources};
use super::writers::{Acknowledged, Write};

/// Compares the copied tree with its source; returns the number of files.
pub(super) fn tree(session: &Session, sources: &Sources) -> Result<usize> {
    let mut files = 0;
    for item in &sources.items {
        let path = directory("tree").join(&item.to);
        let same = match item.kind {
            ItemKind::Directory => session.metadata(&path)?.is_dir(),
            ItemKind::Symlink => session.read_link(&path)? == fs::read_link(&item.from)?,
            ItemKind::File => {
                files += 1;
                let want = fs::read(&item.from).with_context(|| item.from.display().to_string())?;
                session.read(&path)? == want
            }
        };
        if !same {
            bail!("{}: differs from {}", path.display(), item.from.display());
        }
    }
    Ok(files)
}

/// Looks for every acknowledged write; returns how many are there, and the lost ones in words. A
/// file written several times must hold the last acknowledged version or a later one, whole.
pub(super) fn writes(
    session: &Session,
    acknowledged: &Acknowledged,
) -> Result<(usize, Vec<String>)> {
    let all = acknowledged.all();
    let mut last: BTreeMap<String, Write> = BTreeMap::new();
    for write in &all {
        let known = last.entry(write.file()).or_insert(*write);
        *known = (*known).max(*write);
    }
    let mut lost = Vec::new();
    for (file, write) in last {
        let path = directory("writers").join(&file);
        match session.read(&path) {
            Ok(content) if holds(&content, write) => {}
            Ok(_) => lost.push(format!(
                "{}: not the content of write {}",
                path.display(),
                write.number
            )),
            Err(error) => lost.push(error.to_string()),
        }
    }
    Ok((all.len() - lost.len(), lost))
}

fn holds(content: &[u8], acknowledged: Write) -> bool {
    let Some(number) = content.first_chunk().map(|head| u64::from_le_bytes(*head)) else {
        return false;
    };
    let found = Write {
        number,
        ..acknowledged
    };
    // Every page is old or new: a write in flight at the kill may have reached some pages only, so
    // compare with the acknowledged one and its successor in the same file.
    let newer = Write {
        number: acknowledged.number + 64,
        ..acknowledged
    };
    let pages = |bytes: &[u8]| bytes.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (old, new, got) = (
        pages(&acknowledged.content()),
        pages(&newer.content()),
        pages(content),
    );
    let each = got.iter().enumerate().all(|(n, page)| {
        old.get(n).is_some_and(|old| old == page) || new.get(n).is_some_and(|new| new == page)
    });
    each && got.len() == old.len() && (found == acknowledged || found == newer)
}
