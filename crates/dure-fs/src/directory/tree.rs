//! Changing a directory within an operation: insert, remove, retarget; splitting buckets and
//! freeing emptied nodes.
//!
//! Everything here works on the operation's private copies and may fail at any point without a
//! trace. An operation that holds the directory exclusively may free the nodes it empties; one that
//! holds it shared has locked the bucket ([`LockedBuckets`]), and may not.

mod locate;
mod locked_buckets;

use dure_store::Store;
use dure_store::error::{Error, Result};
use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::inode::Time;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::units::Ino;

use super::bucket::{self, Inserted};
use super::corrupt;
use super::read::{Found, Name};
use crate::directory::Directories;
use crate::inode::{Access, Attempt, InodeState};

pub(crate) use locate::Located;
pub(crate) use locked_buckets::LockedBuckets;

/// The directory side of one operation.
#[derive(Debug)]
pub(crate) struct TreeEdit<'o, 'v> {
    directories: &'v Directories,
    op: &'o mut Op<'v>,
    /// Nodes this operation made: invisible to other operations, so `Store::node` does not find
    /// them.
    born: Vec<NodeRef>,
    /// Nodes that the operation's budget still allows it to make or free.
    spare: u32,
}

/// A directory before and after the operation.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The first bucket node; `None` if there never was an entry, and in a directory that is held
    /// shared.
    pub(crate) root: Option<NodeRef>,
    /// The set number that stamps carry.
    set_number: u32,
    /// The directory's inode number, which is in its nodes.
    owner: Ino,
}

impl Tree {
    /// The tree of a directory that the caller holds.
    pub(crate) fn of(store: &Store, directory: &InodeState, access: Access) -> Result<Tree> {
        let root = match access {
            Access::Exclusive | Access::Whole => directory.first_bucket_node(store)?,
            Access::Shared | Access::Attributes => None,
        };
        Ok(Tree {
            root,
            set_number: directory.directory().set_number,
            owner: directory.directory().owner,
        })
    }
}

/// A bucket and where it is.
#[derive(Debug)]
struct Place {
    node: NodeRef,
    index: u8,
}

/// What a removal removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// Only the entry: places located before are still right.
    Entry,
    /// Nodes too: places located before may be in a freed node.
    Nodes,
}

impl<'o, 'v> TreeEdit<'o, 'v> {
    /// Edits directories within `op`, making and freeing at most `spare` bucket nodes.
    pub(crate) fn new(
        directories: &'v Directories,
        op: &'o mut Op<'v>,
        spare: u32,
    ) -> TreeEdit<'o, 'v> {
        TreeEdit {
            directories,
            op,
            born: Vec::new(),
            spare,
        }
    }

    fn new_node(&mut self, owner: Ino) -> std::result::Result<NodeRef, Attempt> {
        self.spare = self.spare.checked_sub(1).ok_or(Attempt::Short)?;
        let node = self.op.new_node_of(NodeKind::Bucket, owner)?;
        self.born.push(node.clone());
        Ok(node)
    }

    /// Removes the name from the dentry cache. The caller holds its bucket, or the directory
    /// exclusively, until the operation has finished, so that no lookup caches the old answer again
    /// before.
    fn forget(&self, tree: &Tree, hash: u64) {
        self.directories.dentries.forget(tree.owner, hash);
    }

