//! Changing a directory within an operation: insert, remove, retarget; splitting and folding of
//! buckets.
//!
//! Everything here works on the operation's private copies and may fail at any point without a
//! trace. Who has the directory alone finds the whole path to a name; who shares it, only the
//! bucket, which he has locked ([`LockedBuckets`]), and may not free nodes.

use dure_store::error::{Error, Result};
use dure_store::format::bucket::{HEADER_BYTES, LEVELS_MAX};
use dure_store::format::inode::Time;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::ranks::BUCKET;
use dure_store::units::{Ino, Nid};
use dure_sync::MutexGuard;

use super::bucket::{self, Entry, Inserted, NewEntry};
use super::read::{Found, Leaf};
use super::{corrupt, too_deep};
use crate::inode::{Access, Inode, InodeState, LockedInodes};
use crate::namespace::Attempt;
use crate::volume::Volume;

/// The directory side of one operation.
#[derive(Debug)]
pub(crate) struct TreeEdit<'o, 'v> {
    volume: &'v Volume,
    op: &'o mut Op<'v>,
    /// Nodes this operation made: invisible to others, so `Volume::node` does not know them.
    born: Vec<NodeRef>,
    /// Nodes that may still be made or freed within the operation's budget.
    spare: u32,
}

/// A directory as the operation finds and leaves it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The first bucket node; `None` as long as there never was an entry, and in a directory that
    /// is shared.
    pub(crate) root: Option<NodeRef>,
    /// Stamps carry it.
    set_number: u32,
    /// The directory, which its nodes name.
    owner: Ino,
}

impl Tree {
    /// The tree of a directory that the caller holds.
    pub(crate) fn of(volume: &Volume, directory: &InodeState, access: Access) -> Result<Tree> {
        let root = match access {
            Access::Alone => directory.first_bucket_node(volume)?,
            // Directories have nothing beside.
            Access::Shared | Access::Beside => None,
        };
        let record = &directory.record;
        Ok(Tree {
            root,
            set_number: record.set_number.get(),
            owner: Ino(record.ino.get()),
        })
    }
}

/// One bucket.
#[derive(Debug)]
struct Place {
    node: NodeRef,
    index: u8,
}

/// The buckets that an operation changes in directories which it shares.
#[derive(Debug)]
pub(crate) struct LockedBuckets<'l> {
    /// In the order of the names.
    leaves: &'l [Option<Leaf>],
    /// Released together.
    _held: [Option<MutexGuard<'l, BUCKET, ()>>; 2],
}

impl Volume {
    /// The bucket of `name` in a directory that the operation shares; `None` where it has it alone.
    pub(crate) fn leaf_of(
        &self,
        locked: &LockedInodes<'_>,
        directory: &Inode,
        name: &[u8],
    ) -> std::result::Result<Option<Leaf>, Attempt> {
        if locked.access(directory) == Access::Alone {
            return Ok(None);
        }
        let leaf = self.leaf(locked.get(directory), name)?;
        // The first bucket node is to be made.
        leaf.ok_or(Attempt::Whole).map(Some)
    }
}

impl<'l> LockedBuckets<'l> {
    /// Locks up to two buckets, each once, in ascending (nid, index). `None` stands for a directory
    /// that is had alone.
    pub(crate) fn lock(
        leaves: &'l [Option<Leaf>],
    ) -> std::result::Result<LockedBuckets<'l>, Attempt> {
        assert!(leaves.len() <= 2, "an operation concerns two names at most");
        let place = |leaf: &Leaf| (leaf.node.nid, leaf.index);
        let mut order: Vec<&Leaf> = leaves.iter().flatten().collect();
        order.sort_unstable_by_key(|leaf| place(leaf));
        order.dedup_by_key(|leaf| place(leaf));
        let mut held = [None, None];
        for (leaf, held) in order.into_iter().zip(&mut held) {
            // Another operation has split it.
            *held = Some(leaf.lock().ok_or(Attempt::Again)?);
        }
        Ok(LockedBuckets {
            leaves,
            _held: held,
        })
    }

    /// The bucket of the name with this number, if its directory is shared.
    pub(crate) fn leaf(&self, name: usize) -> Option<&Leaf> {
        self.leaves[name].as_ref()
    }
}

/// Where a name is or would be: the buckets from the first node down, and the entry.
#[derive(Debug)]
pub(crate) struct Located {
    hash: u64,
    /// Of a directory that is shared: the last one only.
    path: Vec<Place>,
    /// Level below the last one.
    level: u32,
    entry: Option<(Found, usize)>,
    access: Access,
}

impl Located {
    /// What the name leads to.
    pub(crate) fn found(&self) -> Option<Found> {
        self.entry.map(|(found, _)| found)
    }
}

impl<'o, 'v> TreeEdit<'o, 'v> {
    /// Edits directories within `op`, making and freeing at most `spare` bucket nodes.
    pub(crate) fn new(volume: &'v Volume, op: &'o mut Op<'v>, spare: u32) -> TreeEdit<'o, 'v> {
        TreeEdit {
            volume,
            op,
            born: Vec::new(),
            spare,
        }
    }

