//! Where the medium says that an inode has no name, or that a truncate is half done.

use dure_store::format::orphan::OrphanSlot;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_sync::CoreId;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = size_of::<OrphanSlot>();

/// The place of a slot on the medium.
#[derive(Debug, Clone)]
pub(crate) struct OrphanPlace {
    pub(super) node: NodeRef,
    pub(super) granule: u8,
    pub(super) slot: u8,
    pub(super) partition: CoreId,
}

impl OrphanPlace {
    pub(super) fn write(&self, op: &mut Op<'_>, ino: u64, intent: u64) {
        let slot = OrphanSlot {
            ino: U64::new(ino),
            intent: U64::new(intent),
        };
        let offset = usize::from(self.slot) * SLOT_BYTES;
        let bytes = offset..offset + SLOT_BYTES;
        op.edit(&self.node, self.granule)
            .part(bytes)
            .copy_from_slice(slot.as_bytes());
    }

    /// Lets `op` clear the slot; the caller calls `Orphans::give` once `op` has finished.
    pub(crate) fn clear(&self, op: &mut Op<'_>) {
        self.write(op, 0, 0);
    }
}
