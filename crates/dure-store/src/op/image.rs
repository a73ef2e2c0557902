//! The end of an operation with compound transactions: nodes are locked and logged as a whole.
//!
//! **Problem.** A commit copies whole nodes, so an operation must be in all the copies of a
//! transaction or in none.
//!
//! **Structure.** The operation locks all granules of every node it changes, joins with the list of
//! these nodes, freezes copies for transactions that are committing, and only then stores its
//! edits. The journal calls [`Filed`] back for the copies.
//!
//! # Invariants
//! An operation that changes a node holds all of its granules from before its handle joins until
//! the change is stored; a copy for the log is made with all of them held, too. The last writers of
//! all granules of a node are marked: a copy of the node brings all their changes back.
//!
//! **On a crash** the copy is newer or older than the image as its versions say.

use dure_journal::{Buffer, BufferUse, Change as BufferChange, Handle, Hold, TransactionId};

use super::Op;
use super::draft::Parts;
use super::finish::{
    Change, Fate, changes, end_granules, end_version, log_moves, log_shares, make_dirty, note_end,
    note_life, publish, sort,
};
use crate::format::node::NodeImage;
use crate::format::note::NEW_NODE;
use crate::node::{HeldNode, Node, NodeRef};
use crate::settle::Settler;
use crate::store::Store;
use crate::units::{BLOCK_BYTES, BlockNo, Mark, Nid};

/// A node as the journal holds it until its copy is in a transaction.
#[derive(Debug)]
struct Filed {
    node: NodeRef,
    seed: u32,
}

/// A copy for the log: as an image, but at no address.
fn seal(image: &NodeImage, nid: Nid, seed: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    image.seal(&mut bytes, nid, BlockNo::NONE, 0, seed);
    bytes
}

fn image_of(node: &Node, held: &HeldNode<'_>) -> NodeImage {
    let mut image = NodeImage::fresh_of(node.kind, 0, node.owner);
    for index in 0..node.granule_count() {
        let at = usize::from(index);
        image.set_version(at, held.version(index));
        image.payload_mut(at).copy_from_slice(held.payload(index));
    }
    image
}

impl Buffer for Filed {
    fn nid(&self) -> Nid {
        self.node.nid
    }

    fn hold(&self) -> &Hold {
        &self.node.hold
    }

    fn capture(&self, transaction: TransactionId, out: &mut Vec<u8>) {
        let node = &self.node;
        let held = node.hold_all();
        if let Some(frozen) = node.hold.take_frozen(transaction) {
            out.extend(frozen);
        } else if node.freed().is_none() {
            let image = image_of(node, &held);
            out.extend(seal(&image, node.nid, self.seed));
        }
        node.hold.captured(transaction);
    }
}

/// A node that the operation changes, locked whole.
struct Held<'o> {
    change: Change<'o>,
    granules: HeldNode<'o>,
    /// Version of its tombstone, if this operation frees it.
    end: Option<u64>,
    /// What to store, for each edit.
    parts: Vec<Parts>,
}

impl<'o> Held<'o> {
    fn new(change: Change<'o>) -> Held<'o> {
        let granules = change.node.hold_all();
        let (mut end, mut parts) = (None, Vec::new());
        if change.fate == Fate::Freed {
            end = Some(end_version(change.node, &granules));
        } else {
            let of = change.edits.iter();
            parts.extend(of.map(|edit| edit.draft.changes(granules.payload(edit.index))));
        }
        Held {
            change,
            granules,
            end,
            parts,
        }
    }

    /// Whether the journal is to have a copy.
    fn is_changed(&self) -> bool {
        self.end.is_some() || self.parts.iter().any(|parts| !parts.is_empty())
    }

    /// Stores what the operation, which has joined, changes.
    fn store(&mut self, mark: Mark) {
        for (edit, parts) in self.change.edits.iter().zip(self.parts.drain(..)) {
            if !parts.is_empty() {
                let version = self.granules.version(edit.index) + 1;
                let parts = edit.draft.bytes_of(&parts);
                self.granules.store(edit.index, version, parts);
            }
        }
        if let Some(version) = self.end {
            end_granules(self.change.node, &mut self.granules, version);
        }
        self.change.set_writers(&mut self.granules, mark);
    }
}

impl Op<'_> {
    /// Like [`Op::finish`].
    pub(super) fn finish_images(mut self) -> Mark {
        let mut handle = self.handle.take().expect("an op finishes once");
        let born = std::mem::take(&mut self.born);
        sort(&mut self.edits);
        let changes = changes(&self.edits, &born, &self.freed);
        publish(self.store, &born);
        let mut held: Vec<Held<'_>> = changes.into_iter().map(Held::new).collect();
        for (node, version) in &born {
            note_life(&mut handle, NEW_NODE, node, *version);
        }
        let mut dirtied = 0;
        for node in &held {
            mark_writers(self.store, &mut handle, node);
            if let Some(version) = node.end {
                note_end(&mut handle, node.change.node, version);
            }
            // On the dirty lists before the join, as in `finish`.
            if node.is_changed() || node.change.fate == Fate::Born {
                dirtied += make_dirty(self.store, self.core, node.change.node);
            }
        }
        log_shares(self.store, &mut handle, &self.shares);
        log_moves(self.store, &mut handle, &self.moves);
        let mark = join(self.store, handle, &held);
        held.iter_mut().for_each(|node| node.store(mark));
        drop(held);
        self.pay(dirtied);
        mark
    }
}

/// The copy of a node holds what each of its last writers did.
fn mark_writers(store: &Store, handle: &mut Handle<'_, Settler>, held: &Held<'_>) {
    for index in 0..held.change.node.granule_count() {
        let writer = held.granules.last_writer(index);
        if !writer.is_none() && !store.journal().is_valid(writer) {
            handle.mark(writer);
        }
    }
}

/// Joins, and freezes copies for transactions that are committing.
fn join(store: &Store, handle: Handle<'_, Settler>, held: &[Held<'_>]) -> Mark {
    let seed = store.layout.crc_seed;
    let changed: Vec<&Held<'_>> = held.iter().filter(|held| held.is_changed()).collect();
    let uses = changed.iter().map(|held| BufferUse {
        buffer: Box::new(Filed {
            node: held.change.node.clone(),
            seed,
        }),
        change: match held.end {
            Some(_) => BufferChange::End,
            None => BufferChange::Content,
        },
    });
    let joined = handle.join_images(uses.collect());
    for (at, transaction) in joined.freeze {
        let node = changed[at].change.node;
        let image = image_of(node, &changed[at].granules);
        node.hold.freeze(transaction, seal(&image, node.nid, seed));
    }
    joined.mark
}