    /// The child of a bucket node of inode `owner`.
    fn node(&self, nid: Nid, owner: Ino) -> Result<NodeRef> {
        match self.born.iter().find(|node| node.nid == nid) {
            Some(node) => Ok(node.clone()),
            None => self.volume.node(nid, NodeKind::Bucket.of(owner)),
        }
    }

    /// Finds the place of `name`: in its bucket, which the operation has locked, or in a directory
    /// that it has alone.
    pub(crate) fn locate(&self, tree: &Tree, leaf: Option<&Leaf>, name: &[u8]) -> Result<Located> {
        match leaf {
            Some(leaf) => self.locate_in(leaf, name),
            None => self.locate_from_root(tree, name),
        }
    }

    fn locate_in(&self, leaf: &Leaf, name: &[u8]) -> Result<Located> {
        let entry = self
            .op
            .view(&leaf.node, leaf.index, |payload| entry_of(payload, name));
        let place = Place {
            node: leaf.node.clone(),
            index: leaf.index,
        };
        Ok(Located {
            hash: self.volume.hash_of(name),
            path: vec![place],
            level: leaf.level + 1,
            entry: entry.map_err(|error| corrupt(leaf.node.nid, error))?,
            access: Access::Shared,
        })
    }

    fn locate_from_root(&self, tree: &Tree, name: &[u8]) -> Result<Located> {
        let hash = self.volume.hash_of(name);
        let mut located = Located {
            hash,
            path: Vec::new(),
            level: 0,
            entry: None,
            access: Access::Alone,
        };
        let Some(root) = &tree.root else {
            return Ok(located);
        };
        let mut node = root.clone();
        for level in 0..LEVELS_MAX {
            let index = trie::slot(hash, level);
            let child = self
                .op
                .view_at(&node, index, bucket::HEADER, bucket::child_of)
                .map_err(|error| corrupt(node.nid, error))?;
            if child.0 == 0 {
                let entry = self
                    .op
                    .view(&node, index, |payload| entry_of(payload, name));
                located.entry = entry.map_err(|error| corrupt(node.nid, error))?;
            }
            located.path.push(Place { node, index });
            located.level = level + 1;
            if child.0 == 0 {
                return Ok(located);
            }
            node = self.node(child, root.owner)?;
        }
        Err(too_deep(root.nid))
    }

    fn new_node(&mut self, owner: Ino) -> std::result::Result<NodeRef, Attempt> {
        self.spare = self.spare.checked_sub(1).ok_or(Attempt::Short)?;
        let node = self.op.new_node_of(NodeKind::Bucket, owner)?;
        self.born.push(node.clone());
        Ok(node)
    }

    /// Nobody is told any more, without a lock, what the name leads to. The caller has its bucket,
    /// or the directory alone, until the operation has finished, so that nobody puts the answer
    /// back before.
    fn forget(&self, tree: &Tree, hash: u64) {
        self.volume.known_names.forget(tree.owner, hash);
    }

    /// Adds an entry in its place, where `located` found none. Splits as often as it takes.
    pub(crate) fn insert(
        &mut self,
        tree: &mut Tree,
        located: Located,
        name: &[u8],
        target: Found,
    ) -> std::result::Result<(), Attempt> {
        assert!(located.entry.is_none(), "the name is taken");
        let hash = located.hash;
        self.forget(tree, hash);
        let seed = self.volume.layout.hash_seed;
        let now = self.op.time();
        let set_number = tree.set_number;
        let mut level = located.level;
        let mut place = match located.path.into_iter().next_back() {
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
            let node = place.node.clone();
            let malformed = |error| corrupt(node.nid, error);
            let payload = self.op.edit(&place.node, place.index);
            let ordinal = bucket::free_ordinal(payload, seed, hash).map_err(malformed)?;
            let what = "a directory: sixteen names with one hash";
            let ordinal = ordinal.ok_or(Error::NoSpace { what })?;
            let new = NewEntry {
                ino: target.ino,
                kind: target.kind,
                ordinal,
                name,
            };
            let inserted = bucket::insert(payload, &new).map_err(malformed)?;
            bucket::set_stamps(payload, now, set_number);
            if inserted == Inserted::Done {
                return Ok(());
            }
            place = self.split(&place, hash, level)?;
            level += 1;
        }
    }

    /// Moves the entries of a full bucket to a new node; gives the new place of `hash`.
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
        let payload = self.op.edit(&full.node, full.index);
        let seed = self.volume.layout.hash_seed;
        let parts = bucket::split(payload, seed, level).map_err(|e| corrupt(full.node.nid, e))?;
        bucket::set_child(payload, child.nid.0);
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

    /// Lets the entry that `located` found lead elsewhere.
    pub(crate) fn retarget(&mut self, tree: &Tree, located: &Located, target: Found) -> Result<()> {
        let (_, at) = located.entry.expect("an entry was found");
        let place = located.path.last().expect("an entry has a bucket");
        self.forget(tree, located.hash);
        let now = self.op.time();
        let payload = self.op.edit(&place.node, place.index);
        let changed = bucket::retarget(payload, at, target.ino, target.kind);
        changed.map_err(|error| corrupt(place.node.nid, error))?;
        bucket::set_stamps(payload, now, tree.set_number);
        Ok(())
    }

