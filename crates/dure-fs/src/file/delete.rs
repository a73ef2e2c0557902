//! Deletion of an inode: freeing what it owns, in as many handles as that takes.
//!
//! A *light* inode (no blocks, no map, no attributes) that no task uses is freed by the very handle
//! that takes its last name. Any other gets an orphan slot there; when its last pin goes, what it
//! owns is freed in steps, and the last handle frees the inode and the slot. **On a crash** between
//! them the mount finds the slot and continues.

use std::collections::BTreeSet;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::FLAG_LONG_LINK;
use dure_store::format::name::FileKind;
use dure_store::format::orphan::{INTENT_DELETE, OrphanSlot};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::Ino;

use super::Files;
use crate::inode::{Access, Inode, InodeRef, InodeState, OrphanPlace, Unlinked, Weight};
use crate::xattr::chain::{self, Chain};

/// Maximum number of nodes that the last step of a deletion dirties: the inode's and that of its
/// orphan slot.
const DELETE_NODES: u32 = 2;

impl Files {
    /// The operation that freed a claimed inode has finished.
    pub(crate) fn inode_freed(&self, inode: &Inode) {
        if let Some(quotas) = self.inodes.quotas() {
            quotas.inode_gone(&inode.attributes());
        }
        self.inodes.cache.remove(inode);
        let core = self.store.alloc_partition();
        self.inodes.pools.give(core, &inode.node, inode.ino);
        self.inodes.counters.used.add(-1);
    }

    /// The last pin of an inode without a name is gone.
    pub(super) fn delete_unpinned(&self, inode: &Inode) {
        if !self.inodes.cache.claim(inode, 0) {
            return;
        }
        if self
            .store
            .check_writable()
            .and_then(|()| self.delete(inode))
            .is_err()
        {
            self.leave_claimed(inode);
        }
    }

    /// Like [`Files::delete_unpinned`], where no operation may begin.
    pub(super) fn leave_deletion(&self, inode: &Inode) {
        if self.inodes.cache.claim(inode, 0) {
            self.leave_claimed(inode);
        }
    }

    /// The orphan slot stays: the next mount finishes the deletion.
    fn leave_claimed(&self, inode: &Inode) {
        self.inodes.counters.deletions_left.add(1);
        let mut state = inode.state().write();
        inode.state().forget_all();
        self.body.forget(self, inode, &mut state);
        drop(state);
        self.inodes.cache.remove(inode);
    }

    fn delete(&self, inode: &Inode) -> Result<()> {
        self.inodes.pools.adopt(&inode.node);
        let attributes = inode.attributes();
        let (weight, root) = {
            let state = inode.state().read();
            let root = inode.data_head().map_root.get();
            (inode.weight(&state, &attributes), root)
        };
        if inode.kind == FileKind::File && weight == Weight::Heavy {
            self.free_contents(inode)?;
        }
        let mut chains = Vec::new();
        if attributes.xattr_root.get() != 0 {
            chains.push(chain::load(
                &self.store,
                attributes.xattr_root.get(),
                attributes.xattr_owner(),
            )?);
        }
        if attributes.flags.get() & FLAG_LONG_LINK != 0 {
            chains.push(chain::load(&self.store, root, inode.ino)?);
        }
        let nodes: u32 = chains.iter().map(Chain::nodes).sum();
        let mut op = self
            .store
            .op(OpKind::Delete, OpClass::Delete, DELETE_NODES + nodes)?;
        let mut state = inode.state().write();
        chains.iter().try_for_each(|chain| chain.free(&mut op))?;
        self.free_inode(op, inode, &mut state);
        drop(state);
        self.inode_freed(inode);
        Ok(())
    }

    /// Lets `op` free a claimed inode that owns nothing any more, clear its slot, and finish.
    pub(crate) fn free_inode(&self, mut op: Op<'_>, inode: &Inode, state: &mut InodeState) {
        let mut held = inode.state().attributes().lock();
        inode.store_free(&mut op, &mut inode.attributes());
        if let Some(place) = &held.orphan {
            place.clear(&mut op);
        }
        op.finish();
        inode.blocks_stored(state, 0);
        self.body.forget(self, inode, state);
        state.gone = true;
        inode.state().forget_all();
        inode.access_time().clear();
        if let Some(place) = held.orphan.take() {
            self.inodes.orphans.give(place);
        }
    }

    /// Reads the orphan slots and does what they ask for. The mount calls it before any other task
    /// runs. Deletions of the inodes of `keep`, which are still in use, are left for the last of
    /// the returned pins.
    ///
    /// The volume header has been written, so a damaged inode no longer refuses the mount. Its slot
    /// stays as it is, for the check.
    ///
    /// # Errors
    /// Those of the operations, and of reading the slots, which the mount has read once before.
    pub(crate) fn finish_orphans(&self, keep: &BTreeSet<Ino>) -> Result<Vec<InodeRef>> {
        let mut kept = Vec::new();
        for (place, slot) in self.inodes.read_orphans()? {
            let is_kept = keep.contains(&Ino(slot.ino.get()));
            match self.adopt_orphan(place, slot) {
                Err(Error::Corrupt { .. }) => self.inodes.counters.deletions_left.add(1),
                Ok(Some(orphan)) if is_kept => kept.push(orphan),
                Ok(Some(orphan)) => self.delete_orphan(orphan)?,
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// The inode that is to be deleted; what else the slot asks for is done.
    fn adopt_orphan(&self, place: OrphanPlace, slot: OrphanSlot) -> Result<Option<InodeRef>> {
        let inode = match self
            .inodes
            .inode_unless(Ino(slot.ino.get()), Unlinked::Allowed)
        {
            Ok(inode) => inode,
            Err(Error::NotFound) => return self.clear_orphan(place).map(|()| None),
            Err(error) => return Err(error),
        };
        if slot.intent.get() != INTENT_DELETE {
            let resumed = self.resume_truncate(&inode, slot.intent.get(), place);
            return resumed.map(|()| None);
        }
        if inode.inode().attributes().nlink.get() > 0 {
            return self.clear_orphan(place).map(|()| None);
        }
        inode
            .inode()
            .lock_attributes(Access::Attributes)
            .get()
            .orphan = Some(place);
        inode.inode().set_unlinked(&self.inodes, true);
        Ok(Some(inode))
    }

    /// Drops the only pin of an inode that has no name.
    fn delete_orphan(&self, orphan: InodeRef) -> Result<()> {
        let left = self.inodes.counters.deletions_left.sum();
        drop(orphan);
        if self.inodes.counters.deletions_left.sum() == left {
            Ok(())
        } else {
            self.store.check_writable()
        }
    }

    fn clear_orphan(&self, place: OrphanPlace) -> Result<()> {
        let mut op = self.store.op(OpKind::Delete, OpClass::Delete, 1)?;
        place.clear(&mut op);
        op.finish();
        self.inodes.orphans.give(place);
        Ok(())
    }
}