    /// Adds an entry at its place, where `located` found none. Splits as often as needed.
    pub(crate) fn insert(
        &mut self,
        tree: &mut Tree,
        located: Located<'_>,
        target: Found,
    ) -> std::result::Result<(), Attempt> {
        assert!(located.entry.is_none(), "an entry is inserted twice");
        let Name { bytes: name, hash } = located.name;
        self.forget(tree, hash);
        let seed = self.directories.store.layout.hash_seed;
        let now = self.op.time();
        let set_number = tree.set_number;
        let mut level = located.level;
        let mut room = located.room;
        let mut place = match located.place {
            Some(place) => place,
            None => {
                let node = self.new_node(tree.owner)?;
                tree.root = Some(node.clone());
                level = 1;
                Place {
                    node,
                    index: trie::slot(hash, 0),
                }
            }
        };
        loop {
            let nid = place.node.nid;
            let draft = self.op.edit(&place.node, place.index);
            // What was seen there counts for this bucket only, and if this operation has not
            // changed it since.
            let room = room.take().filter(|_| draft.is_unwritten());
            let inserted = bucket::add(draft, room, (seed, hash), (target.ino, target.kind), name);
            let inserted = inserted.map_err(|error| corrupt(nid, error))?;
            bucket::set_stamps(draft, now, set_number);
            match inserted {
                Inserted::Done => return Ok(()),
                Inserted::Crowded => {
                    let what = "a directory: sixteen names with one hash";
                    return Err(Error::NoSpace { what }.into());
                }
                Inserted::Overflow => place = self.split(&place, hash, level)?,
            }
            level += 1;
        }
    }

    /// Moves the entries of a full bucket to a new node; returns the new place of `hash`.
    fn split(
        &mut self,
        full: &Place,
        hash: u64,
        level: u32,
    ) -> std::result::Result<Place, Attempt> {
        if level >= LEVELS_MAX {
            return Err(Error::NoSpace {
                what: "a directory: too many names with like hashes",
            }
            .into());
        }
        let child = self.new_node(full.node.owner)?;
        let draft = self.op.edit(&full.node, full.index);
        let seed = self.directories.store.layout.hash_seed;
        let parts = bucket::split(draft, seed, level).map_err(|e| corrupt(full.node.nid, e))?;
        bucket::set_child(draft, child.nid.0);
        for (index, part) in (0_u8..).zip(parts.iter()) {
            if bucket::header(part).entries.get() > 0 {
                self.op.replace(&child, index, part);
            }
        }
        Ok(Place {
            node: child,
            index: trie::slot(hash, level),
        })
    }

    /// Makes the entry that `located` found lead to `target`.
    pub(crate) fn retarget(
        &mut self,
        tree: &Tree,
        located: &Located<'_>,
        target: Found,
    ) -> Result<()> {
        let (_, at, _) = located.entry.as_ref().expect("an entry was found");
        let place = located.place.as_ref().expect("an entry has a bucket");
        self.forget(tree, located.name.hash);
        let now = self.op.time();
        let draft = self.op.edit(&place.node, place.index);
        let changed = bucket::retarget(draft, *at, target.ino, target.kind);
        changed.map_err(|error| corrupt(place.node.nid, error))?;
        bucket::set_stamps(draft, now, tree.set_number);
        Ok(())
    }

    /// Removes the entry that `located` found, and the nodes that have no entries left.
    pub(crate) fn remove(
        &mut self,
        tree: &Tree,
        directory: &InodeState,
        located: &Located<'_>,
    ) -> std::result::Result<Removed, Attempt> {
        let (found, _, hole) = located.entry.as_ref().expect("an entry was found");
        let place = located.place.as_ref().expect("an entry has a bucket");
        if located.level > 1 {
            match located.access {
                Access::Exclusive if self.is_last(place, true) => {
                    return self.remove_with_nodes(tree, directory, located.name.hash);
                }
                Access::Shared if self.empties(place) => return Err(Attempt::Whole),
                _ => {}
            }
        }
        self.forget(tree, located.name.hash);
        let now = self.op.time();
        let draft = self.op.edit(&place.node, place.index);
        assert!(draft.is_unwritten(), "an operation removes before it adds");
        let removed = bucket::remove(draft, found.kind, hole.clone());
        removed.map_err(|error| corrupt(place.node.nid, error))?;
        bucket::set_stamps(draft, now, tree.set_number);
        Ok(Removed::Entry)
    }

