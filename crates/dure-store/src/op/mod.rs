//! Operations: the file system's handles.
//!
//! **Problem.** A namespace or data operation changes several granules and must be atomic in
//! memory, in the log and after a crash, also when it fails half way.
//!
//! **Structure.** An [`Op`] keeps private copies of what it edits. [`Op::finish`] locks the
//! granules in ascending order, stores the copies, captures the changed bytes as journal records,
//! joins the core's transaction and names itself as last writer before it releases the locks.
//!
//! # Invariants
//! No inode lock is held when an op begins (it may wait for a checkpoint there, never later). An op
//! that is dropped has changed nothing. A node is on a dirty list before its change joins the
//! journal: a checkpoint that takes its cut later sees the node.
//!
//! **On a crash** the op is there wholly or not at all: its records stand in one transaction.

mod draft;
mod finish;
mod image;

pub use draft::Draft;

use std::cell::OnceCell;
use std::ops::Range;

use dure_journal::Handle;
use dure_journal::format::NOTE_HEAD_BYTES;
use dure_sync::CoreId;
use smallvec::SmallVec;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use crate::error::{Error, Result};
use crate::format::inode::Time;
use crate::format::node::{NodeImage, NodeKind};
use crate::format::note::{DATA, Data};
use crate::node::{Node, NodeRef};
use crate::settle::Settler;
use crate::space::OpClass;
use crate::store::{LogRoom, OpKind, Store};
use crate::units::{BLOCK_BYTES, BlockNo, Ino, Mark, Run, SlotRef, to_usize};

/// Most bytes of records one operation may log.
pub const RECORD_BYTES_MAX: usize = 192 * 1024;

/// Room in the log that a page of data takes.
const DATA_NOTE_BYTES: usize = NOTE_HEAD_BYTES + size_of::<Data>() + BLOCK_BYTES;
/// Log bytes of such a page: data, slot, and two notes about blocks.
const DATA_PAGE_BYTES: usize = DATA_NOTE_BYTES + 128;

/// A granule that the operation changes.
#[derive(Debug)]
struct Edit {
    node: NodeRef,
    index: u8,
    draft: Draft,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Place,
    Unplace,
}

/// One atomic operation in the making.
#[derive(Debug)]
pub struct Op<'v> {
    store: &'v Store,
    handle: Option<Handle<'v, Settler>>,
    core: CoreId,
    /// Reserved blocks for images of nodes that become dirty.
    credits: u32,
    /// Inline room for as many as nearly all operations have, here and in `finish`.
    edits: SmallVec<[Edit; 4]>,
    /// Nodes this operation makes, with their first version.
    born: Vec<(NodeRef, u64)>,
    freed: Vec<NodeRef>,
    moves: SmallVec<[(Move, SlotRef, Run); 2]>,
    /// Blocks that slots (the second) name from now on, as others (the first) do.
    shares: Vec<(SlotRef, SlotRef, Run)>,
    /// Set by the first call of `Op::time`.
    time: OnceCell<Time>,
}

