//! Orphan slots: which inodes have no name but users, and which truncates are half done.
//!
//! **Structure.** Each partition has a chain of orphan nodes. Slots are given out from a stack in
//! memory and written with `Op::patch`, in the same handle as the change they belong to.
//! **Invariants.** A slot is on the free stack iff it is zero and no task holds it. **On a crash**
//! the slots that are not zero say what the next mount has to finish; it reads all of them.

use std::collections::BTreeSet;

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::format::node::NodeKind;
use dure_store::format::orphan::{self, GRANULE_SLOTS, LINK_GRANULE, OrphanSlot, SLOT_GRANULES};
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{Ino, Nid};
use dure_sync::{CoreId, Mutex, PerCore};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::Inodes;
use super::orphan_place::{OrphanPlace, SLOT_BYTES};
use crate::ranks::ORPHANS;

#[derive(Debug, Default)]
struct List {
    /// The last node of the chain, once the mount has read it.
    last: Option<NodeRef>,
    free: Vec<OrphanPlace>,
}

/// The orphan slots of a volume.
#[derive(Debug)]
pub(crate) struct Orphans {
    lists: PerCore<Mutex<ORPHANS, List>>,
}

/// A free slot that a task holds; goes back when dropped unless it is used.
#[derive(Debug)]
pub(crate) struct FreeSlot<'v> {
    orphans: &'v Orphans,
    place: Option<OrphanPlace>,
}

impl FreeSlot<'_> {
    /// Lets `op` write the slot.
    pub(crate) fn fill(&self, op: &mut Op<'_>, ino: Ino, intent: u64) {
        self.place
            .as_ref()
            .expect("a slot is filled before it is used")
            .write(op, ino.0, intent);
    }

    /// The operation has finished: the slot is taken.
    pub(crate) fn used(mut self) -> OrphanPlace {
        self.place.take().expect("a slot is used once")
    }
}

impl Drop for FreeSlot<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.orphans.give(place);
        }
    }
}

impl Orphans {
    /// No slots yet; the mount reads them.
    pub(crate) fn new(partitions: usize) -> Orphans {
        Orphans {
            lists: PerCore::new(partitions, |_| Mutex::new(List::default())),
        }
    }

    /// A slot has been cleared by an operation that has finished.
    pub(crate) fn give(&self, place: OrphanPlace) {
        self.lists.get(place.partition).lock().free.push(place);
    }

    fn pop(&self, partition: CoreId) -> Option<FreeSlot<'_>> {
        let place = self.lists.get(partition).lock().free.pop()?;
        Some(FreeSlot {
            orphans: self,
            place: Some(place),
        })
    }
}

fn places(node: &NodeRef, partition: CoreId) -> impl Iterator<Item = OrphanPlace> + '_ {
    let granules = 0..u8::try_from(SLOT_GRANULES).expect("a node has few granules of slots");
    let slots = 0..u8::try_from(GRANULE_SLOTS).expect("a granule has few slots");
    granules.flat_map(move |granule| {
        slots.clone().map(move |slot| OrphanPlace {
            node: node.clone(),
            granule,
            slot,
            partition,
        })
    })
}

impl Inodes {
    /// A free orphan slot of the current core's partition; makes a node with more when all are
    /// taken. The caller holds no inode lock.
    pub(crate) fn orphan_slot(&self) -> Result<FreeSlot<'_>> {
        let partition = self.store.alloc_partition();
        loop {
            if let Some(free) = self.orphans.pop(partition) {
                return Ok(free);
            }
            self.grow_orphans(partition)?;
        }
    }

    /// Appends a node to the partition's chain.
    fn grow_orphans(&self, partition: CoreId) -> Result<()> {
        let mut op = self.store.op(OpKind::Orphan, OpClass::Delete, 2)?;
        let node = op.new_node(NodeKind::Orphan)?;
        // Held until the handle has joined: two tasks that grow the chain at once must append one
        // after the other.
        let mut list = self.orphans.lists.get(partition).lock();
        let last = list.last.clone().expect("the mount has read the list");
        op.edit(&last, LINK_GRANULE)
            .part(0..size_of::<U64>())
            .copy_from_slice(U64::new(node.nid.0).as_bytes());
        op.finish();
        list.free.extend(places(&node, partition));
        list.last = Some(node);
        Ok(())
    }

    /// Reads all slots of all partitions; returns those that are taken.
    pub(crate) fn read_orphans(&self) -> Result<Vec<(OrphanPlace, OrphanSlot)>> {
        let mut taken = Vec::new();
        let mut seen = BTreeSet::new();
        for number in 0..self.store.layout.journals {
            let partition =
                CoreId::new(u16::try_from(number).expect("a inodes has at most 1000 partitions"));
            let mut next = 1 + u64::from(number);
            while next != 0 {
                let node = self.store.node(Nid(next), NodeKind::Orphan.of_none())?;
                if !seen.insert(node.nid) {
                    return Err(orphan::met_twice(node.nid));
                }
                let mut list = self.orphans.lists.get(partition).lock();
                for place in places(&node, partition) {
                    let offset = usize::from(place.slot) * SLOT_BYTES;
                    let bytes = offset..offset + SLOT_BYTES;
                    let slot = node.look_at(place.granule, bytes, |slot| {
                        OrphanSlot::read_from_bytes(slot)
                            .expect("the range has the bytes of a slot")
                    });
                    if slot.ino.get() == 0 {
                        list.free.push(place);
                    } else {
                        taken.push((place, slot));
                    }
                }
                next = node.look_at(LINK_GRANULE, 0..8, |link| {
                    U64::read_from_bytes(link)
                        .expect("the range has the bytes of a link")
                        .get()
                });
                list.last = Some(node);
            }
        }
        Ok(taken)
    }
}
