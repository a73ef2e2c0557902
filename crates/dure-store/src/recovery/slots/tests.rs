//! Where a slot of the recovered state is looked for.

use dure_sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::error::Error;
use crate::format::nat::NatEntry;
use crate::layout::Layout;
use crate::units::BlockNo;

/// A medium with leaves, whose slot n of granule 0 names block 1000 * nid + n.
#[derive(Debug)]
struct Leaves {
    nids: Vec<u64>,
    images_read: AtomicU64,
}

fn leaf(block: impl Fn(u8) -> u64) -> NodeImage {
    let mut image = NodeImage::fresh(NodeKind::Leaf, 1);
    for slot in 0..64 {
        put_slot(&mut image, 0, slot, Slot::written(BlockNo(block(slot)), 7));
    }
    image
}

impl Base for Leaves {
    fn entry(&self, nid: Nid) -> Result<NatEntry> {
        if !self.nids.contains(&nid.0) {
            return Ok(NatEntry::tombstone(9));
        }
        Ok(NatEntry::live(BlockNo(nid.0), NodeKind::Leaf, 0, 1))
    }

    fn image(&self, nid: Nid, _: &NatEntry) -> Result<NodeImage> {
        // Relaxed: one thread.
        self.images_read.fetch_add(1, Ordering::Relaxed);
        Ok(leaf(|slot| 1000 * nid.0 + u64::from(slot)))
    }

    fn layout(&self) -> &Layout {
        unreachable!("slots are looked up by node")
    }

    fn block(&self, _: BlockNo, _: &mut [u8]) -> Result<()> {
        Err(Error::NotFound)
    }
}

fn at(nid: u64, granule: u8, slot: u8) -> SlotRef {
    SlotRef {
        nid: Nid(nid),
        granule,
        slot,
    }
}

/// Fails when the look-up goes to the medium only, or to the recovered nodes only
/// (docs/testing/races.md, recovery::liveness: blocks in use were taken for free).
#[test]
fn a_slot_is_looked_up_in_the_recovered_state_then_on_the_medium() {
    let leaves = Leaves {
        nids: vec![5, 6, 7],
        images_read: AtomicU64::new(0),
    };
    let changed = Recovered::unchanged(leaf(|slot| 9000 + u64::from(slot)));
    let mut gone = Recovered::unchanged(leaf(|_| 1));
    gone.image = None;
    let nodes = BTreeMap::from([(Nid(5), changed), (Nid(7), gone)]);
    let mut slots = Slots::new(&leaves, &nodes);
    let mut block = |owner| {
        let slot = slots.get(owner).unwrap();
        slot.map(|slot| slot.block().0)
    };
    assert_eq!(block(at(5, 0, 3)), Some(9003), "a record changed it");
    assert_eq!(block(at(6, 0, 3)), Some(6003), "no record names it");
    assert_eq!(block(at(7, 0, 3)), None, "a record freed it");
    assert_eq!(block(at(8, 0, 3)), None, "it is free");
    assert_eq!(block(at(6, 1, 3)), Some(0), "a hole");
    assert_eq!(block(at(6, 5, 0)), None, "a leaf has five granules");
    assert_eq!(block(at(6, 0, 64)), None, "of 64 slots");
}

#[test]
fn the_slots_of_a_node_are_read_at_once() {
    let leaves = Leaves {
        nids: vec![6, 7],
        images_read: AtomicU64::new(0),
    };
    let nodes = BTreeMap::new();
    let mut slots = Slots::new(&leaves, &nodes);
    for nid in [6, 7, 6] {
        for slot in 0..64 {
            let found = slots.get(at(nid, 0, slot)).unwrap().unwrap();
            assert_eq!(found.block().0, 1000 * nid + u64::from(slot));
        }
    }
    // Relaxed: one thread.
    assert_eq!(leaves.images_read.load(Ordering::Relaxed), 3);
}
