//! Moving file data: read, verify, write elsewhere, change the slots.

use dure_block::BlockBuf;
use dure_store::OpKind;
use dure_store::alloc::Temperature;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{AttributesRecord, INODE_BODY};
use dure_store::format::node::NodeKind;
use dure_store::format::slot::{SLOT_BYTES, Slot};
use dure_store::node::{Node, NodeRef};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BlockNo, Ino, Nid, Run, SlotRef, to_usize};
use dure_sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

use super::{CleanReport, Owned};
use crate::inode::Inode;
use crate::volume::Volume;

/// A page on the move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    slot: u8,
    old: Slot,
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

impl Volume {
    /// Moves blocks that slots own, granule by granule.
    pub(super) fn move_slots(&self, mut owned: Vec<Owned>, report: &mut CleanReport) -> Result<()> {
        let place = |owner: &dure_store::format::summary::SummaryEntry| {
            (owner.nid.get(), owner.granule, owner.slot)
        };
        owned.sort_unstable_by_key(|(_, owner)| place(owner));
        let same = |a: &Owned, b: &Owned| (a.1.nid, a.1.granule) == (b.1.nid, b.1.granule);
        for group in owned.chunk_by(same) {
            self.move_granule(group, report)?;
        }
        Ok(())
    }

    /// Moves the blocks of one granule's slots, if its inode is not busy.
    fn move_granule(&self, group: &[Owned], report: &mut CleanReport) -> Result<()> {
        let nid = Nid(group[0].1.nid.get());
        let index = group[0].1.granule;
        let count = dure_store::units::to_u64(group.len());
        let owner = self
            .node_if_alive(nid)?
            .and_then(|node| owner_of(&node, index));
        let inode = match owner.map(|ino| self.inode(ino)) {
            Some(Ok(inode)) => inode,
            Some(Err(Error::NotFound | Error::Stale(_))) | None => {
                report.disowned += count;
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
        };
        let inode = inode.inode();
        let Some(_held) = inode.writeback().try_lock() else {
            report.busy += count;
            return Ok(());
        };
        // Looked up again: before the lock it could have been freed, and even reused elsewhere.
        let node = self.node_if_alive(nid)?;
        let Some(node) = node.filter(|node| owner_of(node, index) == Some(inode.ino)) else {
            report.disowned += count;
            return Ok(());
        };
        let granule = Granule { inode, node, index };
        let moves = granule.moves(group);
        report.disowned += count - dure_store::units::to_u64(moves.len());
        self.move_pages(&granule, moves, report)
    }

    /// Moves pages whose slots were just read. The caller holds the inode's write-back lock, so
    /// only a checkpoint that cannot place a page of the data log changes a slot meanwhile.
    fn move_pages(
        &self,
        granule: &Granule<'_>,
        mut moves: Vec<Move>,
        report: &mut CleanReport,
    ) -> Result<()> {
        let mut data = BlockBuf::zeroed(moves.len().max(1));
        let before = moves.len();
        self.read_good(&mut moves, data.as_mut_slice());
        report.bad += dure_store::units::to_u64(before - moves.len());
        let wanted = moves.len();
        self.find_homes(&mut moves);
        report.homeless += dure_store::units::to_u64(wanted - moves.len());
        if moves.is_empty() {
            return Ok(());
        }
        let moved = self
            .write_moved(&moves, data.as_slice())
            // One node, and room for two notes about each block.
            .and_then(|()| self.op(OpKind::Clean, OpClass::Delete, 2))
            .map(|op| self.log_moves(op, granule, &moves));
        match moved {
            Ok(Moved::Yes) => report.data += dure_store::units::to_u64(moves.len()),
            Ok(Moved::Changed) => {
                self.abandon(&moves);
                report.busy += dure_store::units::to_u64(moves.len());
            }
            Err(_) => self.abandon(&moves),
        }
        moved.map(drop)
    }

    /// Reads the pages into `data`, one behind the other, and drops those that cannot be read or
    /// are not what their slots say.
    fn read_good(&self, moves: &mut Vec<Move>, data: &mut [u8]) {
        let mut good: Vec<Move> = Vec::with_capacity(moves.len());
        for &page in moves.iter() {
            let bytes = &mut data[good.len() * BLOCK_BYTES..][..BLOCK_BYTES];
            if page.old.is_written() {
                let read = self.placement.read_page(&page.old, bytes, String::new);
                if read.is_err() {
                    continue;
                }
            }
            good.push(page);
        }
        *moves = good;
    }

    /// Allocates a block for each page; drops the pages that get none outside of the victims.
    fn find_homes(&self, moves: &mut Vec<Move>) {
        let core = self.partition();
        let mut placed = 0;
        while placed < moves.len() {
            let want = u32::try_from(moves.len() - placed).expect("a granule has few slots");
            if !self.space.reserve(core, want, OpClass::Delete) {
                break;
            }
            let Ok(run) = self.placement.alloc_data(core, Temperature::Cold, want) else {
                self.space.unreserve(core, want);
                break;
            };
            self.space.unreserve(core, want - run.count);
            let homed = &mut moves[placed..placed + to_usize(run.count.into())];
            for (page, block) in homed.iter_mut().zip(run.first.0..) {
                page.new = BlockNo(block);
            }
            if self.space.is_being_cleaned(run.first) {
                // All that is left is in the victims: moving within them gains nothing.
                self.abandon(homed);
                break;
            }
            placed += homed.len();
        }
        moves.truncate(placed);
    }

    /// Gives back the blocks that these pages were to move to.
    pub(super) fn abandon(&self, moves: &[Move]) {
        let blocks = u32::try_from(moves.len()).expect("a granule has few slots");
        self.placement
            .release_blocks(moves.iter().map(|page| page.new));
        self.space.unreserve(self.partition(), blocks);
    }

    fn write_moved(&self, moves: &[Move], data: &[u8]) -> Result<()> {
        let mut at = 0;
        for run in moves.chunk_by(|a, b| b.new.0 == a.new.0 + 1) {
            let bytes = &data[at * BLOCK_BYTES..][..run.len() * BLOCK_BYTES];
            self.region.write(run[0].new, bytes)?;
            at += run.len();
        }
        self.flush_placed()
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
    fn still_has(&self, moves: &[Move]) -> bool {
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
        match self.node.kind {
            NodeKind::Inode => &payload[INODE_BODY..],
            _ => payload,
        }
    }

    fn slot(&self, slot: u8) -> SlotRef {
        SlotRef {
            nid: self.node.nid,
            granule: self.index,
            slot,
        }
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
