//! Reading a directory: lookup of a name, and the walk of readdir.

use dure_store::error::Result;
use dure_store::format::bucket::{HEADER_BYTES, LEVELS_MAX};
use dure_store::format::name::FileKind;
use dure_store::format::node::NodeKind;
use dure_store::format::trie;
use dure_store::node::{HeldGranule, NodeRef};
use dure_store::ranks::BUCKET;
use dure_store::units::{GranuleId, Ino, Nid};
use dure_sync::MutexGuard;

use super::bucket::{self, Entry};
use super::{corrupt, corrupt_listing, too_deep};
use crate::directory::Directories;
use crate::inode::InodeState;

/// A name to look for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'n> {
    pub(crate) bytes: &'n [u8],
    /// Its hash.
    pub(crate) hash: u64,
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode.
    pub(crate) ino: Ino,
    /// `st_mode >> 12`.
    pub(crate) kind: u8,
}

/// Entries copied out of their buckets.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    entries: Vec<Listed>,
    /// All names, one after another.
    names: Vec<u8>,
}

/// An entry copied out of its bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    /// 0 if none was asked for.
    pub(crate) cookie: u64,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    /// Offset of its name among all names.
    start: usize,
    len: usize,
}

/// Which entries are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// Those with cookies above this one, with their cookies and in their order.
    Behind(u64),
    /// Those of the buckets from the beginning of the listing, in the order of their bytes.
    All,
}

impl Listing {
    /// The entries and their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Listed, &[u8])> {
        (0..self.entries.len()).filter_map(|number| self.get(number))
    }

    /// The inodes of the entries.
    pub(crate) fn inodes(&self) -> impl ExactSizeIterator<Item = Ino> {
        self.entries.iter().map(|entry| entry.ino)
    }

    /// Entry `number` and its name.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<(&Listed, &[u8])> {
        let listed = self.entries.get(number)?;
        Some((listed, &self.names[listed.start..][..listed.len]))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.names.clear();
    }

    fn push(
        &mut self,
        entry: &Entry<'_>,
        cookie: u64,
    ) -> std::result::Result<(), bucket::Malformed> {
        let kind = FileKind::from_code(entry.kind);
        self.entries.push(Listed {
            cookie,
            ino: entry.ino,
            kind: kind.ok_or(bucket::Malformed("type of an entry"))?,
            start: self.names.len(),
            len: entry.name.len(),
        });
        self.names.extend_from_slice(entry.name);
        Ok(())
    }

    /// Adds the entries of a bucket that are wanted; with `Wanted::All` and `from`, only those with
    /// this hash or a greater one.
    fn add(
        &mut self,
        payload: &[u8],
        seed: u64,
        wanted: Wanted,
        from: Option<u64>,
    ) -> std::result::Result<(), bucket::Malformed> {
        match wanted {
            Wanted::Behind(cookie) => self.add_behind(payload, seed, cookie),
            Wanted::All => self.add_all(payload, seed, from),
        }
    }

    /// Adds the entries of a bucket whose cookies are above `cookie`.
    fn add_behind(
        &mut self,
        payload: &[u8],
        seed: u64,
        cookie: u64,
    ) -> std::result::Result<(), bucket::Malformed> {
        let first = self.entries.len();
        for entry in bucket::entries(payload)? {
            let entry = entry?;
            let own = trie::cookie(trie::name_hash(seed, entry.name), entry.ordinal);
            if own > cookie {
                self.push(&entry, own)?;
            }
        }
        self.entries[first..].sort_unstable_by_key(|entry| entry.cookie);
        Ok(())
    }

    /// Adds the entries of a bucket in the order of their bytes; with `from`, only those with this
    /// hash or a greater one.
    fn add_all(
        &mut self,
        payload: &[u8],
        seed: u64,
        from: Option<u64>,
    ) -> std::result::Result<(), bucket::Malformed> {
        for entry in bucket::entries(payload)? {
            let entry = entry?;
            if from.is_none_or(|from| trie::name_hash(seed, entry.name) >= from) {
                self.push(&entry, 0)?;
            }
        }
        Ok(())
    }
}

/// The bucket that names with some hash belong to.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) node: NodeRef,
    pub(crate) index: u8,
    pub(crate) level: u32,
}

