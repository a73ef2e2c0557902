//! Lockless lookup: names and attributes from the caches.
//!
//! **Problem.** A path leads through directories that every core walks through; a lock or a
//! reference for each of them would write lines that all cores share. **Structure.** An [`InodeId`]
//! names an inode without keeping it in memory. [`peek`](crate::volume::FileSystem::peek) and
//! [`peek_attributes`](crate::volume::FileSystem::peek_attributes) answer from the dentry cache and the attribute cache, writing
//! nothing; what is not cached, [`look_up_and_remember`](crate::volume::FileSystem::look_up_and_remember) and [`attributes`](crate::volume::FileSystem::attributes)
//! find under locks and insert there. [`pin`](crate::volume::FileSystem::pin) makes a reference out of an id.
//!
//! **Invariants.** Every answer was true at a moment between the call and its return. The inode of
//! an id may be deleted and its number reused: a caller that finds this asks again with locks.

use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::bucket::NAME_MAX;

use crate::directory::dentry_cache::{ABSENT, DentryCache, UNKNOWN};
use crate::directory::read::{Leaf, Name};
use crate::inode::{InodeId, InodeRef};
use crate::namespace::Names;

/// What the dentry cache says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// It leads to this inode.
    Found(InodeId),
    /// It leads nowhere.
    Absent,
    /// Not cached: a lookup tells.
    Unknown,
}

impl Names {
    /// Whether the dentry cache says that the name leads to this inode; takes no lock.
    pub(super) fn leads_to(&self, directory: InodeId, name: Name<'_>, id: InodeId) -> bool {
        self.directories.dentries.get(directory, name) == id.words()
    }

    pub(crate) fn pin(&self, id: InodeId) -> Result<Option<InodeRef>> {
        match self.inodes.inode(id.ino()) {
            Ok(found) => Ok((found.id() == id).then_some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the dentry cache says that `name` leads to, pinned after it said so: `Break`.
    pub(super) fn known_at(
        &self,
        directory: InodeId,
        name: Name<'_>,
    ) -> Result<ControlFlow<Option<InodeRef>>> {
        let words = match self.directories.dentries.get(directory, name) {
            (UNKNOWN, _) => return Ok(ControlFlow::Continue(())),
            (ABSENT, _) => return Ok(ControlFlow::Break(None)),
            words => words,
        };
        let found = self.pin(InodeId::from_words(words))?;
        Ok(found.map_or(ControlFlow::Continue(()), |found| {
            ControlFlow::Break(Some(found))
        }))
    }

    /// What `name` leads to, pinned while the name led to it, or that it leads nowhere: `Break`, if
    /// the dentry cache says so. The caller holds no lock: a pin that is dropped here may be the
    /// last.
    pub(super) fn look_up_known(
        &self,
        directory: InodeId,
        name: Name<'_>,
    ) -> Result<ControlFlow<Option<InodeRef>>> {
        match self.known_at(directory, name)? {
            // If the name leads there now, it leads to the pinned inode: this generation of the
            // number has not ended.
            ControlFlow::Break(Some(found)) if !self.leads_to(directory, name, found.id()) => {
                Ok(ControlFlow::Continue(()))
            }
            known => Ok(known),
        }
    }
}

impl Names {
    /// See [`FileSystem::look_up_and_remember`](crate::volume::FileSystem::look_up_and_remember).
    pub(crate) fn look_up_and_remember(
        &self,
        directory: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if !DentryCache::keeps(name) {
            return self.look_up(directory, name);
        }
        let named = self.directories.named(name);
        match self.look_up_settled(directory, named)? {
            Some(found) => Ok(found),
            None => self.look_up(directory, name),
        }
    }

    /// What `name` leads to, or that it leads nowhere, kept in the dentry cache. `None`: another task
    /// holds its bucket. Nobody waits for that task, which may be about to keep the same answer: when
    /// the name of a directory that all cores walk through leaves the cache, they all miss it
    /// together, and would sleep one behind the other.
    fn look_up_settled(
        &self,
        directory: &InodeRef,
        name: Name<'_>,
    ) -> Result<Option<Option<InodeRef>>> {
        let state = directory.inode().state().read();
        directory.inode().check_directory(&state)?;
        let leaf = self.directories.leaf(&state, name.hash)?;
        let held = leaf.as_ref().map(Leaf::try_lock);
        if matches!(held, Some(None)) {
            return Ok(None);
        }
        let found = match &leaf {
            Some(leaf) => self.look_up_held(directory, leaf, name)?,
            None => None,
        };
        let answer = found.as_ref().map(InodeRef::id);
        let dentries = &self.directories.dentries;
        dentries.put(&state, directory.id(), name, answer);
        Ok(Some(found))
    }
}
