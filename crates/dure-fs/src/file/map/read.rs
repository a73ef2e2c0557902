//! Looking slots up.

use dure_store::error::{Error, Result};
use dure_store::format::inode::{BODY_BYTES, DataHead};
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, SLOT_BYTES, Slot};
use dure_store::node::NodeRef;
use dure_store::units::{BlockNo, Ino, Nid, SlotRef};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::path::{
    self, ChildPlace, FILE_PAGES_MAX, HEIGHT_MAX, SlotPlace, height_for, node_start,
};

use super::room::{NodePlaces, whole_path};
use crate::file::Files;
use crate::inode::Inode;

/// Bytes of a granule of slots.
const SLOTS_BYTES: usize = NodeKind::Leaf.payload(0);
const _: () = assert!(
    BODY_BYTES <= SLOTS_BYTES,
    "direct slots fit in a copy of a granule"
);

/// Reads the map of one inode; remembers the last leaf, and the slots it has read there. The caller
/// holds the inode lock for as long as it uses one.
#[derive(Debug)]
pub(crate) struct MapReader<'a> {
    files: &'a Files,
    inode: &'a Inode,
    head: DataHead,
    /// First page of a leaf, and the leaf if there is one.
    leaf: Option<(u64, Option<Nid>)>,
    /// Where the last slot was.
    last: Option<Slots>,
    /// All slots of the place where two were asked for, one after the other: most callers look at
    /// one slot, and others at many neighbours.
    copied: Option<(Slots, [u8; SLOTS_BYTES])>,
}

/// Slots that lie next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    /// Those in the inode's data.
    Direct,
    /// Those of a granule of a leaf.
    Leaf(Nid, u8),
}

