//! The end of an operation: apply, log, join, publish.

use std::ops::Range;

use dure_journal::Handle;
use dure_sync::CoreId;
use smallvec::SmallVec;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::{Edit, Move, Op, Patch};
use crate::diff;
use crate::format::node::GRANULES_MAX;
use crate::format::note::{BLOCKS, Blocks, FREE_NODE, Life, NEW_NODE};
use crate::format::summary::{OWNER_SLOT, SummaryEntry};
use crate::node::{Granules, HeldNode, Node, NodeRef};
use crate::options::RecordPolicy;
use crate::settle::Settler;
use crate::space::Effect;
use crate::store::Store;
use crate::units::{BlockNo, GranuleId, Mark, Nid, Run, SlotRef};

/// What happens to one granule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Touch {
    pub(super) nid: Nid,
    pub(super) index: u8,
    pub(super) change: Change,
    /// Whether that changes a byte; known once it is stored.
    written: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    /// Position in `edits`.
    Edit(usize),
    /// Some patches of this granule, the first at this position in `patches`.
    Patch(usize),
    /// Position in `freed`.
    Free(usize),
}

/// What is changed, node by node.
fn by_node(touches: &[Touch]) -> impl Iterator<Item = &[Touch]> {
    touches.chunk_by(|one, next| one.nid == next.nid)
}

/// The same, to note what became of it.
fn by_node_mut(touches: &mut [Touch]) -> impl Iterator<Item = &mut [Touch]> {
    touches.chunk_by_mut(|one, next| one.nid == next.nid)
}

/// Locks what is changed: nodes and granules ascending, the one order in which tasks hold several.
/// A new node is locked whole.
fn hold<'n>(
    touches: &[Touch],
    born: &[(NodeRef, u64)],
    node_of: impl Fn(&Touch) -> &'n NodeRef,
) -> SmallVec<[HeldNode<'n>; 3]> {
    let mut all = SmallVec::new();
    for touches in by_node(touches) {
        let node = node_of(&touches[0]);
        all.push(if is_born(node, born) {
            node.hold_all()
        } else {
            let indices = touches.iter().map(|touch| touch.index);
            node.hold(indices.fold(Granules::default(), Granules::with))
        });
    }
    all
}

pub(super) fn is_born(node: &NodeRef, born: &[(NodeRef, u64)]) -> bool {
    born.iter().any(|(new, _)| new.is(node))
}

/// Every granule of a new node has this operation as first writer, also those it did not touch: a
/// later change of them depends on it.
pub(super) fn set_first_writer(node: &Node, held: &mut HeldNode<'_>, mark: Mark) {
    (0..node.granule_count()).for_each(|index| held.set_last_writer(index, mark));
}

impl Op<'_> {
    /// Makes the operation happen: stores the private copies, logs them, joins the core's
    /// transaction. Cannot fail. The caller still holds its inode locks. Returns the operation's
    /// mark.
    pub fn finish(self) -> Mark {
        match self.store.options.records {
            RecordPolicy::Delta => self.finish_deltas(),
            RecordPolicy::Image => self.finish_images(),
        }
    }

    fn finish_deltas(mut self) -> Mark {
        let mut handle = self.handle.take().expect("an op finishes once");
        let born = std::mem::take(&mut self.born);
        let mut touches = touches(&self.edits, &self.patches, &self.freed);
        publish(self.store, &born);
        let node_of = |touch: &Touch| match touch.change {
            Change::Edit(at) => &self.edits[at].node,
            Change::Patch(at) => &self.patches[at].node,
            Change::Free(at) => &self.freed[at],
        };
        let mut held = hold(&touches, &born, node_of);
        for (node, version) in &born {
            note_life(&mut handle, NEW_NODE, node, *version);
        }
        // A checkpoint that takes a new node from the dirty list waits for a granule held here
        // before it uses its copy, so that the handle has joined by then; also when the operation
        // put nothing in it.
        let empty = born.iter().map(|(node, _)| node);
        let empty = empty.filter(|node| touches.iter().all(|touch| touch.nid != node.nid));
        let mut empty: Vec<(&Node, HeldNode<'_>)> =
            empty.map(|node| (&**node, node.hold_all())).collect();
        for (touches, held) in by_node_mut(&mut touches).zip(&mut held) {
            for touch in touches {
                touch.written = match touch.change {
                    Change::Edit(at) => store(&mut handle, touch, held, &self.edits[at].copy),
                    Change::Patch(_) => {
                        let new = patched(held.payload(touch.index), &self.patches, touch);
                        store(&mut handle, touch, held, &new)
                    }
                    Change::Free(_) => {
                        mark_writer(&mut handle, held.last_writer(touch.index));
                        true
                    }
                };
            }
        }
        if !self.freed.is_empty() {
            free_nodes(&mut handle, &touches, &mut held, &self.freed);
        }
        log_moves(self.store, &mut handle, &self.moves);
        // On the dirty lists before the join: a checkpoint whose cut contains this handle takes the
        // lists after its cut and then waits for the granule locks held here. The other way round
        // it could miss the change and let the tail pass it.
        let changed = touches.iter().filter(|touch| touch.written).map(node_of);
        let dirtied = make_dirty(
            self.store,
            self.core,
            changed.chain(born.iter().map(|(n, _)| n)),
        );
        let mark = handle.join();
        for (node, held) in &mut empty {
            set_first_writer(node, held, mark);
        }
        for (touches, held) in by_node(&touches).zip(&mut held) {
            set_writers(touches, held, mark);
            let node = node_of(&touches[0]);
            if is_born(node, &born) {
                set_first_writer(node, held, mark);
            }
        }
        drop((held, empty));
        assert!(
            dirtied <= self.credits,
            "{dirtied} dirty nodes, {} announced",
            self.credits
        );
        self.credits -= dirtied;
        mark
    }
}

