//! Slots in the recovered state.
//!
//! **Structure.** A slot stands in a node that surviving records change, or else in the image that
//! the NAT names: with compound transactions the node of a slot that a record names may stand in another
//! log, whose tail has passed it. **Invariants.** What records changed comes first. **On a crash**
//! nothing was written.

use std::collections::BTreeMap;

use zerocopy::{FromBytes, IntoBytes};

use super::Base;
use super::apply::Recovered;
use crate::error::Result;
use crate::format::inode::{AttributesRecord, INODE_BODY};
use crate::format::node::{NodeImage, NodeKind};
use crate::format::slot::{SLOT_BYTES, Slot};
use crate::units::{Ino, Nid, SlotRef};

/// Looks slots up.
#[derive(Debug)]
pub(crate) struct Slots<'r, B> {
    base: &'r B,
    nodes: &'r BTreeMap<Nid, Recovered>,
    /// The last node that was read from the medium: records name the slots of a node one after
    /// another.
    read: Option<(Nid, Option<NodeImage>)>,
}

impl<'r, B: Base> Slots<'r, B> {
    /// Slots of `nodes`, and of the medium where these have none.
    pub(crate) fn new(base: &'r B, nodes: &'r BTreeMap<Nid, Recovered>) -> Slots<'r, B> {
        Slots {
            base,
            nodes,
            read: None,
        }
    }

    /// The slot, if there is such a one.
    ///
    /// # Errors
    /// Errors of reading the NAT or the node's image.
    pub(crate) fn get(&mut self, owner: SlotRef) -> Result<Option<Slot>> {
        if let Some(node) = self.nodes.get(&owner.nid) {
            return Ok(node.slot(owner.granule, owner.slot));
        }
        if self.read.as_ref().is_none_or(|(nid, _)| *nid != owner.nid) {
            self.read = Some((owner.nid, read_image(self.base, owner.nid)?));
        }
        let image = self.read.as_ref().and_then(|(_, image)| image.as_ref());
        Ok(image.and_then(|image| slot_of(image, owner.granule, owner.slot)))
    }
}

/// The image the NAT names, if it names one.
///
/// # Errors
/// Errors of reading the NAT or the image.
pub(super) fn read_image(base: &impl Base, nid: Nid) -> Result<Option<NodeImage>> {
    let nat = base.entry(nid)?;
    if nat.block().is_none() {
        return Ok(None);
    }
    base.image(nid, &nat).map(Some)
}

/// Where slots begin in the payload of such a granule, if it may have any.
pub(super) fn slots_begin(kind: NodeKind, granule: u8) -> Option<usize> {
    match kind {
        NodeKind::Leaf => Some(0),
        NodeKind::Inode => Ino::of_data(Nid(0), granule).map(|_| INODE_BODY),
        _ => None,
    }
}

/// Where the slots of a granule lie in its payload, if it has any.
fn slot_area(image: &NodeImage, granule: u8) -> Option<std::ops::Range<usize>> {
    let begin = slots_begin(image.kind, granule)?;
    let is_file = |ino: Ino| {
        let attributes = image.payload(usize::from(ino.index()));
        let attributes = AttributesRecord::ref_from_bytes(attributes);
        attributes
            .expect("the payload of an attribute granule is a record")
            .is_regular()
    };
    let has_slots =
        image.kind == NodeKind::Leaf || Ino::of_data(Nid(0), granule).is_some_and(is_file);
    has_slots.then_some(begin..image.kind.payload(usize::from(granule)))
}

/// Slot `slot` of granule `granule`, if the image has such a one.
pub(crate) fn slot_of(image: &NodeImage, granule: u8, slot: u8) -> Option<Slot> {
    if usize::from(granule) >= image.kind.granules() {
        return None;
    }
    let area = slot_area(image, granule)?;
    let at = area.start + usize::from(slot) * SLOT_BYTES;
    if at + SLOT_BYTES > area.end {
        return None;
    }
    let payload = image.payload(usize::from(granule));
    Slot::read_from_bytes(&payload[at..at + SLOT_BYTES]).ok()
}

/// Writes a slot that was read from the image.
pub(super) fn put_slot(image: &mut NodeImage, granule: u8, slot: u8, new: Slot) {
    let area = slot_area(image, granule).expect("the slot was read from it");
    let at = area.start + usize::from(slot) * SLOT_BYTES;
    image.payload_mut(usize::from(granule))[at..at + SLOT_BYTES].copy_from_slice(new.as_bytes());
}

#[cfg(test)]
mod tests;