impl<'a> MapReader<'a> {
    /// A reader of the inode's map.
    #[inline]
    pub(crate) fn new(files: &'a Files, inode: &'a Inode) -> MapReader<'a> {
        MapReader {
            files,
            inode,
            head: inode.data_head(),
            leaf: None,
            last: None,
            copied: None,
        }
    }

    /// The slot of `page`; a hole where nothing is mapped.
    ///
    /// # Errors
    /// `Corrupt` when the map is not one; errors of reading nodes.
    pub(crate) fn slot(&mut self, page: u64) -> Result<Slot> {
        let (slots, bytes) = if page < DIRECT_SLOTS {
            (Slots::Direct, path::direct_bytes(page))
        } else {
            let Some(leaf) = self.leaf_of(page)? else {
                return Ok(Slot::HOLE);
            };
            let place = SlotPlace::in_leaf(page);
            (Slots::Leaf(leaf, place.granule), place.bytes())
        };
        let mut slot = [0; SLOT_BYTES];
        match &self.copied {
            Some((of, copy)) if *of == slots => slot.copy_from_slice(&copy[bytes]),
            _ if self.last == Some(slots) => {
                let mut copy = [0; SLOTS_BYTES];
                self.load(slots, 0, &mut copy[..slots.len()])?;
                slot.copy_from_slice(&copy[bytes]);
                self.copied = Some((slots, copy));
            }
            _ => {
                self.load(slots, bytes.start, &mut slot)?;
                self.last = Some(slots);
            }
        }
        check_slot(self.files, self.inode.ino, page, slot_of(&slot))
    }

    /// The node that holds the slot of `page`, which is mapped, and the place of the slot in it.
    ///
    /// # Errors
    /// Those of [`MapReader::slot`].
    pub(crate) fn owner(&mut self, page: u64) -> Result<(NodeRef, SlotRef)> {
        let Inode { ino, node, .. } = self.inode;
        let (node, granule, slot) = if page < DIRECT_SLOTS {
            (node.clone(), ino.data_index(), path::direct_slot(page))
        } else {
            let leaf = self.leaf_of(page)?;
            let leaf = leaf.expect("a page that is mapped has a leaf");
            let node = self.files.store.node(leaf, NodeKind::Leaf.of(*ino))?;
            let place = SlotPlace::in_leaf(page);
            (node, place.granule, place.slot)
        };
        let nid = node.nid;
        Ok((node, SlotRef { nid, granule, slot }))
    }

    /// Copies slots from their byte `at` on. Direct ones are zero as long as no data was stored.
    fn load(&self, slots: Slots, at: usize, out: &mut [u8]) -> Result<()> {
        let Inode { ino, node, .. } = self.inode;
        match slots {
            Slots::Direct => {
                node.load_body(*ino, at, out);
                Ok(())
            }
            Slots::Leaf(leaf, granule) => {
                let role = NodeKind::Leaf.of(*ino);
                self.files
                    .store
                    .load_from_node(leaf, role, (granule, at), out)
            }
        }
    }

    /// The first page in `from..to` that is mapped, and its slot.
    ///
    /// # Errors
    /// Those of [`MapReader::slot`].
    pub(crate) fn next_mapped(&mut self, from: u64, to: u64) -> Result<Option<(u64, Slot)>> {
        let to = to.min(FILE_PAGES_MAX);
        let mut page = from;
        while page < to {
            if page >= DIRECT_SLOTS && self.leaf_of(page)?.is_none() {
                let Some((start, leaf)) = next_leaf(self.files, &self.head, page)? else {
                    return Ok(None);
                };
                page = page.max(start);
                self.remember(start, Some(leaf));
                continue;
            }
            let slot = self.slot(page)?;
            if !slot.is_hole() {
                return Ok(Some((page, slot)));
            }
            page += 1;
        }
        Ok(None)
    }

    /// The leaves of the pages from `from` on that exist, `most` of them at most, if that of `from`
    /// is not in memory.
    ///
    /// # Errors
    /// Those of [`MapReader::slot`].
    pub(crate) fn leaves_to_read(&mut self, from: u64, most: u64) -> Result<Vec<Nid>> {
        let (first, span) = (from.max(DIRECT_SLOTS), path::subtree_pages(1));
        match leaf_of(self.files, &self.head, first)? {
            Some(leaf) if self.files.store.node_waits(leaf) => {}
            _ => return Ok(Vec::new()),
        }
        let mut leaves = Vec::new();
        for page in (0..most).map(|n| first + n * span) {
            leaves.extend(leaf_of(self.files, &self.head, page)?);
        }
        Ok(leaves)
    }

    pub(super) fn leaf_of(&mut self, page: u64) -> Result<Option<Nid>> {
        let start = path::node_start(page, 1);
        match self.leaf {
            Some((remembered, leaf)) if remembered == start => Ok(leaf),
            _ => {
                let leaf = leaf_of(self.files, &self.head, page)?;
                self.remember(start, leaf);
                Ok(leaf)
            }
        }
    }

    fn remember(&mut self, start: u64, leaf: Option<Nid>) {
        self.leaf = Some((start, leaf));
    }

    /// The height of the tree, 0 when there is none.
    pub(super) fn height(&self) -> Result<u32> {
        check_root(&self.head)
    }

    /// How many nodes from the leaf of `page` upwards do not exist, in a tree that reaches it.
    pub(super) fn missing_levels(&self, page: u64) -> Result<u32> {
        let height = check_root(&self.head)?;
        let mut nid = Nid(self.head.map_root.get());
        for level in (2..=height).rev() {
            nid = child(self.files, &self.head, nid, ChildPlace::toward(page, level))?;
            if nid.0 == 0 {
                return Ok(level - 1);
            }
        }
        Ok(0)
    }
}

impl Slots {
    /// Their length in bytes.
    fn len(self) -> usize {
        match self {
            Slots::Direct => BODY_BYTES,
            Slots::Leaf(..) => SLOTS_BYTES,
        }
    }
}

/// The height of the tree, 0 when there is none.
pub(super) fn check_root(data: &DataHead) -> Result<u32> {
    let (root, height) = (data.map_root.get(), data.map_height.get());
    if height <= HEIGHT_MAX && (root == 0) == (height == 0) {
        return Ok(height);
    }
    Err(Error::Corrupt {
        what: format!(
            "block map height of inode {} (root node {root})",
            data.ino.get()
        ),
        at: 0,
        want: u64::from(root != 0),
        got: u64::from(height),
    })
}

