//! The end of an operation: apply, log, join, publish.

use dure_journal::Handle;
use dure_sync::CoreId;
use smallvec::{SmallVec, smallvec};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::{Edit, Move, Op};
use crate::format::note::{BLOCKS, Blocks, FREE_NODE, Life, NEW_NODE};
use crate::format::summary::{OWNER_SLOT, SummaryEntry};
use crate::node::{Granules, HeldNode, Node, NodeRef};
use crate::options::RecordPolicy;
use crate::settle::Settler;
use crate::space::{Effect, Owned};
use crate::store::Store;
use crate::units::{BlockNo, GranuleId, Mark, Run, SlotRef};

/// What an operation does to one node.
#[derive(Debug)]
pub(super) struct Change<'o> {
    pub(super) node: &'o NodeRef,
    /// Ascending by granule. Of a node that is freed none counts.
    pub(super) edits: &'o [Edit],
    pub(super) fate: Fate,
}

/// Whether the node was there before and is there behind the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Both.
    Kept,
    /// It is new.
    Born,
    /// It is freed.
    Freed,
}

/// What is changed, in ascending order of nodes: the order in which tasks lock several. `edits` is
/// sorted by node and granule.
pub(super) fn changes<'o>(
    edits: &'o [Edit],
    born: &'o [(NodeRef, u64)],
    freed: &'o [NodeRef],
) -> SmallVec<[Change<'o>; 3]> {
    let by_node = edits.chunk_by(|one, next| one.node.nid == next.node.nid);
    let mut changes: SmallVec<[Change<'o>; 3]> = SmallVec::new();
    changes.extend(by_node.map(|edits| Change {
        node: &edits[0].node,
        edits,
        fate: Fate::Kept,
    }));
    let edited = changes.len();
    let ended = freed.iter().map(|node| (node, Fate::Freed));
    for (node, fate) in born.iter().map(|(node, _)| (node, Fate::Born)).chain(ended) {
        match changes[..edited].binary_search_by_key(&node.nid, |change| change.node.nid) {
            Ok(at) => changes[at].fate = fate,
            Err(_) => changes.push(Change {
                node,
                edits: &[],
                fate,
            }),
        }
    }
    if changes.len() > edited {
        changes.sort_unstable_by_key(|change| change.node.nid);
    }
    changes
}

/// Sorts what an operation edits by node and granule.
pub(super) fn sort(edits: &mut [Edit]) {
    if edits.len() > 1 {
        edits.sort_unstable_by_key(|edit| (edit.node.nid, edit.index));
    }
}

impl Op<'_> {
    /// Makes the operation happen: stores the private copies, logs them, joins the core's
    /// transaction. Cannot fail. The caller still holds its inode locks. Returns the operation's
    /// mark.
    pub fn finish(self) -> Mark {
        match self.store.options.records {
            RecordPolicy::Delta | RecordPolicy::None => self.finish_deltas(),
            RecordPolicy::Image => self.finish_images(),
        }
    }

    fn finish_deltas(mut self) -> Mark {
        let mut handle = self.handle.take().expect("an op finishes once");
        let born = std::mem::take(&mut self.born);
        sort(&mut self.edits);
        let changes = changes(&self.edits, &born, &self.freed);
        publish(self.store, &born);
        let mut held: SmallVec<[HeldNode<'_>; 3]> = SmallVec::new();
        for change in &changes {
            held.push(change.hold());
        }
        for (node, version) in &born {
            note_life(&mut handle, NEW_NODE, node, *version);
        }
        let mut dirtied = 0;
        for (change, held) in changes.iter().zip(&mut held) {
            // On a dirty list before the join: a checkpoint whose cut contains this handle takes
            // the lists after its cut and then waits for the granule locks held here. The other way
            // round it could miss the change and let the tail pass it.
            if change.store(&mut handle, held) {
                dirtied += make_dirty(self.store, self.core, change.node);
            }
        }
        log_shares(self.store, &mut handle, &self.shares);
        log_moves(self.store, &mut handle, &self.moves);
        let mark = handle.join();
        for (change, held) in changes.iter().zip(&mut held) {
            change.set_writers(held, mark);
        }
        // Under the locks of what it changed: no task sees a change that a crash may still undo.
        self.store.harden(mark);
        drop(held);
        drop(changes);
        self.pay(dirtied);
        mark
    }

    /// So many nodes became dirty: their blocks are no longer the operation's.
    pub(super) fn pay(&mut self, dirtied: u32) {
        assert!(
            dirtied <= self.credits,
            "{dirtied} dirty nodes, {} announced",
            self.credits
        );
        self.credits -= dirtied;
    }
}

impl<'o> Change<'o> {
    /// Locks what it changes. A new node is locked whole, also one in which the operation puts
    /// nothing: a checkpoint that takes it from a dirty list waits for a granule held here before
    /// it uses its copy, so that the handle has joined by then.
    fn hold(&self) -> HeldNode<'o> {
        match self.fate {
            Fate::Kept => {
                let indices = self.edits.iter().map(|edit| edit.index);
                self.node
                    .hold(indices.fold(Granules::default(), Granules::with))
            }
            Fate::Born | Fate::Freed => self.node.hold_all(),
        }
    }

    /// Logs it and stores it. Returns whether the node is another than before.
    fn store(&self, handle: &mut Handle<'_, Settler>, held: &mut HeldNode<'_>) -> bool {
        if self.fate == Fate::Freed {
            for index in 0..self.node.granule_count() {
                mark_writer(handle, held.last_writer(index));
            }
            let version = end_version(self.node, held);
            note_end(handle, self.node, version);
            end_granules(self.node, held, version);
            return true;
        }
        let mut changed = self.fate == Fate::Born;
        for edit in self.edits {
            changed |= edit.store(handle, held);
        }
        changed
    }

    /// Names the operation, which has joined, as last writer of what it changed. Of a new node that
    /// is every granule, also those it did not touch: a later change of them depends on it. An edit
    /// that changed no byte counts: a rename sets the ctime, which may be the same tick of the
    /// clock, and must not survive an earlier change of the inode that is lost.
    pub(super) fn set_writers(&self, held: &mut HeldNode<'_>, mark: Mark) {
        match self.fate {
            Fate::Kept => {
                for edit in self.edits {
                    held.set_last_writer(edit.index, mark);
                }
            }
            Fate::Born | Fate::Freed => {
                for index in 0..self.node.granule_count() {
                    held.set_last_writer(index, mark);
                }
            }
        }
    }
}

