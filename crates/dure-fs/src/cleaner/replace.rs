//! Another block for data that cannot be written to its own.
//!
//! **Problem.** A page of the data log goes to its block at a checkpoint, before the log's tail
//! passes it ([`dure_store::data_log`]). The block may refuse.
//!
//! **Structure.** As the cleaner moves a page: its content is written elsewhere, and an operation
//! makes its slot name the new block.
//!
//! **Invariants.** The checkpoint commits that operation before its tail passes the log's copy. It
//! may wait neither for another checkpoint nor for a write-back lock, which its own caller may
//! hold: holders of a write-back lock read slots again under the inode's lock before they change
//! them.
//!
//! **On a crash** before the operation is durable the slot names the old block, whose content is in
//! the log still.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::summary::{OWNER_SLOT, SummaryEntry};
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid};
use dure_sync::CoreId;

use super::data::{Granule, Moved, owner_of};
use crate::cleaner::Cleaner;

impl Cleaner {
    /// Finds another block for what the checkpoint could not write to `block`, and makes its slot
    /// name it; false when no slot had to change. A block that no slot names needs no other: an
    /// operation that has joined freed it, or one that joins behind the checkpoint's cut will name
    /// it. The caller holds the checkpoint lock and no inode.
    ///
    /// # Errors
    /// The last block's error when none takes the page; errors of reading the owner.
    pub(crate) fn replace_block(&self, core: CoreId, block: BlockNo) -> Result<bool> {
        let owner = self.store.space.owner(block)?;
        let nid = Nid(owner.nid.get());
        if owner.kind != OWNER_SLOT {
            return Ok(false);
        }
        let Some(node) = self.node_if_alive(nid)? else {
            return Ok(false);
        };
        let Some(ino) = owner_of(&node, owner.granule) else {
            return Ok(false);
        };
        let pin = match self.inodes.inode(ino) {
            Ok(pin) => pin,
            // Being deleted: no task reads it any more, nor would one after a crash.
            Err(Error::NotFound | Error::Stale(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let granule = Granule {
            inode: pin.inode(),
            node,
            index: owner.granule,
        };
        let replaced = self.replace_page(core, &granule, block, owner);
        pin.leave();
        replaced
    }

    fn replace_page(
        &self,
        core: CoreId,
        granule: &Granule<'_>,
        block: BlockNo,
        owner: SummaryEntry,
    ) -> Result<bool> {
        let Some(mut page) = granule.moves(&[(block, owner)]).pop() else {
            return Ok(false);
        };
        let mut content = [0; BLOCK_BYTES];
        let here = self.store.data_log.read(block, &mut content);
        assert!(
            here,
            "block {} left the data log while it was being written",
            block.0
        );
        page.new = self.store.placement.write_elsewhere(core, &content)?;
        self.store.flush_placed()?;
        let op = self.store.op_of_checkpoint(OpKind::Clean, 2);
        match op.map(|op| self.log_moves(op, granule, &[page])) {
            Ok(Moved::Yes) => Ok(true),
            // Overwritten or freed meanwhile.
            Ok(Moved::Changed) => {
                self.abandon(&[page]);
                Ok(false)
            }
            Err(error) => {
                self.abandon(&[page]);
                Err(error)
            }
        }
    }
}
