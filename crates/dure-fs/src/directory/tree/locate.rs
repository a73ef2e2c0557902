//! Finding the bucket and the entry of a name within an operation.

use dure_store::error::Result;
use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::node::NodeRef;
use dure_store::units::{Ino, Nid};

use super::{Place, Tree, TreeEdit};
use crate::directory::bucket::{self, Entry, Room, Search};
use crate::directory::read::{Found, Leaf};
use crate::directory::{corrupt, too_deep};
use crate::inode::{Access, InodeState};

/// Where a name is or would be: its bucket, and the entry there.
#[derive(Debug)]
pub(crate) struct Located {
    pub(super) hash: u64,
    /// `None`: the directory never had an entry.
    pub(super) place: Option<Place>,
    /// The level below the bucket's.
    pub(super) level: u32,
    pub(super) entry: Option<(Found, usize)>,
    /// Where an entry may go, if there is none, as long as the bucket is as it was.
    pub(super) room: Option<Room>,
    pub(super) access: Access,
}

impl Located {
    /// What the name leads to.
    pub(crate) fn found(&self) -> Option<Found> {
        self.entry.map(|(found, _)| found)
    }
}

impl TreeEdit<'_, '_> {
    /// A bucket node of inode `owner`, possibly made by this operation.
    fn node(&self, nid: Nid, owner: Ino) -> Result<NodeRef> {
        match self.born.iter().find(|node| node.nid == nid) {
            Some(node) => Ok(node.clone()),
            None => self.volume.node(nid, NodeKind::Bucket.of(owner)),
        }
    }

    /// Finds the place of `name`: in its bucket, which the operation has locked, or in a directory
    /// that it holds exclusively. Makes a private copy of the bucket, as the operation is about to
    /// change it.
    pub(crate) fn locate(
        &mut self,
        (tree, directory): (&Tree, &InodeState),
        leaf: Option<&Leaf>,
        name: &[u8],
    ) -> Result<Located> {
        let hash = self.volume.hash_of(name);
        let (place, access) = match leaf {
            Some(Leaf { node, index, level }) => {
                let (node, index) = (node.clone(), *index);
                (Some((Place { node, index }, level + 1)), Access::Shared)
            }
            None => (self.bucket_of(tree, directory, hash)?, Access::Exclusive),
        };
        let Some((place, level)) = place else {
            return Ok(Located {
                hash,
                place: None,
                level: 0,
                entry: None,
                room: None,
                access,
            });
        };
        let seed = self.volume.layout.hash_seed;
        let draft = self.op.edit(&place.node, place.index);
        let searched = bucket::search(draft, (seed, hash), name);
        let (entry, room) = match searched.map_err(|error| corrupt(place.node.nid, error))? {
            Search::Entry(Entry { ino, kind, at, .. }) => (Some((Found { ino, kind }, at)), None),
            Search::Room(room) => (None, Some(room)),
        };
        Ok(Located {
            hash,
            place: Some(place),
            level,
            entry,
            room,
            access,
        })
    }

    /// The bucket that names of this hash belong to, and the level below it. The walk begins at the
    /// lowest node known.
    fn bucket_of(
        &self,
        tree: &Tree,
        directory: &InodeState,
        hash: u64,
    ) -> Result<Option<(Place, u32)>> {
        let Some(root) = &tree.root else {
            return Ok(None);
        };
        let shortcuts = &directory.directory().shortcuts;
        let top = match shortcuts.get(hash) {
            Some((nid, level)) => (self.node(nid, tree.owner)?, level),
            None => (root.clone(), 0),
        };
        // Shortcuts must not name nodes that this operation made, which do not exist if it fails.
        let all_old = self.born.is_empty();
        let bucket = self.descend(top, hash, |_, child, level| {
            if all_old {
                shortcuts.learn(hash, child, level);
            }
        })?;
        Ok(Some(bucket))
    }

    /// All buckets from the first node down to the one that names of this hash belong to.
    pub(super) fn path_to(&self, root: &NodeRef, hash: u64) -> Result<Vec<Place>> {
        let mut path = Vec::new();
        let (last, _) = self.descend((root.clone(), 0), hash, |above, _, _| path.push(above))?;
        path.push(last);
        Ok(path)
    }

    /// Walks down from a node at level `first`; passes each bucket that has a child, the child, and
    /// its level to `passed`. Returns the bucket without a child, and the level below it.
    fn descend(
        &self,
        (mut node, first): (NodeRef, u32),
        hash: u64,
        mut passed: impl FnMut(Place, Nid, u32),
    ) -> Result<(Place, u32)> {
        for level in first..LEVELS_MAX {
            let index = trie::slot(hash, level);
            let child = self
                .op
                .view_at(&node, index, bucket::HEADER, bucket::child_of)
                .map_err(|error| corrupt(node.nid, error))?;
            if child.0 == 0 {
                return Ok((Place { node, index }, level + 1));
            }
            let below = self.node(child, node.owner)?;
            let node = std::mem::replace(&mut node, below);
            passed(Place { node, index }, child, level + 1);
        }
        Err(too_deep(node.nid))
    }
}
