//! Another block for a page that came with the log and that its own block does not take.
//!
//! **Structure.** As in a running volume (`cleaner::replace`) the page is written elsewhere and its
//! slot names the new block; but there is no log to say so in: the slot changes in the recovered
//! image, which the recovery is about to write. **Invariants.** The versions stay: an image that is
//! there already is as new as the records, so these are not applied to it again. **On a crash**
//! before the NAT names the image the logs still have the page, and it starts again; after it,
//! `liveness` finds the new block by the slot.

use dure_sync::CoreId;

use super::Base;
use super::apply::Recovered;
use super::liveness::own;
use super::replay::Replayed;
use super::slots::{put_slot, read_image, slot_of};
use crate::error::{Error, Result};
use crate::placement::Placement;
use crate::units::BlockNo;

/// Writes the pages that came with the logs to their blocks, or to others. Not flushed. Returns the
/// blocks that did not take theirs.
///
/// # Errors
/// `Unplaced` when a page finds no block; errors of reading an image.
pub(crate) fn place_pages(
    base: &impl Base,
    placement: &Placement,
    replayed: &mut Replayed,
) -> Result<Vec<BlockNo>> {
    let mut bad = Vec::new();
    let mut elsewhere = Vec::new();
    for (&block, page) in &replayed.data {
        let written = placement.region.write(block, &page.bytes);
        if let Err(error) = written {
            // No record names the other block: those that records name are fenced.
            if placement.space.is_shared(block) {
                // Only one of its slots would name the other block, and the page is in no log then.
                let block = block.0;
                return Err(Error::Unplaced { block, error });
            }
            let Ok(home) = placement.write_elsewhere(CoreId::new(0), &page.bytes) else {
                let block = block.0;
                return Err(Error::Unplaced { block, error });
            };
            elsewhere.push((block, page.owner, home));
        }
    }
    for (block, owner, home) in elsewhere {
        let node = match replayed.nodes.entry(owner.nid) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let image = read_image(base, owner.nid)?;
                free.insert(Recovered::unchanged(
                    image.expect("its slot names the block"),
                ))
            }
        };
        let image = node.image.as_mut().expect("its slot names the block");
        let slot = slot_of(image, owner.granule, owner.slot).expect("its slot names the block");
        assert_eq!(slot.block(), block, "recovery changes slots once");
        put_slot(image, owner.granule, owner.slot, slot.moved_to(home));
        node.changed = true;
        own(&placement.space, home, owner)?;
        placement.space.retire(block);
        bad.push(block);
    }
    Ok(bad)
}
