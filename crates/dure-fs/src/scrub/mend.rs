//! Writing damaged blocks elsewhere, where memory has what they held.
//!
//! **Structure.** A page in the page cache whose checksum is that of the slot is placed as the cleaner
//! places a page that it moves; and so is what a snapshot has in the same place of the file, in another
//! block, with the same checksum. A node in memory is written by the next checkpoint, and so is a pair
//! of NAT or SIT. **Invariants.** What is written was compared with the checksum, or is what the volume
//! works with. The damaged block is free afterwards. **On a crash** what points to the block names
//! the old or the new one.

use dure_block::crc32c::crc32c;
use dure_store::format::nat::ENTRIES;
use dure_store::packs::Table;
use dure_store::units::{BLOCK_BYTES, Nid};
use dure_store::{Damage, Place};

use super::Scrub;
use super::wanted::{Content, Wanted};

impl Scrub<'_> {
    /// What a damaged page held, from memory or from a snapshot.
    pub(super) fn content_of(&self, wanted: &Wanted) -> Option<[u8; BLOCK_BYTES]> {
        let Content::Page { owner, ino, slot } = wanted.content else {
            return None;
        };
        let mut bytes = [0; BLOCK_BYTES];
        let inode = self.names.inodes.inode(ino).ok();
        let page = inode.as_ref().and_then(|inode| self.page(inode, wanted));
        let is_cached = inode.zip(page).is_some_and(|(inode, page)| {
            let files = &self.names.files;
            files.copy_cached(inode.inode(), page, &mut bytes)
        });
        if is_cached && crc32c(&bytes) == slot.crc.get() {
            return Some(bytes);
        }
        self.same_page(&owner, &slot)
    }

    /// Whether a page was written elsewhere, with this content.
    pub(super) fn mend_page(&self, wanted: &Wanted, bytes: &[u8; BLOCK_BYTES]) -> bool {
        let Content::Page { owner, .. } = wanted.content else {
            return false;
        };
        let placed = || self.cleaner.replace_damaged((wanted.block, owner), bytes);
        self.store.check_writable().is_ok()
            && matches!(placed(), Ok(true))
            && self.store.commit_all().is_ok()
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
        match damage.place {
            Place::Pair(pair) if pair.table == Table::Nat => self.mend_nat(pair.index),
            place => self.store.write_again(place).unwrap_or(false),
        }
    }

    /// Whether a pair of the NAT is in memory and a checkpoint wrote it, with the image of a node that
    /// it names.
    fn mend_nat(&self, index: u64) -> bool {
        let nids = (index * ENTRIES..(index + 1) * ENTRIES).map(Nid);
        // A snapshot would get the damaged pair.
        if self.store.check_writable().is_err() || !self.store.snapshots.list().is_empty() {
            return false;
        }
        let entries = nids.map_while(|nid| Some((nid, self.store.nat.entry(nid).ok()?)));
        let mut images = entries.filter(|(_, entry)| !entry.block().is_none());
        let found = images
            .next()
            .map(|(nid, _)| self.cleaner.node_if_alive(nid));
        let Some(Ok(Some(node))) = found else {
            return false;
        };
        self.cleaner.make_dirty(&node) && self.store.checkpoint().is_ok()
    }
}