impl MapReader<'_> {
    /// The nodes that do not exist down to the leaf that starts at `leaf`.
    ///
    /// # Errors
    /// Those of [`MapReader::slot`].
    pub(crate) fn missing_nodes(&mut self, leaf: u64) -> Result<NodePlaces> {
        let height = self.height()?;
        if height_for(leaf) > height {
            return Ok(whole_path(height, leaf));
        }
        let missing = self.missing_levels(leaf)?;
        Ok((1..=missing)
            .map(|level| (level, node_start(leaf, level)))
            .collect())
    }
}

/// A child of the index `nid`.
fn child(files: &Files, data: &DataHead, nid: Nid, place: ChildPlace) -> Result<Nid> {
    let mut child = [0; size_of::<U64>()];
    let at = (place.granule, place.bytes().start);
    files
        .store
        .load_from_node(nid, NodeKind::Index.of(data.number()), at, &mut child)?;
    Ok(nid_of(&child))
}

/// The number of a child in its 8 bytes.
fn nid_of(bytes: &[u8]) -> Nid {
    Nid(U64::read_from_bytes(bytes)
        .expect("a child's place has 8 bytes")
        .get())
}

fn leaf_of(files: &Files, data: &DataHead, page: u64) -> Result<Option<Nid>> {
    let height = check_root(data)?;
    if path::height_for(page) > height {
        return Ok(None);
    }
    let mut nid = Nid(data.map_root.get());
    for level in (2..=height).rev() {
        nid = child(files, data, nid, ChildPlace::toward(page, level))?;
        if nid.0 == 0 {
            return Ok(None);
        }
    }
    Ok(Some(nid))
}

/// The first leaf that covers `page` or comes after it, with its first page.
fn next_leaf(files: &Files, data: &DataHead, page: u64) -> Result<Option<(u64, Nid)>> {
    let height = check_root(data)?;
    if path::height_for(page) > height {
        return Ok(None);
    }
    let root = Nid(data.map_root.get());
    below(files, data.number(), root, height, DIRECT_SLOTS, page)
}

/// Like `next_leaf`, within the subtree of `nid`, whose first page is `start`. Depth is bounded by
/// the height; an index without children is damage, so that nothing is searched in vain.
fn below(
    files: &Files,
    owner: Ino,
    nid: Nid,
    height: u32,
    start: u64,
    page: u64,
) -> Result<Option<(u64, Nid)>> {
    if height == 1 {
        return Ok(Some((start, nid)));
    }
    let span = path::subtree_pages(height - 1);
    let mut children = [0; NodeKind::Index.payload(0)];
    let mut granule = None;
    for n in page.saturating_sub(start) / span..INDEX_CHILDREN {
        let place = ChildPlace::nth(n);
        // A granule at a time: most of a sparse file's children are none.
        if granule != Some(place.granule) {
            let role = NodeKind::Index.of(owner);
            files
                .store
                .load_from_node(nid, role, (place.granule, 0), &mut children)?;
            granule = Some(place.granule);
        }
        let below_it = nid_of(&children[place.bytes()]);
        if below_it.0 != 0
            && let Some(found) = below(files, owner, below_it, height - 1, start + n * span, page)?
        {
            return Ok(Some(found));
        }
    }
    if page <= start {
        return Err(no_children(files, owner, nid));
    }
    Ok(None)
}

/// An index that leads nowhere: none is kept.
pub(super) fn no_children(files: &Files, owner: Ino, nid: Nid) -> Error {
    Error::Corrupt {
        what: format!("children of node {nid} in the block map of inode {owner}"),
        at: files
            .store
            .nat
            .entry(nid)
            .map_or(0, |entry| entry.block().0),
        want: 1,
        got: 0,
    }
}

/// The slot in 12 bytes.
pub(super) fn slot_of(bytes: &[u8]) -> Slot {
    Slot::read_from_bytes(bytes).expect("a slot's place has 12 bytes")
}

/// The slot, when it can be one.
pub(super) fn check_slot(files: &Files, ino: Ino, page: u64, slot: Slot) -> Result<Slot> {
    let inside = |block: BlockNo| block.is_none() || files.store.layout.locate(block).is_some();
    if slot.is_sane() && inside(slot.block()) {
        return Ok(slot);
    }
    Err(Error::Corrupt {
        what: format!("slot of page {page} of inode {ino}"),
        at: slot.block().0,
        want: files.store.layout.main,
        got: slot.place.get(),
    })
}
