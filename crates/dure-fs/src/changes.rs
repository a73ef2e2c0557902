//! What differs between two states of a volume: a snapshot and a later one, or the present.
//!
//! **Problem.** A user asks what happened to a tree since a snapshot; by names only, a renamed
//! directory would show as all of its files removed and added. **Structure.** [`FileSystem::changes`]
//! walks both trees at once, a directory at a time. Names that only one has are collected, with all
//! that is below them ([`Side`]); then those of the same inode are brought together ([`Walk::pair`]):
//! one with the same name in the same directory is the same file, any other was renamed.
//! **Invariants.** An inode is its number and generation, and a directory is gone into only from the
//! one that it names as its parent, so that no damage makes the walk endless. Memory grows with what
//! differs, and with the largest directory. **Crash.** Nothing is changed.
//!
//! # What tells that a file was changed
//! Every change of content or attributes sets `ctime`, to the time of the last tick of a clock that
//! has some hundred in a second. So two changes, one in the snapshot and one not, may leave the same
//! `ctime`; and pages that the kernel has collected come after the time of their write(2). So of files
//! that were changed less than [`RECENT_SECONDS`] before the snapshot, or later, content is compared,
//! too.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::inode::Time;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::file::{ReadMode, SeekTarget};
use crate::inode::Attributes;
use crate::volume::FileSystem;

/// How long before a snapshot the kernel may have begun to write to the server what it had collected.
const RECENT_SECONDS: i64 = 30;

/// How a path differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Only in the newer state.
    Added(Vec<u8>),
    /// Only in the older state.
    Removed(Vec<u8>),
    /// In both, with other content, attributes or, for a directory, entries.
    Modified(Vec<u8>),
    /// From the first path, of the older state, to the second.
    Renamed(Vec<u8>, Vec<u8>),
}

/// An inode: its number, and which of the files that have had it.
type Id = (Ino, u32);

/// A name, in one of the states.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    /// The directory that it is in.
    parent: Id,
    name: Vec<u8>,
    /// From the root, without a slash in front.
    path: Vec<u8>,
    attributes: Attributes,
}

impl Named {
    fn id(&self) -> Id {
        (self.attributes.ino, self.attributes.generation)
    }

    fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }
}

/// A state, and the names that only it has.
#[derive(Debug)]
struct Side<'a> {
    fs: &'a FileSystem,
    only: BTreeMap<Id, Vec<Named>>,
}

impl Side<'_> {
    /// The names in a directory; none if it has gone meanwhile.
    fn list(&self, directory: &Named) -> Result<BTreeMap<Vec<u8>, Named>> {
        let mut entries = Vec::new();
        let found = ignoring_gone(self.fs.inode(directory.attributes.ino))?;
        if let Some(inode) = found.filter(|inode| inode.generation() == directory.id().1) {
            self.fs.read_directory(&inode, 0, &mut |entry| {
                entries.push((entry.name.to_vec(), entry.ino));
                ControlFlow::Continue(())
            })?;
        }
        let mut names = BTreeMap::new();
        for (name, ino) in entries {
            let inode = ignoring_gone(self.fs.inode(ino))?;
            let Some(inode) = inode else { continue };
            let is_below = inode.kind() != FileKind::Directory
                || self.fs.parent(&inode)? == directory.attributes.ino;
            if !is_below {
                // Moved meanwhile, or, in a snapshot, damaged.
                continue;
            }
            let attributes = self.fs.attributes(&inode)?;
            let path = match directory.path.as_slice() {
                [] => name.clone(),
                above => [above, &name].join(&b'/'),
            };
            let named = Named {
                parent: directory.id(),
                name: name.clone(),
                path,
                attributes,
            };
            names.insert(name, named);
        }
        Ok(names)
    }

    /// Only this state has the name; so, too, all names below.
    fn take(&mut self, named: Named) -> Result<()> {
        let mut below = vec![named];
        while let Some(named) = below.pop() {
            if named.is_directory() {
                below.extend(self.list(&named)?.into_values());
            }
            self.only.entry(named.id()).or_default().push(named);
        }
        Ok(())
    }
}

/// Nothing in place of an inode that was deleted since its name was read.
fn ignoring_gone<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound | Error::Stale(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tells `found` what differs between two states of a volume; the older one was taken at `taken`, in
/// seconds since 1970.
///
/// # Errors
/// Corruption, and those of the device.
pub(crate) fn tell(
    (taken, older): (i64, &FileSystem),
    newer: &FileSystem,
    found: &mut dyn FnMut(Change),
) -> Result<()> {
    let side = |fs| Side {
        fs,
        only: BTreeMap::new(),
    };
    let mut walk = Walk {
        taken,
        older: side(older),
        newer: side(newer),
        found,
    };
    walk.trees()?;
    walk.pair()
}

/// A comparison under way.
struct Walk<'a> {
    /// When the older state was taken, in seconds since 1970.
    taken: i64,
    older: Side<'a>,
    newer: Side<'a>,
    found: &'a mut dyn FnMut(Change),
}

