//! What differs between two states of a volume: a snapshot and a later one, or the present.
//!
//! **Problem.** A user asks what happened to a tree since a snapshot; by names only, a renamed
//! directory would show as all of its files removed and added. **Structure.** [`FileSystem::changes`]
//! compares the names of both ([`names`]); those of the same inode that each state has for itself are
//! brought together ([`Telling::pair`]): one with the same name in the same directory is the same file,
//! any other was renamed. **Crash.** Nothing is changed.
//!
//! # What tells that a file was changed
//! Every change of content or attributes sets `ctime`, to the time of the last tick of a clock that
//! has some hundred in a second. So two changes, one in the snapshot and one not, may leave the same
//! `ctime`; and pages that the kernel has collected come after the time of their write(2). So of files
//! that were changed less than [`RECENT_SECONDS`] before the snapshot, or later, content is compared,
//! too: of pages that do not lie where they did.

mod names;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use dure_store::error::Result;
use dure_store::format::inode::Time;
use dure_store::format::name::FileKind;
use dure_store::units::to_u64;

use crate::file::ReadMode;
use crate::inode::{Attributes, InodeRef};
use crate::volume::FileSystem;

pub(crate) use self::names::compare;
use self::names::ignoring_gone;
pub use self::names::{Named, NamesByInode};

/// How long before a snapshot the kernel may have begun to write to the server what it had collected.
const RECENT_SECONDS: i64 = 30;
/// Bytes of content that are compared at once.
const PART: usize = 64 << 10;

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
    let mut telling = Telling {
        taken,
        older,
        newer,
        found,
    };
    let (before, after) = names::compare((older, newer), &mut |was, is| telling.compare(was, is))?;
    telling.pair(before, after)
}

/// A comparison under way.
struct Telling<'a> {
    /// When the older state was taken, in seconds since 1970.
    taken: i64,
    older: &'a FileSystem,
    newer: &'a FileSystem,
    found: &'a mut dyn FnMut(Change),
}

impl Telling<'_> {
    /// The same name of the same inode.
    fn compare(&mut self, before: &Named, after: &Named) -> Result<()> {
        let (was, is) = (&before.attributes, &after.attributes);
        let may_differ = is_recent(self.taken, was) && was.kind == FileKind::File;
        let same = (was.ctime, was.nlink) == (is.ctime, is.nlink)
            && plain(was) == plain(is)
            && !(may_differ && self.content_differs(was, is)?);
        if !same {
            (self.found)(Change::Modified(after.path.clone()));
        }
        Ok(())
    }

    fn content_differs(&self, was: &Attributes, is: &Attributes) -> Result<bool> {
        let old = self.older.inode(was.ino)?;
        let new = ignoring_gone(self.newer.inode(is.ino))?;
        let Some(new) = new.filter(|new| new.generation() == is.generation) else {
            return Ok(true);
        };
        let mut differs = Ok(false);
        let before = (self.older, &old);
        self.newer.changed_ranges(&new, before, &mut |range| {
            differs = self.range_differs((&old, &new), range);
            match differs {
                Ok(false) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        differs
    }

    /// Whether bytes of a range differ. Behind the end there are none.
    fn range_differs(&self, (old, new): (&InodeRef, &InodeRef), range: Range<u64>) -> Result<bool> {
        let (mut before, mut after) = (vec![0; PART], vec![0; PART]);
        let mut at = range.start;
        while at < range.end {
            let part = usize::try_from(range.end - at).map_or(PART, |left| left.min(PART));
            let (before, after) = (&mut before[..part], &mut after[..part]);
            let was = self.older.read(old, at, before, ReadMode::Bypass)?;
            let is = self.newer.read(new, at, after, ReadMode::Bypass)?;
            if before[..was] != after[..is] {
                return Ok(true);
            }
            if was == 0 {
                return Ok(false);
            }
            at += to_u64(was);
        }
        Ok(false)
    }

    /// Brings together the names of an inode that each state has for itself.
    fn pair(&mut self, mut before: NamesByInode, after: NamesByInode) -> Result<()> {
        let mut added = BTreeMap::new();
        for (id, names) in after {
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

/// Whether the file was changed so shortly before the snapshot, or later, that its change time says
/// nothing about it.
pub(crate) fn is_recent(taken: i64, was: &Attributes) -> bool {
    was.ctime.secs.get() >= taken - RECENT_SECONDS
}

/// What users see of attributes that a rename does not change. Blocks, too: a preallocation in the same
/// tick of the clock shows there only.
fn plain(attributes: &Attributes) -> (Time, u64, u64, u32, u32, u32) {
    let Attributes {
        mtime,
        size,
        blocks,
        mode,
        uid,
        gid,
        ..
    } = *attributes;
    (mtime, size, blocks, mode, uid, gid)
}
