//! Finding: lookup, readdir, read_link.

use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::format::inode::{BODY_BYTES, FLAG_LONG_LINK};
use dure_store::format::name::FileKind;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::units::{Ino, Nid, to_usize};

use super::TARGET_MAX;
use crate::directory::read::{Found, Leaf, Listed, Listing, Name, Sight, Wanted};
use crate::inode::{InodeRef, Scope, asked};
use crate::namespace::Names;
use crate::xattr::chain;

/// An entry as readdir returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The inode.
    pub ino: Ino,
    /// Its type.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Where to continue after this entry; above 2, positive as an `i64`.
    pub cookie: u64,
}

/// A batch is full after this many entries or nodes; the node that fills it is read to its end.
const BATCH_ENTRIES: usize = 64;
const BATCH_NODES: usize = 8;

/// Entries copied by [`read_entries`](crate::volume::FileSystem::read_entries). Its memory is reused.
#[derive(Debug, Default)]
pub struct EntryBatch(Listing);

impl EntryBatch {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inode, its type and the name of entry `number`.
    #[inline]
    #[must_use]
    pub fn get(&self, number: usize) -> Option<(Ino, FileKind, &[u8])> {
        let (listed, name) = self.0.get(number)?;
        Some((listed.ino, listed.kind, name))
    }
}

impl Names {
    /// The inode that `name` seems to lead to, pinned: the entry was there, but may have changed
    /// before the inode was pinned. A caller that then finds, under the locks of the directory,
    /// that the name leads there knows that it leads to the pinned inode, since a number in use is
    /// not reused.
    /// Believes the dentry cache the first time only: a bucket that says something else may be
    /// damaged.
    pub(super) fn seen_at(
        &self,
        directory: &InodeRef,
        name: Name<'_>,
        scope: Scope,
    ) -> Result<Option<InodeRef>> {
        if scope.guesses
            && let ControlFlow::Break(known) = self.known_at(directory.id(), name)?
        {
            return Ok(known);
        }
        let sight = {
            let state = directory.inode().state().read();
            directory.inode().check_directory(&state)?;
            self.directories.find(&state, name)?
        };
        let Some(Sight { found, .. }) = sight else {
            return Ok(None);
        };
        match self.inodes.inode(found.ino) {
            Ok(inode) if inode.kind().code() == found.kind => Ok(Some(inode)),
            // Deleted meanwhile, or damaged.
            _ => self.look_up_in_bucket(directory, name),
        }
    }

    /// The inode that `name` leads to, pinned while the name led to it.
    pub(crate) fn look_up(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        let name = self.directories.named(name);
        if let ControlFlow::Break(known) = self.look_up_known(directory.id(), name)? {
            return Ok(known);
        }
        let pinned;
        {
            let state = directory.inode().state().read();
            directory.inode().check_directory(&state)?;
            let Some(sight) = self.directories.find(&state, name)? else {
                return Ok(None);
            };
            pinned = self.inodes.inode(sight.found.ino);
            // Other tasks may be changing the entry, and the inode may be deleted, or its number
            // reused. If the name leads there now, it leads to the pinned inode: a number in use is
            // not reused.
            let is_it = |inode: &InodeRef| inode.kind().code() == sight.found.kind;
            if pinned.as_ref().is_ok_and(is_it) && self.directories.holds(&sight, name)? {
                return pinned.map(Some);
            }
        }
        // Not under the directory's lock: this may be the inode's last pin.
        drop(pinned);
        self.look_up_in_bucket(directory, name)
    }

    /// Like `Names::look_up`, with the bucket locked, so that no task changes the entry meanwhile. The
    /// caller holds no lock of an inode.
    fn look_up_in_bucket(&self, directory: &InodeRef, name: Name<'_>) -> Result<Option<InodeRef>> {
        let state = directory.inode().state().read();
        directory.inode().check_directory(&state)?;
        loop {
            let Some(leaf) = self.directories.leaf(&state, name.hash)? else {
                return Ok(None);
            };
            if let Some(_held) = leaf.lock() {
                return self.look_up_held(directory, &leaf, name);
            }
        }
    }

    /// What `name` leads to in its bucket, which the caller has locked.
    pub(super) fn look_up_held(
        &self,
        directory: &InodeRef,
        leaf: &Leaf,
        name: Name<'_>,
    ) -> Result<Option<InodeRef>> {
        let found = self.directories.find_in(leaf, name.bytes)?;
        found
            .map(|found| self.named_inode(directory, found))
            .transpose()
    }

