//! The end of an operation with `records=image`: nodes are locked and logged as a whole.
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

use std::borrow::Cow;

use dure_journal::{Buffer, BufferUse, Change as BufferChange, Handle, Hold, TransactionId};

use super::finish::{
    Change, Touch, is_born, log_moves, make_dirty, note_life, patched, publish, set_first_writer,
    touches,
};
use super::{Edit, Op, Patch};
use crate::format::node::NodeImage;
use crate::format::note::{FREE_NODE, NEW_NODE};
use crate::node::{HeldNode, Node, NodeRef};
use crate::settle::Settler;
use crate::space::Effect;
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

/// A node, locked whole.
struct Held<'n> {
    node: &'n NodeRef,
    granules: HeldNode<'n>,
    /// Version of its tombstone, if this operation frees it.
    end: Option<u64>,
    changed: bool,
}

/// What one granule becomes.
struct Stored<'e> {
    /// Position among the nodes held.
    at: usize,
    index: u8,
    /// `None`: no byte differs.
    new: Option<Cow<'e, [u8]>>,
    writer: bool,
}

impl Op<'_> {
    /// As [`Op::finish`].
    pub(super) fn finish_images(mut self) -> Mark {
        let mut handle = self.handle.take().expect("an op finishes once");
        let edits = std::mem::take(&mut self.edits);
        let patches = std::mem::take(&mut self.patches);
        let freed = std::mem::take(&mut self.freed);
        let born = std::mem::take(&mut self.born);
        let touches = touches(&edits, &patches, &freed);
        publish(self.store, &born);
        let mut held = hold_nodes(&edits, &patches, &freed, &born);
        for (node, version) in &born {
            note_life(&mut handle, NEW_NODE, node, *version);
        }
        for node in &mut held {
            mark_writers(self.store, &mut handle, node);
            if node.end.is_some() {
                end_life(&mut handle, node);
            }
        }
        let stores = stores(&touches, &edits, &patches, &mut held);
        log_moves(self.store, &mut handle, &self.moves);
        // On the dirty lists before the join, as in `finish`.
        let changed = held
            .iter()
            .filter(|held| held.changed)
            .map(|held| held.node);
        let born_nodes = born.iter().map(|(node, _)| node);
        let dirtied = make_dirty(self.store, self.core, changed.chain(born_nodes));
        let mark = join(self.store, handle, &held);
        for store in stores {
            let granules = &mut held[store.at].granules;
            if let Some(new) = store.new {
                let version = granules.version(store.index) + 1;
                granules.store(store.index, version, 0, &new);
            }
            if store.writer {
                granules.set_last_writer(store.index, mark);
            }
        }
        for node in &mut held {
            if let Some(version) = node.end {
                for index in 0..node.node.granule_count() {
                    node.granules.end(index, version);
                    node.granules.set_last_writer(index, mark);
                }
                node.node.set_freed(version);
            }
        }
        for held in held.iter_mut().filter(|held| is_born(held.node, &born)) {
            set_first_writer(held.node, &mut held.granules, mark);
        }
        drop(held);
        assert!(
            dirtied <= self.credits,
            "{dirtied} dirty nodes, {} announced",
            self.credits
        );
        self.credits -= dirtied;
        mark
    }
}

/// Locks all granules of all nodes, ascending.
fn hold_nodes<'n>(
    edits: &'n [Edit],
    patches: &'n [Patch],
    freed: &'n [NodeRef],
    born: &'n [(NodeRef, u64)],
) -> Vec<Held<'n>> {
    let mut nodes: Vec<&NodeRef> = Vec::new();
    nodes.extend(edits.iter().map(|edit| &edit.node));
    nodes.extend(patches.iter().map(|patch| &patch.node));
    nodes.extend(freed);
    nodes.extend(born.iter().map(|(node, _)| node));
    nodes.sort_unstable_by_key(|node| node.nid);
    nodes.dedup_by_key(|node| node.nid);
    let hold = |node: &'n NodeRef| Held {
        node,
        granules: node.hold_all(),
        end: freed.iter().any(|freed| freed.nid == node.nid).then_some(0),
        changed: false,
    };
    nodes.into_iter().map(hold).collect()
}

/// The copy of a node holds what each of its last writers did.
fn mark_writers(store: &Store, handle: &mut Handle<'_, Settler>, held: &Held<'_>) {
    for index in 0..held.node.granule_count() {
        let writer = held.granules.last_writer(index);
        if !writer.is_none() && !store.journal().is_valid(writer) {
            handle.mark(writer);
        }
    }
}

/// Logs that the node is freed; memory follows once the handle has joined.
fn end_life(handle: &mut Handle<'_, Settler>, held: &mut Held<'_>) {
    let all = 0..held.node.granule_count();
    let versions = all.map(|index| held.granules.version(index));
    let version = versions.max().expect("a node has at least one granule") + 1;
    held.end = Some(version);
    held.changed = true;
    note_life(handle, FREE_NODE, held.node, version);
    handle.effect(Effect::NidFree {
        nid: held.node.nid,
        version,
    });
}

fn stores<'e>(
    touches: &[Touch],
    edits: &'e [Edit],
    patches: &'e [Patch],
    held: &mut [Held<'_>],
) -> Vec<Stored<'e>> {
    let mut stores = Vec::with_capacity(touches.len());
    for touch in touches {
        let at = held.partition_point(|held| held.node.nid < touch.nid);
        let payload = held[at].granules.payload(touch.index);
        let (new, edited) = match touch.change {
            Change::Edit(at) => (Cow::Borrowed(&*edits[at].copy), true),
            Change::Patch(_) => (Cow::Owned(patched(payload, patches, touch)), false),
            Change::Free(_) => continue,
        };
        let new = (*new != *payload).then_some(new);
        held[at].changed |= new.is_some();
        stores.push(Stored {
            at,
            index: touch.index,
            // An edit that changed no byte counts, as in `finish`.
            writer: new.is_some() || edited,
            new,
        });
    }
    stores
}

/// Joins, and freezes copies for transactions that are committing.
fn join(store: &Store, handle: Handle<'_, Settler>, held: &[Held<'_>]) -> Mark {
    let seed = store.layout.crc_seed;
    let changed: Vec<&Held<'_>> = held.iter().filter(|held| held.changed).collect();
    let uses = changed.iter().map(|held| BufferUse {
        buffer: Box::new(Filed {
            node: held.node.clone(),
            seed,
        }),
        change: match held.end {
            Some(_) => BufferChange::End,
            None => BufferChange::Content,
        },
    });
    let joined = handle.join_images(uses.collect());
    for (at, transaction) in joined.freeze {
        let Held { node, granules, .. } = changed[at];
        let image = image_of(node, granules);
        node.hold.freeze(transaction, seal(&image, node.nid, seed));
    }
    joined.mark
}