impl Walk<'_> {
    /// Both trees, from the root.
    fn trees(&mut self) -> Result<()> {
        let root = |fs: &FileSystem| -> Result<Named> {
            let attributes = fs.attributes(&fs.root()?)?;
            Ok(Named {
                parent: (attributes.ino, attributes.generation),
                name: Vec::new(),
                path: Vec::new(),
                attributes,
            })
        };
        let mut pairs = vec![(root(self.older.fs)?, root(self.newer.fs)?)];
        while let Some((before, after)) = pairs.pop() {
            self.compare(&before, &after)?;
            if before.is_directory() {
                self.directories(&before, &after, &mut pairs)?;
            }
        }
        Ok(())
    }

    /// A directory: names of the same inode in both are `pairs` to be compared.
    fn directories(
        &mut self,
        before: &Named,
        after: &Named,
        pairs: &mut Vec<(Named, Named)>,
    ) -> Result<()> {
        let mut now = self.newer.list(after)?;
        for (name, was) in self.older.list(before)? {
            match now.remove(&name) {
                Some(is) if is.id() == was.id() => pairs.push((was, is)),
                Some(is) => {
                    self.older.take(was)?;
                    self.newer.take(is)?;
                }
                None => self.older.take(was)?,
            }
        }
        now.into_values().try_for_each(|is| self.newer.take(is))
    }

    /// The same name of the same inode.
    fn compare(&mut self, before: &Named, after: &Named) -> Result<()> {
        let (was, is) = (&before.attributes, &after.attributes);
        let is_recent = was.ctime.secs.get() >= self.taken - RECENT_SECONDS;
        let may_differ = is_recent && was.kind == FileKind::File;
        let same = (was.ctime, was.nlink) == (is.ctime, is.nlink)
            && plain(was) == plain(is)
            && !(may_differ && self.content_differs(was, is)?);
        if !same {
            (self.found)(Change::Modified(after.path.clone()));
        }
        Ok(())
    }

    fn content_differs(&self, was: &Attributes, is: &Attributes) -> Result<bool> {
        const PART: usize = 64 << 10;
        let old = self.older.fs.inode(was.ino)?;
        let new = ignoring_gone(self.newer.fs.inode(is.ino))?;
        let Some(new) = new.filter(|new| new.generation() == is.generation) else {
            return Ok(true);
        };
        let inodes = (old, new);
        let (mut before, mut after) = (vec![0; PART], vec![0; PART]);
        let mut at = 0;
        loop {
            // Holes of both are alike.
            let old = self.older.fs.seek(&inodes.0, at, SeekTarget::Data)?;
            let new = self.newer.fs.seek(&inodes.1, at, SeekTarget::Data)?;
            let Some(data) = old.into_iter().chain(new).min() else {
                return Ok(false);
            };
            at = data;
            let old = self
                .older
                .fs
                .read(&inodes.0, at, &mut before, ReadMode::Bypass)?;
            let new = self
                .newer
                .fs
                .read(&inodes.1, at, &mut after, ReadMode::Bypass)?;
            if before[..old] != after[..new] {
                return Ok(true);
            }
            at += old as u64;
        }
    }

    /// Brings together the names of an inode that each state has for itself.
    fn pair(&mut self) -> Result<()> {
        let mut before = std::mem::take(&mut self.older.only);
        let mut added: BTreeMap<(Id, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for (id, names) in std::mem::take(&mut self.newer.only) {
            let mut old = before.remove(&id).unwrap_or_default();
            let mut new = Vec::new();
            for is in names {
                let same = |was: &Named| (was.parent, &was.name) == (is.parent, &is.name);
                match old.iter().position(same) {
                    Some(at) => self.compare(&old.swap_remove(at), &is)?,
                    None => new.push(is),
                }
            }
            for is in new {
                match old.pop() {
                    Some(was) => self.renamed(&was, is),
                    None => drop(added.insert((is.parent, is.name), is.path)),
                }
            }
            for was in old {
                (self.found)(Change::Removed(was.path));
            }
        }
        for old in before.into_values() {
            for was in old {
                // Another file took its name: for its user, one that was written anew.
                match added.remove(&(was.parent, was.name)) {
                    Some(path) => (self.found)(Change::Modified(path)),
                    None => (self.found)(Change::Removed(was.path)),
                }
            }
        }
        for path in added.into_values() {
            (self.found)(Change::Added(path));
        }
        Ok(())
    }

    fn renamed(&mut self, was: &Named, is: Named) {
        let has_same_names = is.is_directory() || was.attributes.nlink == is.attributes.nlink;
        let same = plain(&was.attributes) == plain(&is.attributes) && has_same_names;
        (self.found)(Change::Renamed(was.path.clone(), is.path.clone()));
        // The rename itself sets ctime.
        if !same {
            (self.found)(Change::Modified(is.path));
        }
    }
}

/// What users see of attributes that a rename does not change.
fn plain(attributes: &Attributes) -> (Time, u64, u32, u32, u32) {
    let Attributes {
        mtime,
        size,
        mode,
        uid,
        gid,
        ..
    } = *attributes;
    (mtime, size, mode, uid, gid)
}
