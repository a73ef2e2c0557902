//! Finding the bucket and the entry of a name within an operation.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::node::NodeRef;
use dure_store::units::{Ino, Nid};

use super::{Place, Tree, TreeEdit};
use crate::directory::bucket::{self, Entry, Room, Search};
use crate::directory::read::{Found, Leaf, Name};
use crate::directory::{corrupt, too_deep};
use crate::inode::{Access, InodeState};

/// Where a name is or would be: its bucket, and the entry there.
#[derive(Debug)]
pub(crate) struct Located<'n> {
    pub(crate) name: Name<'n>,
    /// `None`: the directory never had an entry.
    pub(super) place: Option<Place>,
    /// The level below the bucket's.
    pub(super) level: u32,
    /// What is there, its place, and the hole that its removal leaves as long as the bucket is as it
    /// was.
    pub(super) entry: Option<(Found, usize, Range<usize>)>,
    /// Where an entry may go, if there is none, as long as the bucket is as it was.
    pub(super) room: Option<Room>,
    pub(super) access: Access,
}

impl Located<'_> {
    /// What the name leads to.
    pub(crate) fn found(&self) -> Option<Found> {
        self.entry.as_ref().map(|(found, ..)| *found)
    }
}

impl TreeEdit<'_, '_> {
    /// A bucket node of inode `owner`, possibly made by this operation.
    fn node(&self, nid: Nid, owner: Ino) -> Result<NodeRef> {
        match self.born.iter().find(|node| node.nid == nid) {
            Some(node) => Ok(node.clone()),
            None => self.directories.store.node(nid, NodeKind::Bucket.of(owner)),
        }
    }

    /// Finds the place of `name`: in its bucket, which the operation has locked, or in a directory
    /// that it holds exclusively. Makes a private copy of the bucket, as the operation is about to
    /// change it.
    pub(crate) fn locate<'n>(
        &mut self,
        (tree, directory): (&Tree, &InodeState),
        leaf: Option<&Leaf>,
        name: Name<'n>,
    ) -> Result<Located<'n>> {
        let Name { bytes, hash } = name;
        let (place, access) = match leaf {
            Some(Leaf { node, index, level }) => {
                let (node, index) = (node.clone(), *index);
                (Some((Place { node, index }, level + 1)), Access::Shared)
            }
            None => (self.bucket_of(tree, directory, hash)?, Access::Exclusive),
        };
        let Some((place, level)) = place else {
            return Ok(Located {
                name,
                place: None,
                level: 0,
                entry: None,
                room: None,
                access,
            });
        };
        let seed = self.directories.store.layout.hash_seed;
        let draft = self.op.edit(&place.node, place.index);
        let searched = bucket::search(draft, (seed, hash), bytes);
        let (entry, room) = match searched.map_err(|error| corrupt(place.node.nid, error))? {
            Search::Entry(Entry { ino, kind, at, .. }, hole) => {
                (Some((Found { ino, kind }, at, hole)), None)
            }
            Search::Room(room) => (None, Some(room)),
        };
        Ok(Located {
            name,
            place: Some(place),
            level,
            entry,
            room,
            access,
        })
    }

    /// The bucket that names of this hash belong to, which the operation edits from now on, and the
    /// level below it. The walk begins at the lowest node known.
    fn bucket_of(
        &mut self,
        tree: &Tree,
        directory: &InodeState,
        hash: u64,
    ) -> Result<Option<(Place, u32)>> {
        let Some(root) = &tree.root else {
            return Ok(None);
        };
        let shortcuts = &directory.directory().shortcuts;
        let (mut node, first) = match shortcuts.get(hash) {
            Some((nid, level)) => (self.node(nid, tree.owner)?, level),
            None => (root.clone(), 0),
        };
        // Shortcuts must not name nodes that this operation made, which do not exist if it fails.
        let all_old = self.born.is_empty();
        for level in first..LEVELS_MAX {
            let index = trie::slot(hash, level);
            // Most walks begin at the bucket: it is copied without a look at its header before.
            let child = self.op.edit_unless(&node, index, |bucket| {
                let child = bucket::child_of(bucket);
                (child != Ok(Nid(0))).then_some(child)
            });
            let Some(child) = child else {
                return Ok(Some((Place { node, index }, level + 1)));
            };
            let child = child.map_err(|error| corrupt(node.nid, error))?;
            if all_old {
                shortcuts.learn(hash, child, level + 1);
            }
            node = self.node(child, node.owner)?;
        }
        Err(too_deep(node.nid))
    }

    /// All buckets from the first node down to the one that names of this hash belong to.
    pub(super) fn path_to(&self, root: &NodeRef, hash: u64) -> Result<Vec<Place>> {
        let (mut path, mut node) = (Vec::new(), root.clone());
        for level in 0..LEVELS_MAX {
            let index = trie::slot(hash, level);
            let child = self
                .op
                .view_at(&node, index, bucket::HEADER, bucket::child_of)
                .map_err(|error| corrupt(node.nid, error))?;
            let place = Place {
                node: node.clone(),
                index,
            };
            path.push(place);
            if child.0 == 0 {
                return Ok(path);
            }
            node = self.node(child, node.owner)?;
        }
        Err(too_deep(node.nid))
    }
}