/// Names the operation, which has joined, as last writer of what it changed in a node.
fn set_writers(touches: &[Touch], held: &mut HeldNode<'_>, mark: Mark) {
    for touch in touches {
        // An edit that changed no byte counts: a rename sets the ctime, which may be the same tick
        // of the clock, and must not survive an earlier change of the inode that is lost.
        if touch.written || matches!(touch.change, Change::Edit(_)) {
            held.set_last_writer(touch.index, mark);
        }
    }
}

/// Puts new nodes in the cache before other tasks can find their numbers: a holder of the shared
/// directory lock sees a bucket's child as soon as its granule is unlocked. The operation's
/// references keep them in the cache.
pub(super) fn publish(store: &Store, born: &[(NodeRef, u64)]) {
    for (node, _) in born {
        store.nodes.insert_new(node);
    }
}

/// Puts the nodes on the core's dirty list; returns how many were not on one. Each is put there
/// once, whatever of it was changed: a checkpoint may take it off again at any moment, and it would
/// count twice. One that is dirty already is left where it is: a checkpoint that takes it off its
/// list just now copies it later, since it waits for a granule held here.
pub(super) fn make_dirty<'n>(
    store: &Store,
    core: CoreId,
    nodes: impl Iterator<Item = &'n NodeRef>,
) -> u32 {
    let mut nodes: SmallVec<[_; 8]> = nodes.filter(|node| !node.is_dirty()).collect();
    nodes.sort_unstable_by_key(|node| node.nid.0);
    nodes.dedup_by_key(|node| node.nid.0);
    let mut dirtied = 0;
    for node in nodes {
        dirtied += u32::from(store.nodes.make_dirty(core, node));
    }
    dirtied
}

pub(super) fn touches(
    edits: &[Edit],
    patches: &[Patch],
    freed: &[NodeRef],
) -> SmallVec<[Touch; 6]> {
    let mut touches: SmallVec<[Touch; 6]> =
        SmallVec::with_capacity(edits.len() + patches.len() + GRANULES_MAX * freed.len());
    for (at, node) in freed.iter().enumerate() {
        let whole = (0..node.granule_count()).map(|index| Touch {
            nid: node.nid,
            index,
            change: Change::Free(at),
            written: false,
        });
        touches.extend(whole);
    }
    let dead = |nid: Nid| freed.iter().any(|node| node.nid == nid);
    for (at, edit) in edits.iter().enumerate() {
        if !dead(edit.node.nid) {
            touches.push(Touch {
                nid: edit.node.nid,
                index: edit.index,
                change: Change::Edit(at),
                written: false,
            });
        }
    }
    for (at, patch) in patches.iter().enumerate() {
        assert!(!dead(patch.node.nid), "an op patches no node that it frees");
        touches.push(Touch {
            nid: patch.node.nid,
            index: patch.index,
            change: Change::Patch(at),
            written: false,
        });
    }
    touches.sort_unstable();
    if patches.is_empty() {
        return touches;
    }
    // Several patches of one granule are one touch.
    touches.dedup_by(|later, first| {
        let same = (later.nid, later.index) == (first.nid, first.index);
        let both = matches!(
            (later.change, first.change),
            (Change::Patch(_), Change::Patch(_))
        );
        assert!(
            !same || both,
            "an op edits granule {}.{} or patches it, not both",
            first.nid.0,
            first.index
        );
        same
    });
    touches
}