    /// The inode of an entry that cannot change now: it must exist, and be of the type that the
    /// entry says.
    fn named_inode(&self, directory: &InodeRef, found: Found) -> Result<InodeRef> {
        let wrong = |got: u8| Error::Corrupt {
            what: format!(
                "entry of directory {} for inode {}: type (0: none is there)",
                directory.ino(),
                found.ino
            ),
            at: found.ino.nid().0,
            want: found.kind.into(),
            got: got.into(),
        };
        match self.inodes.inode(found.ino) {
            Ok(inode) if inode.kind().code() != found.kind => Err(wrong(inode.kind().code())),
            Err(Error::NotFound) => Err(wrong(0)),
            other => other,
        }
    }
}

impl Names {
    /// The caller may ask for the attributes of these entries next.
    fn note_listed(&self, listing: &Listing) {
        if self.store.reads_wait() {
            self.inodes.last_listed.note(listing.inodes());
        }
    }

    /// Whether the node exists and holds inodes, for numbers from outside the volume.
    pub(crate) fn is_inode_node(&self, nid: Nid) -> Result<bool> {
        if nid.0 >= self.store.layout.nids() {
            return Ok(false);
        }
        if let Some(node) = self.store.nodes.get(nid) {
            return Ok(node.kind == NodeKind::Inode && node.freed().is_none());
        }
        let entry = self.store.nat.entry(nid)?;
        Ok(!entry.block().is_none() && entry.kind_code() == NodeKind::Inode.code())
    }
}

impl Names {
    /// See [`FileSystem::read_directory`](crate::volume::FileSystem::read_directory).
    pub(crate) fn list(
        &self,
        directory: &InodeRef,
        cookie: u64,
        show: &mut dyn FnMut(&DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = directory.inode();
        if inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let mut from = trie::cookie_hash(cookie);
        let mut listing = Listing::default();
        let wanted = Wanted::Behind(cookie);
        loop {
            listing.clear();
            let next = {
                let state = inode.state().read();
                inode.note_read(&self.inodes, &state);
                self.directories
                    .list_node(&state, from, wanted, &mut listing)?
            };
            self.note_listed(&listing);
            for (entry, name) in listing.iter() {
                let Listed {
                    ino, kind, cookie, ..
                } = *entry;
                if show(&DirectoryEntry {
                    ino,
                    kind,
                    name,
                    cookie,
                })
                .is_break()
                {
                    return Ok(());
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}

impl Names {
    /// See [`FileSystem::read_entries`](crate::volume::FileSystem::read_entries).
    pub(crate) fn list_some(
        &self,
        directory: &InodeRef,
        from: u64,
        batch: &mut EntryBatch,
    ) -> Result<Option<u64>> {
        let inode = directory.inode();
        if inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        batch.0.clear();
        let state = inode.state().read();
        inode.note_read(&self.inodes, &state);
        let mut next = Some(from);
        for _ in 0..BATCH_NODES {
            match next {
                Some(from) if batch.len() < BATCH_ENTRIES => {
                    next = self
                        .directories
                        .list_node(&state, from, Wanted::All, &mut batch.0)?;
                }
                _ => break,
            }
        }
        self.note_listed(&batch.0);
        Ok(next)
    }
}

impl Names {
    /// See [`FileSystem::read_link`](crate::volume::FileSystem::read_link).
    pub(crate) fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>> {
        if inode.kind() != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let id = inode.id();
        let inode = inode.inode();
        let state = inode.state().read();
        let data = inode.data();
        inode.note_read(&self.inodes, &state);
        // Caches the attributes too: `peek_target` needs the times.
        asked(inode, &state);
        let bytes = to_usize(data.size.get());
        let long = inode.attributes().flags.get() & FLAG_LONG_LINK != 0;
        if bytes > if long { TARGET_MAX } else { BODY_BYTES } {
            return Err(Error::Corrupt {
                what: format!("length of symbolic link {}", inode.ino),
                at: inode.node.nid.0,
                want: dure_store::units::to_u64(TARGET_MAX),
                got: data.size.get(),
            });
        }
        if !long {
            let target = &data.body[..bytes];
            self.symlinks.put(id, target);
            return Ok(target.to_vec());
        }
        chain::load(&self.store, data.map_root.get(), inode.ino)?.read(bytes)
    }
}
