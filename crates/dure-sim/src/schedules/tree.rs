//! Reading a whole volume.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_fs::{FileKind, FileSystem, InodeRef, ReadMode};

use super::history::{DATA, Entity, Key, LOG, ROOT, hash};

/// What a volume holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Values of names, attributes and shared pages.
    pub(super) keys: BTreeMap<Key, u64>,
    /// Everything that has a name.
    pub(super) entities: BTreeSet<Entity>,
    /// Content of files with an owner.
    pub(super) files: BTreeMap<Entity, Vec<u8>>,
    /// Content of the shared log.
    pub(super) log: Vec<u8>,
}

/// Reads everything that can be reached.
///
/// # Errors
/// What could not be read, or has two parents.
pub(super) fn read(fs: &FileSystem) -> Result<Found, String> {
    let mut found = Found::default();
    let root = fs.root().map_err(|error| format!("root: {error}"))?;
    let mut links = BTreeMap::new();
    let mut todo = vec![(ROOT, root)];
    while let Some((entity, directory)) = todo.pop() {
        if !found.entities.insert(entity) {
            return Err(format!("directory {entity} has two names"));
        }
        let (mut names, mut children) = (Vec::new(), 2);
        fs.read_directory(&directory, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })
        .map_err(|error| format!("listing {entity}: {error}"))?;
        for name in names {
            let text = String::from_utf8_lossy(&name).into_owned();
            let describe = |error: dure_fs::Error| format!("{text} in {entity}: {error}");
            let child = fs.lookup(&directory, &name).map_err(describe)?;
            let child = child.ok_or_else(|| format!("{text} in {entity} is listed, not found"))?;
            let attributes = fs.attributes(&child).map_err(describe)?;
            found
                .keys
                .insert(Key::Name(entity, text.clone()), attributes.uid.into());
            if child.kind() == FileKind::Directory {
                children += 1;
                let parent = fs.parent(&child).map_err(describe)?;
                if parent != directory.ino() {
                    return Err(format!("{text} in {entity} says its parent is {parent}"));
                }
                todo.push((attributes.uid, child));
                continue;
            }
            let count = links.entry(attributes.uid).or_insert((0, attributes.nlink));
            count.0 += 1;
            if count.0 == 1 {
                found.entities.insert(attributes.uid);
                read_object(fs, &child, attributes.uid, &mut found).map_err(describe)?;
            }
        }
        let nlink = fs
            .attributes(&directory)
            .map_err(|error| error.to_string())?
            .nlink;
        if nlink != children {
            return Err(format!(
                "directory {entity} has {children} links, says {nlink}"
            ));
        }
    }
    match links.iter().find(|(_, (names, nlink))| names != nlink) {
        Some((entity, (names, nlink))) => Err(format!("{entity} has {names} names, says {nlink}")),
        None => Ok(found),
    }
}

fn read_object(
    fs: &FileSystem,
    inode: &InodeRef,
    entity: Entity,
    found: &mut Found,
) -> dure_fs::Result<()> {
    let data = read_file(fs, inode)?;
    match entity {
        LOG => found.log = data,
        DATA => {
            for (page, bytes) in (0..).zip(data.chunks(4096)) {
                found.keys.insert(Key::Page(page), hash(bytes));
            }
        }
        _ => {
            found.files.insert(entity, data);
        }
    }
    for name in fs.list_xattr(inode)? {
        let text = String::from_utf8_lossy(&name).into_owned();
        if let Some(value) = fs.get_xattr(inode, &name)? {
            found.keys.insert(Key::Xattr(entity, text), hash(&value));
        }
    }
    Ok(())
}

/// All bytes of a file.
pub(super) fn read_file(fs: &FileSystem, inode: &InodeRef) -> dure_fs::Result<Vec<u8>> {
    let size = fs.attributes(inode)?.size;
    let mut data = vec![0; usize::try_from(size).expect("files are small")];
    let mut done = 0;
    // A read ends before a page that cannot be read; the next one says why.
    while done < data.len() {
        let offset = u64::try_from(done).expect("files are small");
        let read = fs.read(inode, offset, &mut data[done..], ReadMode::Cached)?;
        assert!(read > 0, "there are bytes up to the size");
        done += read;
    }
    Ok(data)
}