    /// Removes the only entry below a node, with that node and those above it which have no other
    /// entry either. The directory is held exclusively.
    fn remove_with_nodes(
        &mut self,
        tree: &Tree,
        directory: &InodeState,
        hash: u64,
    ) -> std::result::Result<Removed, Attempt> {
        let root = tree
            .root
            .as_ref()
            .expect("a directory with entries has a first bucket node");
        let path = self.path_to(root, hash)?;
        // The last bucket is the only one of its node that has entries.
        let mut depth = path.len() - 2;
        while depth > 0 && self.is_last(&path[depth], false) {
            depth -= 1;
        }
        self.forget(tree, hash);
        let now = self.op.time();
        let level = u32::try_from(depth).expect("a trie has few levels");
        directory.directory().shortcuts.forget_below(hash, level);
        let above = &path[depth];
        // The nodes below are freed with their stamps: the latest one moves up, in case it is later
        // than this change.
        for place in &path[depth + 1..] {
            self.spare = self.spare.checked_sub(1).ok_or(Attempt::Short)?;
            let latest = self.latest_stamp(&place.node, tree.set_number);
            let draft = self.op.edit(&above.node, above.index);
            bucket::set_stamps(draft, latest.unwrap_or(now), tree.set_number);
            self.op.free_node(&place.node)?;
        }
        let draft = self.op.edit(&above.node, above.index);
        bucket::set_child(draft, 0);
        bucket::set_stamps(draft, now, tree.set_number);
        Ok(Removed::Nodes)
    }

    /// Whether the node might be left without entries if this bucket loses one. A bucket that
    /// another operation has locked counts as one that it is about to empty: as that operation
    /// checks this bucket too, at least one of the two notices.
    fn empties(&self, place: &Place) -> bool {
        let counts = |index| place.node.look_at(index, bucket::HEADER, bucket::counts);
        counts(place.index).0 <= 1
            && (0..place.node.granule_count())
                .filter(|&index| index != place.index)
                .all(|index| match place.node.try_lock_bucket(index) {
                    Some(_held) => counts(index) == (0, 0),
                    None => true,
                })
    }

    /// Whether the node has entries or children in this bucket only. With `bottom`, the bucket has
    /// exactly one entry.
    fn is_last(&self, place: &Place, bottom: bool) -> bool {
        let counts = |index| {
            self.op
                .view_at(&place.node, index, bucket::HEADER, bucket::counts)
        };
        (!bottom || counts(place.index).0 == 1)
            && (0..place.node.granule_count())
                .filter(|&index| index != place.index)
                .all(|index| counts(index) == (0, 0))
    }

    fn latest_stamp(&self, node: &NodeRef, set_number: u32) -> Option<Time> {
        let mut fold = super::stamp::Fold::default();
        for index in 0..node.granule_count() {
            self.op.view_at(node, index, bucket::HEADER, |payload| {
                fold.add_bucket(bucket::header(payload), set_number)
            });
        }
        fold.stamps.map(|stamps| stamps.mtime)
    }

    /// Frees all bucket nodes of a directory that must be empty, for rmdir: this writes every
    /// bucket, so that the operation comes after the last change of each (model case C5).
    pub(crate) fn free_all(&mut self, directory: &InodeState) -> std::result::Result<(), Attempt> {
        let Some(root) = directory.first_bucket_node(&self.directories.store)? else {
            return Ok(());
        };
        let mut nodes = Vec::new();
        let mut entries = 0;
        self.directories.walk_buckets(&root, &mut |node| {
            for index in 0..node.granule_count() {
                let (of_bucket, _) = node.look_at(index, bucket::HEADER, bucket::counts);
                entries += u64::from(of_bucket);
            }
            nodes.push(node.clone());
        })?;
        if entries > 0 {
            return Err(Error::NotEmpty.into());
        }
        for node in &nodes {
            self.spare = self.spare.checked_sub(1).ok_or(Attempt::Short)?;
            self.op.free_node(node)?;
        }
        Ok(())
    }
}

/// What a new entry leads to: an inode and its type.
pub(crate) fn target(ino: Ino, kind: dure_store::format::name::FileKind) -> Found {
    Found {
        ino,
        kind: kind.code(),
    }
}
