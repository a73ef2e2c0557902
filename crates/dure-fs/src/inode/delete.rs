//! The end of an inode: freeing what it owns, in as many handles as that takes.
//!
//! A *light* inode (no blocks, no map, no attributes) is freed by the very handle that takes its
//! last name. Any other gets an orphan slot there; when its last pin goes, its contents are freed
//! in steps and the last handle frees the inode and the slot. **On a crash** between them the mount
//! finds the slot and goes on.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{FLAG_LONG_LINK, InodeRecord};
use dure_store::format::name::FileKind;
use dure_store::format::orphan::{INTENT_DELETE, OrphanSlot};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::Ino;
use zerocopy::little_endian::{U32, U64};

use super::{Inode, InodeRef, InodeState, Unlinked};
use crate::inode::OrphanPlace;
use crate::volume::Volume;
use crate::xattr::chain::{self, Chain};

/// Nodes the last step of a deletion may dirty: the inode's and that of its orphan slot.
const DELETE_NODES: u32 = 2;

/// How much an inode owns besides its granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Nothing: it can be freed by any operation.
    Light,
    /// Blocks, nodes or pages.
    Heavy,
}

impl InodeState {
    /// Whether freeing the inode takes more than writing its granule, which holds `record`. A
    /// directory's bucket nodes are freed by rmdir itself.
    pub(crate) fn weight(&self, record: &InodeRecord) -> Weight {
        let kind = FileKind::from_mode(record.mode.get());
        let map = record.map_root.get() != 0 && kind != Some(FileKind::Directory);
        let owns = map || record.blocks.get() != 0 || record.xattr_root.get() != 0;
        if owns || !self.file.is_clean(record) {
            Weight::Heavy
        } else {
            Weight::Light
        }
    }
}

/// The record of a freed inode: number and generation stay; the rest is zero where it would be
/// taken for an owner of something, and else stays as it is, so that the deltas of this and the
/// next life are short.
pub(crate) fn freed(record: &InodeRecord) -> InodeRecord {
    let mut freed = *record;
    freed.mode = U32::ZERO;
    freed.nlink = U32::ZERO;
    freed.flags = U32::ZERO;
    freed.size = U64::ZERO;
    freed.blocks = U64::ZERO;
    freed.rdev = U64::ZERO;
    freed.parent = U64::ZERO;
    freed.xattr_bytes = U32::ZERO;
    freed.xattr_root = U64::ZERO;
    freed.map_root = U64::ZERO;
    freed.map_height = U32::ZERO;
    freed.body.fill(0);
    freed
}

impl Volume {
    /// The operation that freed a claimed inode has finished.
    pub(crate) fn inode_freed(&self, inode: &Inode) {
        self.inodes.remove(inode);
        let core = self.alloc_partition();
        self.inode_pools.give(core, &inode.node, inode.ino);
        self.counters.inodes.add(-1);
    }

    /// The last pin of an inode without a name is gone.
    pub(super) fn delete_unpinned(&self, inode: &Inode) {
        if !self.inodes.claim(inode, 0) {
            return;
        }
        if self
            .check_writable()
            .and_then(|()| self.delete(inode))
            .is_err()
        {
            self.leave_claimed(inode);
        }
    }

    /// As [`Volume::delete_unpinned`], where no operation may begin.
    pub(super) fn leave_deletion(&self, inode: &Inode) {
        if self.inodes.claim(inode, 0) {
            self.leave_claimed(inode);
        }
    }

    /// The orphan slot stays: the next mount finishes the job.
    fn leave_claimed(&self, inode: &Inode) {
        self.counters.deletions_left.add(1);
        let mut state = inode.state.write();
        self.forget_file(inode, &mut state.file);
        drop(state);
        self.inodes.remove(inode);
    }

    fn delete(&self, inode: &Inode) -> Result<()> {
        self.inode_pools.adopt(&inode.node);
        if inode.kind == FileKind::File {
            self.free_contents(inode)?;
        }
        // Nobody else has it; alone, so that its attributes are all in the state.
        let record = inode.state.write().record;
        let mut chains = Vec::new();
        if record.xattr_root.get() != 0 {
            chains.push(chain::load(
                self,
                record.xattr_root.get(),
                record.xattr_owner(),
            )?);
        }
        if record.flags.get() & FLAG_LONG_LINK != 0 {
            chains.push(chain::load(self, record.map_root.get(), inode.ino)?);
        }
        let nodes: u32 = chains.iter().map(Chain::nodes).sum();
        let mut op = self.op(OpKind::Delete, OpClass::Delete, DELETE_NODES + nodes)?;
        let mut state = inode.state.write();
        chains.iter().try_for_each(|chain| chain.free(&mut op))?;
        self.free_inode(op, inode, &mut state);
        drop(state);
        self.inode_freed(inode);
        Ok(())
    }

    /// Lets `op` free a claimed inode that owns nothing any more, clear its slot, and finish.
    pub(crate) fn free_inode(&self, mut op: Op<'_>, inode: &Inode, state: &mut InodeState) {
        let record = freed(&state.record);
        inode.store(&mut op, &record);
        if let Some(place) = &state.orphan {
            place.clear(&mut op);
        }
        op.finish();
        self.forget_file(inode, &mut state.file);
        inode.stored(state, record);
        if let Some(place) = state.orphan.take() {
            self.orphans.give(place);
        }
    }

    /// Reads the orphan slots and does what they ask for. Run by the mount before anybody else.
    ///
    /// The volume header has been written: a damaged inode refuses no mount any more. Its slot stays
    /// as it is, for the check.
    ///
    /// # Errors
    /// What reading the slots, which the mount has tried before, and the operations report.
    pub(crate) fn finish_orphans(&self) -> Result<()> {
        for (place, slot) in self.read_orphans()? {
            match self.finish_orphan(place, slot) {
                Err(Error::Corrupt { .. }) => self.counters.deletions_left.add(1),
                finished => finished?,
            }
        }
        Ok(())
    }

    fn finish_orphan(&self, place: OrphanPlace, slot: OrphanSlot) -> Result<()> {
        let inode = match self.inode_unless(Ino(slot.ino.get()), Unlinked::Allowed) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return self.clear_orphan(place),
            Err(error) => return Err(error),
        };
        if slot.intent.get() != INTENT_DELETE {
            return self.resume_truncate(&inode, slot.intent.get(), place);
        }
        let mut state = inode.inode().state.write();
        if state.is_alive() {
            drop(state);
            return self.clear_orphan(place);
        }
        state.orphan = Some(place);
        inode.inode().set_unlinked(self, true);
        drop(state);
        let left = self.counters.deletions_left.sum();
        drop::<InodeRef>(inode);
        if self.counters.deletions_left.sum() == left {
            Ok(())
        } else {
            self.check_writable()
        }
    }

    fn clear_orphan(&self, place: OrphanPlace) -> Result<()> {
        let mut op = self.op(OpKind::Delete, OpClass::Delete, 1)?;
        place.clear(&mut op);
        op.finish();
        self.orphans.give(place);
        Ok(())
    }
}