pub(super) fn patched(payload: &[u8], patches: &[Patch], touch: &Touch) -> Vec<u8> {
    let mut new = payload.to_vec();
    let ours = patches
        .iter()
        .filter(|p| p.node.nid == touch.nid && p.index == touch.index);
    for patch in ours {
        new[patch.offset..patch.offset + patch.bytes.len()].copy_from_slice(&patch.bytes);
    }
    new
}

/// A change follows the one before it, also when that was the same core's: without the self-mark a
/// later transaction could survive an earlier one it builds on (model case A3).
fn mark_writer(handle: &mut Handle<'_, Settler>, last_writer: Mark) {
    if !last_writer.is_none() {
        handle.mark(last_writer);
    }
}

/// Logs the difference and stores it. False when there is none.
fn store(
    handle: &mut Handle<'_, Settler>,
    touch: &Touch,
    held: &mut HeldNode<'_>,
    new: &[u8],
) -> bool {
    let id = GranuleId {
        nid: touch.nid,
        index: touch.index,
    };
    let version = held.version(touch.index) + 1;
    let mut changed: Option<Range<usize>> = None;
    diff::ranges(held.payload(touch.index), new, |range| {
        let offset = u16::try_from(range.start).expect("payloads are below 64 KiB");
        handle.delta(id, version, offset, &new[range.clone()]);
        let first = changed
            .as_ref()
            .map_or(range.start, |changed| changed.start);
        changed = Some(first..range.end);
    });
    if changed.is_some() || matches!(touch.change, Change::Edit(_)) {
        mark_writer(handle, held.last_writer(touch.index));
    }
    let Some(changed) = changed else {
        return false;
    };
    held.store(touch.index, version, changed.start, &new[changed]);
    true
}

pub(super) fn note_life(handle: &mut Handle<'_, Settler>, kind: u8, node: &Node, version: u64) {
    let life = Life {
        nid: U64::new(node.nid.0),
        version: U64::new(version),
        kind: node.kind.code(),
        reserved: [0; 7],
        owner: U64::new(node.owner.0),
    };
    handle.note(kind, life.as_bytes());
}

fn free_nodes(
    handle: &mut Handle<'_, Settler>,
    touches: &[Touch],
    held: &mut [HeldNode<'_>],
    freed: &[NodeRef],
) {
    for (touches, held) in by_node(touches).zip(held) {
        let Change::Free(at) = touches[0].change else {
            continue;
        };
        let node = &freed[at];
        let version = end_granules(node, held);
        node.set_freed(version);
        note_life(handle, FREE_NODE, node, version);
        handle.effect(Effect::NidFree {
            nid: node.nid,
            version,
        });
    }
}

/// Gives all granules of a node the version at which it is freed: above all they had.
fn end_granules(node: &Node, held: &mut HeldNode<'_>) -> u64 {
    let all = 0..node.granule_count();
    let versions = all.clone().map(|index| held.version(index));
    let version = versions.max().expect("a node has at least one granule") + 1;
    for index in all {
        held.end(index, version);
    }
    version
}

pub(super) fn log_moves(
    store: &Store,
    handle: &mut Handle<'_, Settler>,
    moves: &[(Move, SlotRef, Run)],
) {
    for &(direction, owner, run) in moves {
        let note = Blocks {
            first: U64::new(run.first.0),
            nid: U64::new(owner.nid.0),
            count: U16::new(u16::try_from(run.count).expect("a run lies in one granule")),
            granule: owner.granule,
            slot: owner.slot,
        };
        handle.note(BLOCKS, note.as_bytes());
        if direction == Move::Unplace {
            store.space.will_free(run);
        }
        match direction {
            Move::Place => {
                set_owners(store, owner, run);
                handle.effect(Effect::Live(run));
            }
            Move::Unplace if !store.options.store_rules.reuse_after_valid.holds() => {
                let core = store.partition();
                store
                    .space
                    .settle(store.data_log.pass(core, vec![Effect::Free(run)]));
            }
            Move::Unplace => handle.effect(Effect::Free(run)),
        }
    }
}

fn set_owners(store: &Store, owner: SlotRef, run: Run) {
    for n in 0..run.count {
        let slot = owner.slot + u8::try_from(n).expect("a run lies in one granule");
        let entry = SummaryEntry {
            nid: U64::new(owner.nid.0),
            kind: OWNER_SLOT,
            granule: owner.granule,
            slot,
            reserved: 0,
        };
        store
            .space
            .set_owner(BlockNo(run.first.0 + u64::from(n)), entry);
    }
}
