//! New inodes, and those that are made without a name.
//!
//! **Problem.** An inode without a name must not outlive its users, nor a crash. **Structure.** The
//! record of a new inode is that of the next life of a free number. One without a name is made with
//! an orphan slot, in one operation: for a temporary file, or a *carrier* of attributes.
//! **Invariants.** A number in use is not made again. No other task knows a new inode before it is
//! in the cache. **On a crash** the orphan slot names what the next mount deletes.

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::format::inode::{AttributesRecord, FLAG_ORPHAN, InodeData, InodeLife, InodeRecord};
use dure_store::format::name::FileKind;
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::Ino;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Access, FreeIno, FreeSlot, Inode, InodeRef};
use crate::inode::Inodes;

/// Nodes for which an operation has room that makes a carrier: as those that make a name.
const CARRIER_NODES: u32 = 4;

/// Whether `link` may name an inode that was made without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkable {
    Yes,
    No,
}

/// The record of the next generation of a free number, born now.
pub(crate) fn blank_record(op: &Op<'_>, ino: Ino, node: &NodeRef) -> InodeRecord {
    let before = op.view_at(node, ino.index(), InodeLife::BYTES, |bytes| {
        InodeLife::read_from_bytes(bytes).expect("the range has the bytes of an InodeLife")
    });
    assert!(before.is_free(), "inode {ino} is in use");
    let mut attributes = AttributesRecord::new_zeroed();
    attributes.ino = U64::new(ino.0);
    attributes.generation = U32::new(before.generation.get().wrapping_add(1).max(1));
    (attributes.ctime, attributes.btime) = (op.time(), op.time());
    InodeRecord {
        attributes,
        data: InodeData::of_birth(ino, op.time()),
    }
}

/// Lets `op` write a new inode. Of most there is nothing to say but their attributes.
pub(crate) fn store_new(op: &mut Op<'_>, node: &NodeRef, record: &InodeRecord) {
    let InodeRecord { attributes, data } = record;
    let ino = attributes.number();
    op.fill(node, ino.index(), attributes.as_bytes());
    // Only a symbolic link is born with data.
    if data.size.get() != 0 {
        op.replace(node, ino.data_index(), data.as_bytes());
    }
}

impl Inodes {
    /// A file that no task can name: what its attributes hold is deleted with its last pin, or by
    /// the next mount.
    pub(crate) fn carrier(&self) -> Result<InodeRef> {
        let free = self.free_ino()?;
        let slot = self.orphan_slot()?;
        let mut op = self
            .store
            .op(OpKind::Create, OpClass::Normal, CARRIER_NODES)?;
        // Dropped before the op, which may give back the nid of the node that the number is in.
        let mut free = free;
        let (ino, node) = free.place(&mut op, self)?;
        let mut record = blank_record(&op, ino, &node);
        record.attributes.mode = U32::new(FileKind::File.mode());
        self.insert_unnamed(op, (slot, free), node, record, Linkable::No)
    }

    /// Lets `op` make the inode of `record` without a name, with an orphan slot, and finishes `op`.
    pub(crate) fn insert_unnamed(
        &self,
        mut op: Op<'_>,
        (slot, free): (FreeSlot<'_>, FreeIno<'_>),
        node: NodeRef,
        mut record: InodeRecord,
        linkable: Linkable,
    ) -> Result<InodeRef> {
        let ino = record.number();
        record.attributes.nlink = U32::ZERO;
        record.attributes.flags = U32::new(FLAG_ORPHAN);
        store_new(&mut op, &node, &record);
        slot.fill(&mut op, ino, INTENT_DELETE);
        let inode = Inode::new(self.cache.home(ino), node, &record)?;
        let charged = match linkable {
            Linkable::Yes => self.charge_new(&record.attributes)?,
            // A carrier counts for root, and is no inode that the limit of group 0 is for.
            Linkable::No => self.count_new(&record.attributes),
        };
        let mark = op.finish();
        charged.keep();
        inode.state().write_ordered().note_mark(mark);
        let mut held = inode.lock_attributes(Access::Attributes);
        held.get().orphan = Some(slot.used());
        held.get().linkable = linkable == Linkable::Yes;
        drop(held);
        free.used();
        self.counters.used.add(1);
        self.cache.insert(inode)
    }
}
