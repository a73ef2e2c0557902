//! What differs between two states of a volume: a snapshot and a later one, or the present.
//!
//! **Problem.** A user asks what happened to a tree since a snapshot; names alone would show a renamed
//! directory as all of its files removed and added. **Structure.** [`FileSystem::changes`] walks
//! both trees at once, a directory at a time. Names that only one has are collected, with all that is
//! below them ([`Side`]); then those of the same inode are brought together ([`Walk::pair`]): one with the same
//! name in the same directory is the same file, any other was renamed. **Invariants.** An inode is its
//! number and generation. Memory grows with what differs, and with the largest directory. **Crash.**
//! Nothing is changed.
//!
//! # What tells that a file was changed
//! Every change of content or attributes sets `ctime`, to the time of the last tick of a clock that
//! has some hundred in a second. So two changes, one in the snapshot and one not, may leave the same
//! `ctime`: of files that were changed in the second of the snapshot or later, size and content are
//! compared too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::inode::Time;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use crate::file::{ReadMode, SeekTarget};
use crate::inode::Attributes;
use crate::volume::{FileSystem, MountOptions};

/// What a snapshot that is compared may keep in memory.
const CACHE_BYTES: u64 = 64 << 20;

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

impl FileSystem {
    /// Tells `found` what differs between the snapshot `older` and the snapshot `later`, or the
    /// volume as it is now. What changes meanwhile may be told or not. A change of extended attributes
    /// in the tick of the clock in which the snapshot was taken is not.
    ///
    /// Names that differ are kept in memory until all are known, with their attributes: some 300
    /// bytes for each.
    ///
    /// # Errors
    /// `NoSnapshot`; `BadOption` when `later` is the older one; corruption, and those of the device.
    pub fn changes(
        &self,
        older: &str,
        later: Option<&str>,
        found: &mut dyn FnMut(Change),
    ) -> Result<()> {
        let snapshots = self.snapshots();
        let named = |name: &str| {
            let found = snapshots.iter().find(|one| one.name == name);
            found.ok_or_else(|| Error::NoSnapshot { name: name.into() })
        };
        let snapshot = named(older)?;
        if let Some(later) = later
            && named(later)?.id < snapshot.id
        {
            let why = format!("{later} is older than {older}: give the older one first");
            let option = "snapshot";
            return Err(Error::BadOption { option, why });
        }
        let options = || MountOptions {
            cache_bytes: CACHE_BYTES,
            ..MountOptions::default()
        };
        let before = self.open_snapshot(older, options())?;
        let after = later.map(|later| self.open_snapshot(later, options()));
        let after = after.transpose()?;
        let (older, newer) = (&before, after.as_ref().unwrap_or(self));
        let mut walk = Walk {
            taken: snapshot.created,
            older: Side {
                fs: older,
                only: BTreeMap::new(),
            },
            newer: Side {
                fs: newer,
                only: BTreeMap::new(),
            },
            found,
        };
        walk.trees()?;
        walk.pair()
    }
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
        let may_differ = was.ctime.secs.get() >= self.taken && was.kind == FileKind::File;
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
        let inodes = (self.older.fs.inode(was.ino)?, self.newer.fs.inode(is.ino)?);
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
        let mut added: BTreeSet<Vec<u8>> = BTreeSet::new();
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
                    None => drop(added.insert(is.path)),
                }
            }
            for was in old {
                (self.found)(Change::Removed(was.path));
            }
        }
        for old in before.into_values() {
            for was in old {
                // Another file took its name: for its user, one that was written anew.
                match added.remove(&was.path) {
                    true => (self.found)(Change::Modified(was.path)),
                    false => (self.found)(Change::Removed(was.path)),
                }
            }
        }
        for path in added {
            (self.found)(Change::Added(path));
        }
        Ok(())
    }

    fn renamed(&mut self, was: &Named, is: Named) {
        let same = plain(&was.attributes) == plain(&is.attributes);
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
