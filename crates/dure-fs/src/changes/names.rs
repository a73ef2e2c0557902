//! The names of two states of a volume, compared.
//!
//! **Structure.** [`compare`] walks both trees at once, a directory at a time. Names that only one has
//! are collected, with all that is below them ([`Side`]). **Invariants.** An inode is its number and
//! generation, and a directory is gone into only from the one that it names as its parent, so that no
//! damage makes the walk endless. Memory grows with what differs, and with the largest directory.
//! **Crash.** Nothing is changed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::inode::Attributes;
use crate::volume::FileSystem;

/// An inode: its number, and which of the files that have had it.
type Id = (Ino, u32);

/// A name, in one state of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The directory that it is in: number and generation. The root is in itself.
    pub parent: (Ino, u32),
    /// The name; empty for the root.
    pub name: Vec<u8>,
    /// From the root, without a slash in front.
    pub path: Vec<u8>,
    /// Of the inode that has it.
    pub attributes: Attributes,
}

/// Names by the inode, as number and generation.
pub type NamesByInode = BTreeMap<(Ino, u32), Vec<Named>>;

impl Named {
    /// Bytes of a path. Longer ones are refused: the memory of a comparison grows with them.
    pub const PATH_BYTES_MAX: usize = 16 << 10;

    /// The root of a volume.
    pub(crate) fn root(fs: &FileSystem) -> Result<Named> {
        let attributes = fs.attributes(&fs.root()?)?;
        Ok(Named {
            parent: (attributes.ino, attributes.generation),
            name: Vec::new(),
            path: Vec::new(),
            attributes,
        })
    }

    /// The inode: its number, and which of the files that have had it.
    #[must_use]
    pub fn id(&self) -> (Ino, u32) {
        (self.attributes.ino, self.attributes.generation)
    }

    /// Whether it is that of a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    /// The names in a directory; none if it has gone meanwhile.
    pub(crate) fn list(&self, fs: &FileSystem) -> Result<BTreeMap<Vec<u8>, Named>> {
        let mut entries = Vec::new();
        let found = self.unless_gone(fs, b"", fs.inode(self.attributes.ino))?;
        if let Some(inode) = found.filter(|inode| inode.generation() == self.id().1) {
            fs.read_directory(&inode, 0, &mut |entry| {
                entries.push((entry.ino, entry.name.to_vec()));
                ControlFlow::Continue(())
            })?;
        }
        // As inodes lie on the medium.
        entries.sort_unstable();
        let mut names = BTreeMap::new();
        for (ino, name) in entries {
            let inode = self.unless_gone(fs, &name, fs.inode(ino))?;
            let Some(inode) = inode else { continue };
            let is_below =
                inode.kind() != FileKind::Directory || fs.parent(&inode)? == self.attributes.ino;
            if !is_below {
                // Moved meanwhile.
                self.unless_gone(fs, &name, Err::<(), _>(Error::NotFound))?;
                continue;
            }
            if self.path.len() + name.len() >= Named::PATH_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            let attributes = fs.attributes(&inode)?;
            let path = match self.path.as_slice() {
                [] => name.clone(),
                above => [above, &name].join(&b'/'),
            };
            let named = Named {
                parent: self.id(),
                name: name.clone(),
                path,
                attributes,
            };
            names.insert(name, named);
        }
        Ok(names)
    }
}

impl Named {
    /// Nothing in place of an inode below that was deleted since its name was read. Where nothing
    /// changes, as in a snapshot, that is damage: who believed it would take files for removed.
    fn unless_gone<T>(&self, fs: &FileSystem, name: &[u8], found: Result<T>) -> Result<Option<T>> {
        match ignoring_gone(found)? {
            None if fs.0.options.read_only => {
                let path = [&self.path[..], name].join(&b'/');
                let path = String::from_utf8_lossy(&path).into_owned();
                Err(Error::Corrupt {
                    what: format!("the entry of {path}, which leads to no inode of its directory"),
                    at: 0,
                    want: 1,
                    got: 0,
                })
            }
            found => Ok(found),
        }
    }
}

/// A state, and the names that only it has.
#[derive(Debug)]
struct Side<'a> {
    fs: &'a FileSystem,
    only: BTreeMap<Id, Vec<Named>>,
}

impl Side<'_> {
    /// Only this state has the name; so, too, all names below.
    fn take(&mut self, named: Named) -> Result<()> {
        let mut below = vec![named];
        while let Some(named) = below.pop() {
            if named.is_directory() {
                below.extend(named.list(self.fs)?.into_values());
            }
            self.only.entry(named.id()).or_default().push(named);
        }
        Ok(())
    }
}

/// Nothing in place of an inode that was deleted since its name was read.
pub(super) fn ignoring_gone<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound | Error::Stale(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Brings each name of an inode that has it in both states to `same`, the root first; returns the
/// names that only the older state has, and those that only the newer one has.
pub(crate) fn compare(
    (older, newer): (&FileSystem, &FileSystem),
    same: &mut dyn FnMut(&Named, &Named) -> Result<()>,
) -> Result<(NamesByInode, NamesByInode)> {
    let side = |fs| Side {
        fs,
        only: BTreeMap::new(),
    };
    let (mut before, mut after) = (side(older), side(newer));
    let mut pairs = vec![(Named::root(older)?, Named::root(newer)?)];
    while let Some((was, is)) = pairs.pop() {
        same(&was, &is)?;
        if !was.is_directory() {
            continue;
        }
        let mut now = is.list(newer)?;
        for (name, was) in was.list(older)? {
            match now.remove(&name) {
                Some(is) if is.id() == was.id() => pairs.push((was, is)),
                Some(is) => {
                    before.take(was)?;
                    after.take(is)?;
                }
                None => before.take(was)?,
            }
        }
        now.into_values().try_for_each(|is| after.take(is))?;
    }
    Ok((before.only, after.only))
}