impl Leaf {
    /// Whether entries belong here, and not to a child that the bucket got after it was found.
    fn is_one(&self) -> bool {
        let granule = self.node.read(self.index);
        bucket::header(granule.payload()).child.get() == 0
    }

    /// Locks the bucket, to change it or to keep it unchanged. `None`: it got a child after it was
    /// found. The caller holds the directory shared.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, BUCKET, ()>> {
        let held = self.node.lock_bucket(self.index);
        self.is_one().then_some(held)
    }

    /// Like [`Leaf::lock`], if that needs no waiting.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, BUCKET, ()>> {
        let held = self.node.try_lock_bucket(self.index)?;
        self.is_one().then_some(held)
    }
}

/// An entry as found in a directory that other tasks may be changing.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) found: Found,
    node: NodeRef,
    index: u8,
    /// The version of the bucket.
    version: u64,
}

impl Directories {
    /// The entry called `name`. The caller holds the directory.
    pub(crate) fn find(&self, directory: &InodeState, name: Name<'_>) -> Result<Option<Sight>> {
        let sight = self.with_bucket(directory, name.hash, |(node, index, _), bucket| {
            let found = found_in(bucket.payload(), name.bytes);
            let found = found.map_err(|error| corrupt(node.nid, error))?;
            Ok(found.map(|found| Sight {
                found,
                node: node.clone(),
                index,
                version: bucket.version(),
            }))
        })?;
        Ok(sight.flatten())
    }

    /// Whether the name still leads where it did. The caller has held the directory since it was
    /// found.
    pub(crate) fn holds(&self, sight: &Sight, name: Name<'_>) -> Result<bool> {
        let bucket = sight.node.read(sight.index);
        if bucket.version() == sight.version {
            return Ok(true);
        }
        let found = found_in(bucket.payload(), name.bytes);
        let found = found.map_err(|error| corrupt(sight.node.nid, error))?;
        Ok(found == Some(sight.found))
    }

    /// What `name` leads to, in its bucket. The caller holds that bucket, or the directory
    /// exclusively.
    pub(crate) fn find_in(&self, leaf: &Leaf, name: &[u8]) -> Result<Option<Found>> {
        let found = found_in(leaf.node.read(leaf.index).payload(), name);
        found.map_err(|error| corrupt(leaf.node.nid, error))
    }

    /// The bucket of names with this hash; `None` if the directory never had an entry. The caller
    /// holds the directory.
    pub(crate) fn leaf(&self, directory: &InodeState, hash: u64) -> Result<Option<Leaf>> {
        self.with_bucket(directory, hash, |(node, index, level), _| {
            let node = node.clone();
            Ok(Leaf { node, index, level })
        })
    }

    /// Whether there is an entry in the directory's first node, as far as can be told without
    /// locking buckets. The caller holds the directory shared, possibly with tasks that change it:
    /// what was seen may be removed meanwhile.
    pub(crate) fn seen_full(&self, directory: &InodeState) -> Result<bool> {
        let Some(root) = directory.directory().root_nid() else {
            return Ok(false);
        };
        let role = NodeKind::Bucket.of(directory.directory().owner);
        for index in (0_u8..).take(NodeKind::Bucket.granules()) {
            let mut header = [0; HEADER_BYTES];
            self.store
                .load_from_node(root, role, (index, 0), &mut header)?;
            if bucket::header(&header).entries.get() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The hash of a name.
    pub(crate) fn hash_of(&self, name: &[u8]) -> u64 {
        trie::name_hash(self.store.layout.hash_seed, name)
    }

    /// A name with its hash.
    #[inline]
    pub(crate) fn named<'n>(&self, bytes: &'n [u8]) -> Name<'n> {
        let hash = self.hash_of(bytes);
        Name { bytes, hash }
    }

