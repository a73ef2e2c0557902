//! Inodes that are not in memory: read from their node, checked, and put into the cache.

use dure_store::error::{Error, Result};
use dure_store::format::fields::impossible_fields;
use dure_store::format::inode::InodeRecord;
use dure_store::format::node::NodeKind;
use dure_store::node::{Node, NodeRef};
use dure_store::units::Ino;
use dure_sync::Arc;

use super::{OVERFULL_PART, Unlinked, evict};
use crate::inode::{Inode, InodeRef, Inodes};

impl Inodes {
    /// The inode, pinned.
    ///
    /// # Errors
    /// `NotFound` for a number without an inode, or one without a name.
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRef> {
        self.inode_unless(ino, Unlinked::Refused)
    }

    /// The inode, pinned, if it is in memory; its number may be any.
    ///
    /// # Errors
    /// `NotFound` when it is being deleted.
    pub(crate) fn inode_in_memory(&self, ino: Ino) -> Result<Option<InodeRef>> {
        self.cache.get(ino)
    }

    /// The inode, pinned; with `Unlinked::Allowed` even one without a name.
    pub(crate) fn inode_unless(&self, ino: Ino, unlinked: Unlinked) -> Result<InodeRef> {
        if let Some(found) = self.cache.get(ino)? {
            return Ok(found);
        }
        if self.store.node_waits(ino.nid()) {
            let is_absent = |nid| self.store.nodes.get(nid).is_none();
            self.store
                .preload(self.last_listed.nodes_from(ino, is_absent));
        }
        let node = self.store.node(ino.nid(), NodeKind::Inode.of_none())?;
        let record = node.inode(ino);
        let attributes = &record.attributes;
        if attributes.is_free() || (attributes.nlink.get() == 0 && unlinked == Unlinked::Refused) {
            return Err(Error::NotFound);
        }
        if let Err(error) = self.check_inode(&node, ino, &record) {
            // Granules of two lives of the number do not fit together.
            return match node.still_has(ino, &record) {
                true => Err(error),
                false => self.inode_unless(ino, unlinked),
            };
        }
        self.insert_loaded(node, ino, record)
    }

    /// Refuses a record that no version of dure writes, before any of its fields is followed or
    /// used in a sum.
    fn check_inode(&self, node: &Node, ino: Ino, record: &InodeRecord) -> Result<()> {
        let number = record.attributes.ino.get();
        let blocks = record.data.blocks.get();
        let project = record.attributes.project.get();
        let wrong = if number != ino.0 {
            Some(("number", ino.0, number))
        } else if blocks > self.store.layout.total_blocks {
            Some(("blocks", self.store.layout.total_blocks, blocks))
        } else if project != 0 && !self.store.has_projects() {
            Some(("project", 0, project.into()))
        } else {
            impossible_fields(ino, record)
                .next()
                .map(|(field, got, _)| (field, 0, got))
        };
        let Some((field, want, got)) = wrong else {
            return Ok(());
        };
        Err(Error::Corrupt {
            what: format!("{field} of inode {ino}"),
            at: self.store.nat.entry(node.nid)?.block().0,
            want,
            got,
        })
    }

    /// Between the read of the granules and here other tasks may have loaded, changed and evicted
    /// the inode, so it is read again under the shard's lock.
    fn insert_loaded(&self, node: NodeRef, ino: Ino, record: InodeRecord) -> Result<InodeRef> {
        let mut inode = Inode::new(self.cache.home(ino), node.clone(), &record)?;
        let mut evicted = Vec::new();
        let mut shard = self.cache.shard(ino).write();
        if let Some(there) = shard.inodes.get(&ino.0) {
            return Inode::pin(there);
        }
        if !node.still_has(ino, &record) || node.freed().is_some() {
            drop(shard);
            return self.inode(ino);
        }
        self.cache.make_room(&mut shard, ino, &mut evicted);
        if self.store.nodes.is_overfull() || self.range_words.is_used_up() {
            // Each inode refers to its node, so inodes loaded in random order keep one node each;
            // and a file for which tasks contended keeps its words.
            let most = self.cache.shard_inodes_max / OVERFULL_PART;
            evict(&mut shard, most, &mut evicted);
        }
        if let Some(journal) = self.store.journal_if_any() {
            let left = shard.left.pending(|mark| journal.is_valid(mark));
            let state = inode.content.get_mut();
            left.iter().for_each(|&mark| state.note_mark(mark));
        }
        let inode = Arc::new(inode);
        shard.inodes.insert(ino.0, inode.clone());
        drop(shard);
        drop(evicted);
        Ok(InodeRef::from_pinned(inode))
    }
}
