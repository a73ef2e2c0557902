//! Writing damaged blocks elsewhere, where memory has what they held.
//!
//! **Structure.** A page in the page cache whose checksum is that of the slot is placed as the cleaner
//! places a page that it moves. A node in memory is written by the next checkpoint, and so is a pair
//! of the SIT. **Invariants.** What is written was compared with the checksum, or is what the volume
//! works with. The damaged block is free afterwards. **On a crash** what points to the block names
//! the old or the new one.

use dure_store::Damage;
use dure_store::units::{BLOCK_BYTES, Nid};

use super::Scrub;
use super::wanted::{Content, Wanted};
use crate::inode::InodeRef;

impl Scrub<'_> {
    /// Whether the page is in memory and was written elsewhere.
    pub(super) fn mend_page(&self, inode: &InodeRef, page: u64, wanted: &Wanted) -> bool {
        let Content::Page { owner, .. } = wanted.content else {
            return false;
        };
        let mut bytes = [0; BLOCK_BYTES];
        let files = &self.names.files;
        let placed = self.store.check_writable().is_ok()
            && files.copy_cached(inode.inode(), page, &mut bytes)
            && matches!(
                self.cleaner.replace_damaged((wanted.block, owner), &bytes),
                Ok(true)
            );
        placed && self.store.commit_all().is_ok()
    }

    /// Whether the node is in memory and a checkpoint wrote it elsewhere.
    pub(super) fn mend_node(&self, nid: Nid, wanted: &Wanted) -> bool {
        let Some(node) = self.store.nodes.get(nid) else {
            return false;
        };
        self.store.check_writable().is_ok()
            && self.cleaner.make_dirty(&node)
            && self.store.checkpoint().is_ok()
            && !self.is_still(wanted)
    }

    /// Whether a structure was written again.
    pub(super) fn mend_structure(&self, damage: &Damage) -> bool {
        self.store.write_again(damage.place).unwrap_or(false)
    }
}
