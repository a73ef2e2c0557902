//! Looking slots up.

use dure_sync::Arc;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::path::{self, ChildPlace, FILE_PAGES_MAX, HEIGHT_MAX, SlotPlace};
use crate::error::{Error, Result};
use crate::format::inode::InodeRecord;
use crate::format::node::NodeKind;
use crate::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, Slot};
use crate::node::Node;
use crate::units::{BlockNo, Nid};
use crate::volume::Volume;

/// Reads the map of one inode; remembers the last leaf. The caller holds the inode lock or the
/// write-back mutex for as long as it uses one.
#[derive(Debug)]
pub(crate) struct MapReader<'v> {
    volume: &'v Volume,
    leaf: Option<(u64, Option<Arc<Node>>)>,
}

impl<'v> MapReader<'v> {
    /// A reader of maps of `volume`.
    pub(crate) fn new(volume: &'v Volume) -> MapReader<'v> {
        MapReader { volume, leaf: None }
    }

    /// The slot of `page`; a hole where nothing is mapped.
    ///
    /// # Errors
    /// `Corrupt` when the map is not one; errors of reading nodes.
    pub(crate) fn slot(&mut self, record: &InodeRecord, page: u64) -> Result<Slot> {
        if page < DIRECT_SLOTS {
            let slot = slot_of(&record.body[path::direct_bytes(page)]);
            return check_slot(self.volume, record, page, slot);
        }
        let start = path::node_start(page, 1);
        if self
            .leaf
            .as_ref()
            .is_none_or(|(cached, _)| *cached != start)
        {
            self.leaf = Some((start, leaf_of(self.volume, record, page)?));
        }
        match &self.leaf {
            Some((_, Some(leaf))) => {
                let place = SlotPlace::in_leaf(page);
                let slot = slot_of(&leaf.read(place.granule).payload[place.bytes()]);
                check_slot(self.volume, record, page, slot)
            }
            _ => Ok(Slot::HOLE),
        }
    }

    /// The first page in `from..to` that is mapped, and its slot.
    ///
    /// # Errors
    /// As [`MapReader::slot`].
    pub(crate) fn next_mapped(
        &mut self,
        record: &InodeRecord,
        from: u64,
        to: u64,
    ) -> Result<Option<(u64, Slot)>> {
        let to = to.min(FILE_PAGES_MAX);
        let mut page = from;
        while page < to {
            if page >= DIRECT_SLOTS && !self.has_leaf(record, page)? {
                let Some((start, leaf)) = next_leaf(self.volume, record, page)? else {
                    return Ok(None);
                };
                page = page.max(start);
                self.leaf = Some((start, Some(leaf)));
                continue;
            }
            let slot = self.slot(record, page)?;
            if !slot.is_hole() {
                return Ok(Some((page, slot)));
            }
            page += 1;
        }
        Ok(None)
    }

    fn has_leaf(&mut self, record: &InodeRecord, page: u64) -> Result<bool> {
        let start = path::node_start(page, 1);
        if self
            .leaf
            .as_ref()
            .is_none_or(|(cached, _)| *cached != start)
        {
            self.leaf = Some((start, leaf_of(self.volume, record, page)?));
        }
        Ok(self.leaf.as_ref().is_some_and(|(_, leaf)| leaf.is_some()))
    }

    /// How many nodes from the leaf of `page` upwards do not exist yet.
    ///
    /// # Errors
    /// As [`MapReader::slot`].
    pub(crate) fn missing_nodes(&mut self, record: &InodeRecord, page: u64) -> Result<u32> {
        let needed = path::height_for(page);
        let height = check_root(record)?;
        if needed == 0 {
            return Ok(0);
        }
        if needed > height {
            // New roots above the old one, and a new branch down to the leaf.
            return Ok(needed - height + needed);
        }
        let mut nid = Nid(record.map_root.get());
        for level in (2..=height).rev() {
            let index = self.volume.node(nid, NodeKind::Index)?;
            nid = child(&index, ChildPlace::toward(page, level));
            if nid.0 == 0 {
                return Ok(level - 1);
            }
        }
        Ok(0)
    }
}

/// The height of the tree, 0 when there is none.
pub(super) fn check_root(record: &InodeRecord) -> Result<u32> {
    let (root, height) = (record.map_root.get(), record.map_height.get());
    if height <= HEIGHT_MAX && (root == 0) == (height == 0) {
        return Ok(height);
    }
    Err(Error::Corrupt {
        what: format!(
            "block map height of inode {} (root node {root})",
            record.ino.get()
        ),
        at: 0,
        want: u64::from(root != 0),
        got: u64::from(height),
    })
}

/// A child's nid in an index as it is in the cache.
pub(super) fn child(index: &Node, place: ChildPlace) -> Nid {
    let granule = index.read(place.granule);
    Nid(U64::read_from_bytes(&granule.payload[place.bytes()])
        .expect("8 bytes")
        .get())
}

fn leaf_of(volume: &Volume, record: &InodeRecord, page: u64) -> Result<Option<Arc<Node>>> {
    let height = check_root(record)?;
    if path::height_for(page) > height {
        return Ok(None);
    }
    let mut nid = Nid(record.map_root.get());
    for level in (2..=height).rev() {
        let index = volume.node(nid, NodeKind::Index)?;
        nid = child(&index, ChildPlace::toward(page, level));
        if nid.0 == 0 {
            return Ok(None);
        }
    }
    volume.node(nid, NodeKind::Leaf).map(Some)
}

/// The first leaf that covers `page` or comes after it, with its first page.
fn next_leaf(volume: &Volume, record: &InodeRecord, page: u64) -> Result<Option<(u64, Arc<Node>)>> {
    let height = check_root(record)?;
    if path::height_for(page) > height {
        return Ok(None);
    }
    below(
        volume,
        Nid(record.map_root.get()),
        height,
        DIRECT_SLOTS,
        page,
    )
}

/// The same within the subtree of `nid`, whose first page is `start`. Depth is bounded by the height.
fn below(
    volume: &Volume,
    nid: Nid,
    height: u32,
    start: u64,
    page: u64,
) -> Result<Option<(u64, Arc<Node>)>> {
    if height == 1 {
        return Ok(Some((start, volume.node(nid, NodeKind::Leaf)?)));
    }
    let index = volume.node(nid, NodeKind::Index)?;
    let span = path::subtree_pages(height - 1);
    for n in page.saturating_sub(start) / span..INDEX_CHILDREN {
        let nid = child(&index, ChildPlace::nth(n));
        if nid.0 != 0
            && let Some(found) = below(volume, nid, height - 1, start + n * span, page)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The slot in 12 bytes.
pub(super) fn slot_of(bytes: &[u8]) -> Slot {
    Slot::read_from_bytes(bytes).expect("a slot's place has 12 bytes")
}

/// The slot, when it can be one.
pub(super) fn check_slot(
    volume: &Volume,
    record: &InodeRecord,
    page: u64,
    slot: Slot,
) -> Result<Slot> {
    let inside = |block: BlockNo| block.is_none() || volume.layout.locate(block).is_some();
    if slot.is_sane() && inside(slot.block()) {
        return Ok(slot);
    }
    Err(Error::Corrupt {
        what: format!("slot of page {page} of inode {}", record.ino.get()),
        at: slot.block().0,
        want: volume.layout.main,
        got: slot.place.get(),
    })
}