    /// Adds the entries that are wanted of the node that holds the hash `from`, from there up to a
    /// bucket with a child; returns the hash at which the rest begins. The caller holds the
    /// directory.
    pub(crate) fn list_node(
        &self,
        directory: &InodeState,
        from: u64,
        wanted: Wanted,
        listing: &mut Listing,
    ) -> Result<Option<u64>> {
        self.preload_buckets(directory, from)?;
        let seed = self.store.layout.hash_seed;
        let corrupt = |nid, index, error| {
            let directory = directory.directory().owner;
            corrupt_listing(directory, GranuleId { nid, index }, error)
        };
        let first = self.with_bucket(directory, from, |place, bucket| {
            let (node, index, level) = place;
            // If the bucket begins before `from`, entries with lower hashes were listed before.
            let rest_of = (!trie::begins_bucket(from, level)).then_some(from);
            let added = listing.add(bucket.payload(), seed, wanted, rest_of);
            added.map_err(|error| corrupt(node.nid, index, error))?;
            Ok((node.clone(), index, level))
        })?;
        let Some((node, first, level)) = first else {
            return Ok(None);
        };
        let mut next = trie::bucket_end(from, level);
        for index in first + 1..node.granule_count() {
            let granule = node.read(index);
            if bucket::header(granule.payload()).child.get() != 0 {
                break;
            }
            let added = listing.add(granule.payload(), seed, wanted, None);
            added.map_err(|error| corrupt(node.nid, index, error))?;
            next = next.and_then(|next| trie::bucket_end(next, level));
        }
        Ok(next)
    }

    /// Reads the node that holds the hash `from` together with its siblings behind it, if it is not in
    /// memory: a task that lists goes on to them. The caller holds the directory.
    fn preload_buckets(&self, directory: &InodeState, from: u64) -> Result<()> {
        let directory = directory.directory();
        let known = directory.shortcuts.get(from);
        let Some((mut nid, first)) = known.or(directory.root_nid().map(|root| (root, 0))) else {
            return Ok(());
        };
        for level in first..LEVELS_MAX {
            if !self.store.reads_wait() {
                return Ok(());
            }
            let node = self.store.node(nid, NodeKind::Bucket.of(directory.owner))?;
            let child_of = |index| Nid(bucket::header(node.read(index).payload()).child.get());
            let index = trie::slot(from, level);
            let child = child_of(index);
            if child.0 == 0 {
                return Ok(());
            }
            if self.store.node_waits(child) {
                let children = (index..node.granule_count()).map(child_of);
                self.store.preload(children.filter(|child| child.0 != 0));
            }
            nid = child;
        }
        Ok(())
    }

    /// Whether the deepest known node on the way to `hash` has to be waited for. The caller holds
    /// the directory.
    pub(crate) fn bucket_waits(&self, directory: &InodeState, hash: u64) -> bool {
        let directory = directory.directory();
        let known = directory.shortcuts.get(hash).map(|(nid, _)| nid);
        let first = known.or_else(|| directory.root_nid());
        first.is_some_and(|nid| self.store.node_waits(nid))
    }

    /// Passes the bucket that holds `hash` to `look`: its node, its index there, its level, and its
    /// granule; returns `None` without one. The caller holds the directory, possibly with tasks that
    /// change it: the granule is locked, so that an operation that changes several granules (a
    /// split, a rename) is seen in all or in none.
    fn with_bucket<R>(
        &self,
        directory: &InodeState,
        hash: u64,
        look: impl FnOnce((&NodeRef, u8, u32), &HeldGranule<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let shortcuts = &directory.directory().shortcuts;
        let root = || directory.directory().root_nid().map(|root| (root, 0));
        let Some((mut nid, first)) = shortcuts.get(hash).or_else(root) else {
            return Ok(None);
        };
        for level in first..LEVELS_MAX {
            let index = trie::slot(hash, level);
            let node = self
                .store
                .node(nid, NodeKind::Bucket.of(directory.directory().owner))?;
            let granule = node.read(index);
            let child = Nid(bucket::header(granule.payload()).child.get());
            if child.0 == 0 {
                return look((&node, index, level), &granule).map(Some);
            }
            nid = child;
            shortcuts.learn(hash, child, level + 1);
        }
        Err(too_deep(nid))
    }
}

/// What `name` leads to in a bucket.
fn found_in(payload: &[u8], name: &[u8]) -> std::result::Result<Option<Found>, bucket::Malformed> {
    let entry = bucket::find(payload, name)?;
    Ok(entry.map(|Entry { ino, kind, .. }| Found { ino, kind }))
}