impl Edit {
    /// Logs what it changes and stores it. False when that is nothing.
    fn store(&self, handle: &mut Handle<'_, Settler>, held: &mut HeldNode<'_>) -> bool {
        let index = self.index;
        let nid = self.node.nid;
        let (head, now) = held.granule(index);
        mark_writer(handle, head.last_writer());
        let version = head.version() + 1;
        let parts = self.draft.changes(now);
        if parts.is_empty() {
            return false;
        }
        for part in &parts {
            let bytes = &self.draft[part.range()];
            handle.delta(GranuleId { nid, index }, version, part.start(), bytes);
        }
        held.store(index, version, self.draft.bytes_of(&parts));
        true
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

/// Puts a node that the caller has changed, and holds, on the core's dirty list; returns 1 if it
/// was on none. One that is dirty already is left where it is: a checkpoint that takes it off its
/// list just now copies it later, since it waits for a granule that the caller holds.
pub(super) fn make_dirty(store: &Store, core: CoreId, node: &NodeRef) -> u32 {
    u32::from(!node.is_dirty() && store.nodes.make_dirty(core, node))
}

/// A change follows the one before it, also when that was the same core's: without the self-mark a
/// later transaction could survive an earlier one it builds on (model case A3).
fn mark_writer(handle: &mut Handle<'_, Settler>, last_writer: Mark) {
    if !last_writer.is_none() {
        handle.mark(last_writer);
    }
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

/// Logs that the node is freed at `version`, and frees its number once that is valid.
pub(super) fn note_end(handle: &mut Handle<'_, Settler>, node: &Node, version: u64) {
    note_life(handle, FREE_NODE, node, version);
    let nid = node.nid;
    handle.effect(Effect::NidFree { nid, version });
}

/// The version at which a node is freed: above all its granules had.
pub(super) fn end_version(node: &Node, held: &HeldNode<'_>) -> u64 {
    let versions = (0..node.granule_count()).map(|index| held.version(index));
    versions.max().expect("a node has at least one granule") + 1
}

/// Frees the node in memory: gives all its granules this version.
pub(super) fn end_granules(node: &Node, held: &mut HeldNode<'_>, version: u64) {
    for index in 0..node.granule_count() {
        held.end(index, version);
    }
    node.set_freed(version);
}

fn note_blocks(handle: &mut Handle<'_, Settler>, owner: SlotRef, run: Run) {
    let note = Blocks {
        first: U64::new(run.first.0),
        nid: U64::new(owner.nid.0),
        count: U16::new(u16::try_from(run.count).expect("a run lies in one granule")),
        granule: owner.granule,
        slot: owner.slot,
    };
    handle.note(BLOCKS, note.as_bytes());
}

/// Shares blocks, before the join: when another operation takes one out of its slot, which it can do
/// when the caller has let go of the inodes, the space map knows that a second slot names it. Notes
/// name both slots: of a block that had one owner no list has it.
pub(super) fn log_shares(
    store: &Store,
    handle: &mut Handle<'_, Settler>,
    shares: &[(SlotRef, SlotRef, Run)],
) {
    for &(source, target, run) in shares {
        let rules = &store.options.store_rules;
        if rules.clones_note_sources.holds() {
            note_blocks(handle, source, run);
        }
        note_blocks(handle, target, run);
        if rules.clones_count.holds() {
            store.space.share(source, target, run);
            handle.effect(Effect::Share(Owned::new(target, run)));
        }
    }
}

pub(super) fn log_moves(
    store: &Store,
    handle: &mut Handle<'_, Settler>,
    moves: &[(Move, SlotRef, Run)],
) {
    for &(direction, owner, run) in moves {
        note_blocks(handle, owner, run);
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
                store.space.settle(
                    store
                        .data_log
                        .pass(core, smallvec![freed(store, owner, run)]),
                );
            }
            Move::Unplace => handle.effect(freed(store, owner, run)),
        }
    }
}

/// On a volume without clones who let go of a block does not matter. The first clone of a volume may
/// be made just now, but not of these blocks: no slot names them any more.
fn freed(store: &Store, owner: SlotRef, run: Run) -> Effect {
    match store.space.may_share() {
        true => Effect::FreeOf(Owned::new(owner, run)),
        false => Effect::Free(run),
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