    /// Removes the entry that `located` found, and the nodes that have no entries left.
    pub(crate) fn remove(
        &mut self,
        tree: &Tree,
        directory: &InodeState,
        located: &Located,
    ) -> std::result::Result<(), Attempt> {
        let (_, at) = located.entry.expect("an entry was found");
        if located.access == Access::Shared && self.empties(located) {
            return Err(Attempt::Whole);
        }
        self.forget(tree, located.hash);
        let now = self.op.time();
        let mut depth = located.path.len() - 1;
        assert!(
            depth == 0 || located.access == Access::Alone,
            "who shares a directory knows one bucket"
        );
        while depth > 0 && self.is_last(&located.path[depth], depth + 1 == located.path.len()) {
            depth -= 1;
        }
        if depth + 1 == located.path.len() {
            let place = &located.path[depth];
            let payload = self.op.edit(&place.node, place.index);
            bucket::remove(payload, at).map_err(|error| corrupt(place.node.nid, error))?;
            bucket::set_stamps(payload, now, tree.set_number);
            return Ok(());
        }
        let level = u32::try_from(depth).expect("few levels");
        let shortcuts = &directory.directory.shortcuts;
        shortcuts.forget_below(located.hash, level);
        // The nodes below go with all their stamps, none of which is later than this change.
        for place in &located.path[depth + 1..] {
            self.spare = self.spare.checked_sub(1).ok_or(Attempt::Short)?;
            let latest = self.latest_stamp(&place.node, tree.set_number);
            let above = &located.path[depth];
            let payload = self.op.edit(&above.node, above.index);
            bucket::set_stamps(payload, latest.unwrap_or(now), tree.set_number);
            self.op.free_node(&place.node)?;
        }
        let place = &located.path[depth];
        let payload = self.op.edit(&place.node, place.index);
        bucket::set_child(payload, 0);
        bucket::set_stamps(payload, now, tree.set_number);
        Ok(())
    }

    /// Whether the node, not the first one, may lose its last entry with this one. A bucket that
    /// somebody else has counts as one that he is about to empty: he looks at this one, so one of
    /// both sees it.
    fn empties(&self, located: &Located) -> bool {
        let place = located.path.last().expect("an entry has a bucket");
        let entries = |index| {
            place.node.look_at(index, 0..HEADER_BYTES, |payload| {
                let header = bucket::header(payload);
                (header.entries.get(), header.child.get())
            })
        };
        if located.level == 1 || entries(place.index).0 > 1 {
            return false;
        }
        (0..place.node.granule_count())
            .filter(|&index| index != place.index)
            .all(|index| match place.node.try_lock_bucket(index) {
                Some(_held) => entries(index) == (0, 0),
                None => true,
            })
    }

    /// Whether nothing in the node counts but this bucket: in the last one, its only entry.
    fn is_last(&self, place: &Place, bottom: bool) -> bool {
        (0..place.node.granule_count()).all(|index| {
            self.op.view(&place.node, index, |payload| {
                let header = bucket::header(payload);
                if index == place.index {
                    !bottom || header.entries.get() == 1
                } else {
                    header.entries.get() == 0 && header.child.get() == 0
                }
            })
        })
    }

    fn latest_stamp(&self, node: &NodeRef, set_number: u32) -> Option<Time> {
        let mut fold = super::stamp::Fold::default();
        for index in 0..node.granule_count() {
            self.op.view(node, index, |payload| {
                fold.add_bucket(bucket::header(payload), set_number)
            });
        }
        fold.stamps.map(|stamps| stamps.mtime)
    }

    /// Frees all bucket nodes of a directory that must be empty, for rmdir: this writes every
    /// bucket, so that the operation follows the last change of each (model case C5).
    pub(crate) fn free_all(&mut self, directory: &InodeState) -> std::result::Result<(), Attempt> {
        let Some(root) = directory.first_bucket_node(self.volume)? else {
            return Ok(());
        };
        let mut nodes = Vec::new();
        let mut entries = 0;
        self.volume.walk_buckets(&root, &mut |node| {
            for index in 0..node.granule_count() {
                let count = |payload: &[u8]| bucket::header(payload).entries.get();
                entries += u64::from(node.look(index, count));
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

/// The entry called `name`, and where it is.
fn entry_of(
    payload: &[u8],
    name: &[u8],
) -> std::result::Result<Option<(Found, usize)>, bucket::Malformed> {
    let entry = bucket::find(payload, name)?;
    Ok(entry.map(|Entry { ino, kind, at, .. }| (Found { ino, kind }, at)))
}

/// An entry to be: an inode and its kind.
pub(crate) fn target(ino: Ino, kind: dure_store::format::name::FileKind) -> Found {
    Found {
        ino,
        kind: kind.code(),
    }
}