impl Store {
    /// Begins an operation that makes at most `nodes_max` nodes dirty. The caller holds no inode
    /// lock: an operation may checkpoint before it begins (docs/design/operations.md).
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`, `Stopped`, or what a checkpoint reports.
    pub fn op(&self, kind: OpKind, class: OpClass, nodes_max: u32) -> Result<Op<'_>> {
        self.check_writable()?;
        let core = self.partition();
        self.make_memory_room(core)?;
        self.reserve_blocks(core, nodes_max, class)?;
        self.reserved_op(kind, (nodes_max, 0), 0, LogRoom::Checkpoint)
    }

    /// An operation that rewrites at most `nodes` nodes and makes at most `held` new ones, for
    /// which the caller has reserved blocks: they are the operation's, unless this fails. It
    /// carries `pages` pages of data into the log: at most [`Store::data_pages_max`].
    ///
    /// # Errors
    /// Those of [`Store::op`].
    pub fn op_holding(
        &self,
        kind: OpKind,
        (nodes, held): (u32, u32),
        pages: usize,
    ) -> Result<Op<'_>> {
        self.check_writable()?;
        assert!(
            pages == 0 || pages <= self.data_pages_max(nodes + held),
            "{pages} pages do not fit a handle"
        );
        let core = self.partition();
        self.make_memory_room(core)?;
        self.reserve_blocks(core, nodes, OpClass::Delete)?;
        self.reserved_op(kind, (nodes, held), pages, LogRoom::Checkpoint)
    }

    /// Like [`Store::op`], for a caller that can do without: `None` when there are no blocks at
    /// once, or when a checkpoint fails.
    pub fn op_at_hand(&self, kind: OpKind, class: OpClass, nodes_max: u32) -> Option<Op<'_>> {
        self.check_writable().ok()?;
        let core = self.partition();
        self.make_memory_room(core).ok()?;
        if !self.space.reserve(core, nodes_max, class) {
            return None;
        }
        self.reserved_op(kind, (nodes_max, 0), 0, LogRoom::Checkpoint)
            .ok()
    }

    /// Like [`Store::op`], for a checkpoint, which cannot wait for another: it uses the blocks kept
    /// for deletions, and a full log gets one more segment. The caller holds the checkpoint lock.
    ///
    /// # Errors
    /// `NoSpace`, `Stopped`, a failed write of a journal header.
    pub fn op_of_checkpoint(&self, kind: OpKind, nodes_max: u32) -> Result<Op<'_>> {
        let core = self.partition();
        if !self.space.reserve(core, nodes_max, OpClass::Delete) {
            return Err(Error::NoSpace { what: "blocks" });
        }
        self.reserved_op(kind, (nodes_max, 0), 0, LogRoom::Segment)
    }

    /// The blocks are reserved; those that the caller does not hold are given back on an error.
    fn reserved_op(
        &self,
        kind: OpKind,
        (nodes, held): (u32, u32),
        pages: usize,
        room: LogRoom,
    ) -> Result<Op<'_>> {
        let core = self.partition();
        let nodes_max = nodes + held;
        let bytes = match pages {
            0 => record_bytes(nodes_max),
            pages => data_bytes(nodes_max) + pages * DATA_PAGE_BYTES,
        };
        match self.begin_handle(kind, core, (bytes, nodes_max), room) {
            Ok(handle) => Ok(Op {
                store: self,
                handle: Some(handle),
                core,
                credits: nodes_max,
                edits: SmallVec::new(),
                born: Vec::new(),
                freed: Vec::new(),
                moves: SmallVec::new(),
                shares: Vec::new(),
                time: OnceCell::new(),
            }),
            Err(error) => {
                self.space.unreserve(core, nodes);
                Err(error)
            }
        }
    }
}

impl Store {
    /// Pages of data that fit into the log together with what else an operation on `nodes_max`
    /// nodes logs.
    pub fn data_pages_max(&self, nodes_max: u32) -> usize {
        let most = self.journal().handle_bytes_max();
        most.saturating_sub(data_bytes(nodes_max)) / DATA_PAGE_BYTES
    }
}

/// Room in the log for an operation that stores slots together with their data, the data aside: the
/// inode's granule, and for each node the note of its birth, one child and the marks of its
/// granules.
fn data_bytes(nodes_max: u32) -> usize {
    1024 + to_usize(u64::from(nodes_max)) * 320
}

/// Room in the log for an operation: every node it may touch changed all over, and its notes.
fn record_bytes(nodes_max: u32) -> usize {
    (4096 + to_usize(u64::from(nodes_max)) * 4400).min(RECORD_BYTES_MAX)
}

impl Op<'_> {
    /// When the operation changes things, for stamps: the moment of the first call. The caller
    /// holds the locks by then: a time from before it waited for them could be earlier than one
    /// that others have returned meanwhile.
    pub fn time(&self) -> Time {
        *self.time.get_or_init(|| self.store.now())
    }

    /// Most bytes of records that this operation, or any other of the volume, may log.
    pub fn record_bytes_max(&self) -> usize {
        self.store
            .journal()
            .handle_bytes_max()
            .min(RECORD_BYTES_MAX)
    }

    /// A private copy of the granule's payload, to be changed at will. The caller's inode lock
    /// keeps others from changing the granule meanwhile. Orphan slots of several inodes are in one
    /// granule: of these only the parts that the operation writes are its own.
    pub fn edit(&mut self, node: &NodeRef, index: u8) -> &mut Draft {
        let at = match self.edit_of(node, index) {
            Some(at) => at,
            None => {
                let copy = node.copy_of(index);
                let draft = match node.kind {
                    NodeKind::Orphan => Draft::of_shared(copy),
                    _ => Draft::copy_of(copy),
                };
                self.add_edit(node, index, draft)
            }
        };
        &mut self.edits[at].draft
    }

    /// Like [`Op::edit`], of a granule that others change meanwhile: parts that they do not write.
    /// Only the parts that the operation writes are stored.
    pub fn edit_shared(&mut self, node: &NodeRef, index: u8) -> &mut Draft {
        let at = match self.edit_of(node, index) {
            Some(at) => at,
            None => self.add_edit(node, index, Draft::of_shared(node.copy_of(index))),
        };
        &mut self.edits[at].draft
    }

    /// The operation changes nothing of this granule, but counts as its last writer: it does not
    /// survive without the change before it, nor does a later one survive without this operation.
    pub fn follow(&mut self, node: &NodeRef, index: u8) {
        if self.edit_of(node, index).is_none() {
            self.add_edit(node, index, Draft::of_shared(Box::default()));
        }
    }

    /// Like [`Op::edit`], unless `refuse` finds a reason in the granule not to change it, which is
    /// returned.
    pub fn edit_unless<R>(
        &mut self,
        node: &NodeRef,
        index: u8,
        refuse: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Option<R> {
        let before = self.edits.len();
        let reason = refuse(self.edit(node, index));
        if reason.is_some() {
            self.edits.truncate(before);
        }
        reason
    }

    /// Like [`Op::edit`], where the whole payload is given.
    pub fn replace(&mut self, node: &NodeRef, index: u8, payload: &[u8]) {
        assert_eq!(
            payload.len(),
            node.payload_bytes(index),
            "the payload has the length of the granule"
        );
        match self.edit_of(node, index) {
            Some(at) => self.edits[at].draft.all().copy_from_slice(payload),
            None => {
                self.add_edit(node, index, Draft::whole(payload.into()));
            }
        }
    }

    /// Like [`Op::replace`], of a granule that holds nothing of it and is not edited yet: all bytes
    /// are logged.
    pub fn fill(&mut self, node: &NodeRef, index: u8, payload: &[u8]) {
        assert_eq!(
            payload.len(),
            node.payload_bytes(index),
            "the payload has the length of the granule"
        );
        debug_assert!(
            self.edit_of(node, index).is_none(),
            "a granule filled twice"
        );
        self.add_edit(node, index, Draft::new(payload.into()));
    }

    /// Returns its place.
    fn add_edit(&mut self, node: &NodeRef, index: u8, draft: Draft) -> usize {
        let node = node.clone();
        self.edits.push(Edit { node, index, draft });
        self.edits.len() - 1
    }

    /// Place of the granule's private copy.
    fn edit_of(&self, node: &NodeRef, index: u8) -> Option<usize> {
        let same = |edit: &Edit| edit.index == index && edit.node.is(node);
        self.edits.iter().position(same)
    }

    /// The granule as this operation sees it: its own copy if it has one.
    pub fn view<R>(&self, node: &NodeRef, index: u8, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.edit_of(node, index) {
            Some(at) => look(&self.edits[at].draft),
            None => node.look(index, look),
        }
    }

    /// Like [`Op::view`], of some bytes.
    pub fn view_at<R>(
        &self,
        node: &NodeRef,
        index: u8,
        bytes: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self.edit_of(node, index) {
            Some(at) => look(&self.edits[at].draft[bytes]),
            None => node.look_at(index, bytes, look),
        }
    }

    /// Whether the operation marks what it read to decide.
    pub fn marks_reads(&self) -> bool {
        self.store.options.store_rules.read_marks.holds()
    }

    /// The operation must not survive without the handle of `mark`.
    pub fn depends_on(&mut self, mark: Mark) {
        if !mark.is_none() && !self.store.journal().is_valid(mark) {
            self.handle
                .as_mut()
                .expect("an op is open until it finishes")
                .mark(mark);
        }
    }

    /// A new node that belongs to no inode, like [`Op::new_node_of`].
    ///
    /// # Errors
    /// Those of [`Op::new_node_of`].
    pub fn new_node(&mut self, kind: NodeKind) -> Result<NodeRef> {
        self.new_node_of(kind, Ino(0))
    }

    /// A new node, invisible to others until its nid is published by an edit. It belongs to inode
    /// `owner` until it is freed: the cleaner, which finds the node by its blocks, locks that
    /// inode.
    ///
    /// # Errors
    /// `NoSpace` when the NAT is full; errors of reading the NAT.
    pub fn new_node_of(&mut self, kind: NodeKind, owner: Ino) -> Result<NodeRef> {
        let Some((nid, tombstone)) = self
            .store
            .nat
            .take(self.store.options.alloc.partition(self.core))?
        else {
            return Err(Error::NoSpace { what: "node ids" });
        };
        // Greater than the tombstone, so that no record of the freed node can ever be applied to
        // this one, nor this one's be skipped under an old image (model cases A15, A17).
        let version = tombstone + 1;
        let image = NodeImage::fresh_of(kind, version, owner);
        let node = NodeRef::new(Node::new(nid, image, self.store.options.node_lock));
        self.born.push((node.clone(), version));
        Ok(node)
    }

    /// Frees the node when the operation finishes.
    ///
    /// # Errors
    /// `Corrupt` when it is freed, or this operation frees it already: two pointers lead to it.
    pub fn free_node(&mut self, node: &NodeRef) -> Result<()> {
        let new = self.born.iter().any(|(born, _)| born.is(node));
        assert!(
            !new,
            "node {} freed by the operation that made it",
            node.nid.0
        );
        let here = self.freed.iter().any(|freed| freed.nid == node.nid);
        if here || node.freed().is_some() {
            return Err(Error::Corrupt {
                what: format!("pointers of inode {} to node {}", node.owner, node.nid),
                at: self.store.nat.entry(node.nid)?.block().0,
                want: 1,
                got: 2,
            });
        }
        self.freed.push(node.clone());
        Ok(())
    }

    /// Freshly allocated blocks now belong to these slots, which the caller writes with `edit`.
    pub fn place(&mut self, owner: SlotRef, run: Run) {
        assert!(run.count > 0 && !run.first.is_none());
        self.moves.push((Move::Place, owner, run));
    }

    /// The content of `block`, which the operation places in slot `owner`: the log carries it, and
    /// the caller keeps it in `Store::data_log` until a checkpoint writes it to the block.
    pub fn data(&mut self, owner: SlotRef, block: BlockNo, bytes: &[u8]) {
        assert_eq!(bytes.len(), BLOCK_BYTES, "data is logged by whole blocks");
        let head = Data {
            block: U64::new(block.0),
            nid: U64::new(owner.nid.0),
            reserved: U16::new(0),
            granule: owner.granule,
            slot: owner.slot,
        };
        let handle = self
            .handle
            .as_mut()
            .expect("an op is open until it finishes");
        handle.note_of(DATA, head.as_bytes(), bytes);
    }

    /// Slot `target`, which the caller writes with `edit`, names `block` from now on, as slot `source`
    /// does and goes on to. The caller holds the inodes of both until the end. The content of the block is in no log, and there is a claim for the
    /// lists of shared blocks ([`claim_shared`](crate::space::Space::claim_shared)).
    pub fn share(&mut self, source: SlotRef, target: SlotRef, block: BlockNo) {
        assert!(!block.is_none(), "a hole is not shared");
        debug_assert!(
            !self.store.data_log.holds(block),
            "block {} is in a log",
            block.0
        );
        let next = |slot: &SlotRef, of: &SlotRef, count: u32| {
            (slot.nid, slot.granule) == (of.nid, of.granule)
                && u32::from(slot.slot) == u32::from(of.slot) + count
        };
        if let Some((from, to, run)) = self.shares.last_mut()
            && next(&source, from, run.count)
            && next(&target, to, run.count)
            && block.0 == run.first.0 + u64::from(run.count)
        {
            run.count += 1;
            return;
        }
        let run = Run {
            first: block,
            count: 1,
        };
        self.shares.push((source, target, run));
    }

    /// These blocks leave these slots and are free once the operation is valid.
    pub fn unplace(&mut self, owner: SlotRef, run: Run) {
        assert!(run.count > 0 && !run.first.is_none());
        self.moves.push((Move::Unplace, owner, run));
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        // After `finish` these are empty; before it, this is an abandoned operation.
        for (node, version) in self.born.drain(..) {
            let place = self.store.options.alloc.partition(self.core);
            self.store.nat.give(place, node.nid, version - 1);
        }
        if self.credits > 0 {
            self.store.space.unreserve(self.core, self.credits);
        }
    }
}
