//! The slots of moving pages: whose they are, and the operation that changes them.

use dure_store::error::Result;
use dure_store::format::inode::{AttributesRecord, INODE_BODY};
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{SLOT_BYTES, Slot};
use dure_store::node::{Node, NodeRef};
use dure_store::op::Op;
use dure_store::units::{BlockNo, Ino, Nid, Run, SlotRef, to_usize};
use dure_sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

use super::Owned;
use crate::cleaner::Cleaner;
use crate::inode::Inode;

/// A page on the move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    slot: u8,
    pub(super) old: Slot,
    /// Where its content goes.
    pub(super) new: BlockNo,
}

/// Whether slots were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// All of them.
    Yes,
    /// None: another task had changed one.
    Changed,
}

/// The granule that holds the slots of some moves.
#[derive(Debug)]
pub(super) struct Granule<'i> {
    pub(super) inode: &'i Arc<Inode>,
    pub(super) node: NodeRef,
    pub(super) index: u8,
}

impl Cleaner {
    /// The inode whose slots the owner of these blocks holds, and of each block its slot if that names
    /// it; `None` if the owner is gone, or holds no slots. All have their owner in one granule.
    ///
    /// # Errors
    /// Those of reading the node.
    pub(crate) fn slots_of(&self, group: &[Owned]) -> Result<Option<(Ino, Vec<Option<Slot>>)>> {
        let (nid, index) = (Nid(group[0].1.nid.get()), group[0].1.granule);
        let Some(node) = self.node_if_alive(nid)? else {
            return Ok(None);
        };
        let Some(ino) = owner_of(&node, index) else {
            return Ok(None);
        };
        let granule = node.read(index);
        let slots = slots_in(node.kind, granule.payload());
        let named = |(block, owner): &Owned| {
            slot_at(slots, owner.slot).filter(|slot| slot.block() == *block)
        };
        Ok(Some((ino, group.iter().map(named).collect())))
    }

    /// Changes the slots, if all are unchanged.
    pub(super) fn log_moves(&self, mut op: Op<'_>, granule: &Granule<'_>, moves: &[Move]) -> Moved {
        // Readers hold this lock while they read blocks: no task reads the old ones any more when
        // they become free.
        let _held = granule.inode.state().write();
        if !granule.still_has(moves) {
            return Moved::Changed;
        }
        granule.edit(&mut op, moves);
        for run in moves.chunk_by(|a, b| follows(a, b, |page| page.old.block())) {
            op.unplace(granule.slot(run[0].slot), run_of(run, run[0].old.block()));
        }
        for run in moves.chunk_by(|a, b| follows(a, b, |page| page.new)) {
            op.place(granule.slot(run[0].slot), run_of(run, run[0].new));
        }
        let mark = op.finish();
        if granule.is_of_inode() {
            granule.inode.data_granule_stored(mark);
        }
        Moved::Yes
    }
}

impl Granule<'_> {
    /// The pages of the group whose slots really name their blocks.
    pub(super) fn moves(&self, group: &[Owned]) -> Vec<Move> {
        let granule = self.node.read(self.index);
        let slots = self.slots(granule.payload());
        let mut moves = Vec::with_capacity(group.len());
        for (block, owner) in group {
            let Some(old) = slot_at(slots, owner.slot) else {
                continue;
            };
            if old.block() == *block {
                moves.push(Move {
                    slot: owner.slot,
                    old,
                    new: BlockNo::NONE,
                });
            }
        }
        moves
    }

    /// Whether the slots are unchanged, and the node is not freed. The caller holds the inode.
    pub(super) fn still_has(&self, moves: &[Move]) -> bool {
        let granule = self.node.read(self.index);
        let slots = self.slots(granule.payload());
        let same = |page: &Move| {
            slot_at(slots, page.slot).is_some_and(|slot| slot.as_bytes() == page.old.as_bytes())
        };
        self.node.freed().is_none() && moves.iter().all(same)
    }

    /// Whether it is the granule of the inode's data, with the first slots.
    fn is_of_inode(&self) -> bool {
        self.node.kind == NodeKind::Inode
    }

    /// Writes the new slots.
    fn edit(&self, op: &mut Op<'_>, moves: &[Move]) {
        let draft = op.edit(&self.node, self.index);
        let start = if self.is_of_inode() { INODE_BODY } else { 0 };
        for page in moves {
            let at = start + usize::from(page.slot) * SLOT_BYTES;
            let bytes = draft.part(at..at + SLOT_BYTES);
            assert_eq!(
                bytes,
                page.old.as_bytes(),
                "a slot changed under the inode's lock"
            );
            bytes.copy_from_slice(page.old.moved_to(page.new).as_bytes());
        }
    }

    fn slots<'p>(&self, payload: &'p [u8]) -> &'p [u8] {
        slots_in(self.node.kind, payload)
    }

    fn slot(&self, slot: u8) -> SlotRef {
        SlotRef {
            nid: self.node.nid,
            granule: self.index,
            slot,
        }
    }
}

/// The slots in a granule with slots of a node of this kind.
fn slots_in(kind: NodeKind, payload: &[u8]) -> &[u8] {
    match kind {
        NodeKind::Inode => &payload[INODE_BODY..],
        _ => payload,
    }
}

fn slot_at(slots: &[u8], slot: u8) -> Option<Slot> {
    let at = usize::from(slot) * SLOT_BYTES;
    let bytes = slots.get(at..at + SLOT_BYTES)?;
    Some(Slot::read_from_bytes(bytes).expect("the range has the bytes of a slot"))
}

/// The inode whose slots granule `index` of this node holds, if it holds slots.
pub(super) fn owner_of(node: &Node, index: u8) -> Option<Ino> {
    if index >= node.granule_count() {
        return None;
    }
    match node.kind {
        NodeKind::Leaf => Some(node.owner).filter(|owner| owner.0 != 0),
        NodeKind::Inode => {
            let ino = Ino::of_data(node.nid, index)?;
            let regular = node.look(ino.index(), |payload| {
                let attributes = AttributesRecord::ref_from_bytes(payload);
                attributes
                    .expect("the payload of an attribute granule is a record")
                    .is_regular()
            });
            regular.then_some(ino)
        }
        _ => None,
    }
}

fn follows(a: &Move, b: &Move, block: impl Fn(&Move) -> BlockNo) -> bool {
    b.slot == a.slot + 1 && block(b).0 == block(a).0 + 1
}

fn run_of(moves: &[Move], first: BlockNo) -> Run {
    assert!(to_usize(first.0) != 0, "a move without a block");
    Run {
        first,
        count: u32::try_from(moves.len()).expect("a granule has few slots"),
    }
}
