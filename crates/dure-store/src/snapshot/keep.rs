//! What a checkpoint does for snapshots.
//!
//! # Order, each step with the crash it guards against
//! 1. A pair that changes is copied first, unless it is kept already. Crash scenario otherwise: the
//!    slot that counted is written two checkpoints later, and the snapshot shows files as they are
//!    now.
//! 2. Lists and table are written to new blocks, before the flush that the volume header follows:
//!    it must never name what is not there.
//! 3. Blocks that were the snapshots' own, or that only a deleted one needed, are free when the
//!    header is durable. Crash scenario otherwise: the old header counts, and the snapshot that it
//!    names has been overwritten.

use dure_sync::CoreId;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::table::{list_block, table_blocks};
use super::view::read_slot;
use super::{Snapshot, SnapshotInfo, Snapshots, State};
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::snapshot::{LIST_ENTRIES, TABLE_ENTRIES};
use crate::format::volume::VolumeHeader;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex};
use crate::pair;
use crate::rules::StoreRules;
use crate::space::{OpClass, Space};
use crate::units::{BlockNo, Run};

/// Pairs that are copied together.
const TOGETHER: usize = 256;

/// What a checkpoint changes of the snapshots.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// It is a new one.
    Create(SnapshotInfo),
    /// The one with this number is gone.
    Delete(u64),
    /// The one with this number is called so.
    Rename(u64, String),
}

/// The task that makes a checkpoint, as far as snapshots are concerned.
#[derive(Debug)]
pub(crate) struct Keeper<'c> {
    pub(crate) snapshots: &'c Snapshots,
    pub(crate) region: &'c Region,
    pub(crate) layout: &'c Layout,
    pub(crate) space: &'c Space,
    pub(crate) packs: &'c Packs,
    /// Where it allocates.
    pub(crate) core: CoreId,
    /// Number of the checkpoint.
    pub(crate) checkpoint: u64,
    /// All on, but in tests.
    pub(crate) rules: &'c StoreRules,
}

impl Keeper<'_> {
    /// These pairs are about to change: those that the newest snapshot has not kept are copied.
    ///
    /// # Errors
    /// A pair that cannot be read; `NoSpace`; a failed write. The volume has to stop then.
    pub(crate) fn keep(&self, pairs: impl IntoIterator<Item = PairIndex>) -> Result<()> {
        let wanted: Vec<PairIndex> = {
            let state = self.snapshots.state.lock();
            let Some(newest) = state.all.last() else {
                return Ok(());
            };
            if !self.rules.keep_before_change.holds() {
                return Ok(());
            }
            let new = |pair: &PairIndex| !newest.kept.contains_key(pair);
            pairs.into_iter().filter(new).collect()
        };
        wanted
            .chunks(TOGETHER)
            .try_for_each(|some| self.keep_some(some))
    }

    fn keep_some(&self, pairs: &[PairIndex]) -> Result<()> {
        let mut places = Vec::new();
        let mut writes = Vec::new();
        for pair in pairs {
            let found = read_slot(self.region, (self.layout, self.packs), *pair)?;
            let Some((_, payload)) = found else {
                places.push(BlockNo::NONE);
                continue;
            };
            let block = self.alloc(&mut self.snapshots.state.lock())?;
            let content = (self.checkpoint, &payload[..]);
            let seed = self.layout.crc_seed;
            writes.push(pair::single_block(block, pair_kind::KEPT, content, seed));
            places.push(block);
        }
        self.region.write_all(writes)?;
        let mut state = self.snapshots.state.lock();
        let newest = state.all.last_mut().expect("the caller has found one");
        for (pair, block) in pairs.iter().zip(places) {
            newest.keep(*pair, block);
        }
        Ok(())
    }

    /// Writes what has changed of lists and table, and names the table in the header. Everything
    /// that changes in this checkpoint is kept by now.
    ///
    /// # Errors
    /// `NoSpace`, or a failed write. The volume has to stop then.
    pub(crate) fn name(&self, header: &mut VolumeHeader, change: Option<&Change>) -> Result<()> {
        let mut state = self.snapshots.state.lock();
        if let Some(change) = change {
            self.apply(&mut state, change);
        }
        let unlisted = |one: &Snapshot| one.listed < one.order.len();
        if change.is_none() && !state.all.iter().any(unlisted) {
            return Ok(());
        }
        let mut writes = Vec::new();
        for n in 0..state.all.len() {
            if unlisted(&state.all[n]) {
                self.write_list(&mut state, n, &mut writes)?;
            }
        }
        let old = std::mem::take(&mut state.table);
        self.free(&mut state, old);
        for _ in 0..state.all.len().div_ceil(TABLE_ENTRIES) {
            let block = self.alloc(&mut state)?;
            state.table.push(block);
        }
        for (block, table) in state
            .table
            .iter()
            .zip(table_blocks(&state.all, &state.table))
        {
            writes.push(self.block(*block, pair_kind::SNAPSHOTS, table.as_bytes()));
        }
        header.snapshots = U64::new(state.table.first().map_or(0, |block| block.0));
        drop(state);
        Ok(self.region.write_all(writes)?)
    }

    /// Gives the list of the `n`-th snapshot new blocks for all pairs that it lacks.
    fn write_list(
        &self,
        state: &mut State,
        n: usize,
        writes: &mut Vec<(BlockNo, dure_block::BlockBuf)>,
    ) -> Result<()> {
        let whole = state.all[n].whole_blocks();
        let partial = state.all[n].list.split_off(whole);
        self.free(state, partial);
        let blocks = state.all[n].order.len().div_ceil(LIST_ENTRIES);
        for _ in whole..blocks {
            let block = self.alloc(state)?;
            state.all[n].list.push(block);
        }
        let one = &mut state.all[n];
        for at in whole..blocks {
            let list = list_block(one, at);
            writes.push(self.block(one.list[at], pair_kind::KEPT_LIST, list.as_bytes()));
        }
        one.listed = one.order.len();
        Ok(())
    }

    fn block(&self, at: BlockNo, kind: u32, payload: &[u8]) -> (BlockNo, dure_block::BlockBuf) {
        let content = (self.checkpoint, payload);
        pair::single_block(at, kind, content, self.layout.crc_seed)
    }

    fn apply(&self, state: &mut State, change: &Change) {
        let place = |state: &State, id: u64| state.all.iter().position(|one| one.info.id == id);
        match change {
            Change::Create(info) => state.all.push(Snapshot::new(info.clone())),
            Change::Rename(id, name) => {
                let at = place(state, *id).expect("the caller has found it");
                state.all[at].info.name.clone_from(name);
            }
            Change::Delete(id) => {
                let at = place(state, *id).expect("the caller has found it");
                self.delete(state, at);
            }
        }
    }

    /// What the older one has not kept of what this one has, it keeps now: the pair did not change
    /// between the two.
    fn delete(&self, state: &mut State, at: usize) {
        let gone = state.all.remove(at);
        let mut unused = gone.list;
        for pair in gone.order {
            let block = gone.kept[&pair];
            match at.checked_sub(1).map(|older| &mut state.all[older]) {
                Some(older) if !older.kept.contains_key(&pair) => older.keep(pair, block),
                _ if block.is_none() => {}
                _ => unused.push(block),
            }
        }
        self.free(state, unused);
    }

    /// These blocks are free when the checkpoint is complete.
    fn free(&self, state: &mut State, blocks: Vec<BlockNo>) {
        for block in blocks {
            self.space.disown(block);
            state.freed.push(block);
        }
    }

    fn alloc(&self, state: &mut State) -> Result<BlockNo> {
        let what = "blocks reserved for snapshots";
        if state.held > 0 {
            state.held -= 1;
        } else if !self.space.reserve(self.core, 1, OpClass::Delete) {
            return Err(Error::NoSpace { what });
        }
        let block = self.space.alloc_node(self.core);
        let block = block.ok_or(Error::NoSpace { what })?;
        self.space.adopt(block);
        Ok(block)
    }

    /// The checkpoint is complete, and durable: blocks that were the snapshots' own are reserved for
    /// the next.
    pub(crate) fn end(&self) {
        let mut state = self.snapshots.state.lock();
        for first in std::mem::take(&mut state.freed) {
            self.space.release(Run { first, count: 1 });
            state.held += 1;
        }
    }

    /// A snapshot was deleted, durably: what only it needed is free.
    ///
    /// # Errors
    /// Those of [`Keeper::pin`]; the blocks stay allocated until the next mount then.
    pub(crate) fn unpin(&self) -> Result<()> {
        let pins = self
            .snapshots
            .pins(self.region, (self.layout, self.packs))?;
        self.space.pin_only(pins, &self.snapshots.own())
    }

    /// Reserves blocks for what checkpoints may have to keep, or gives back what is not needed any
    /// more; false if there are not as many. With `adds`, for a snapshot that is about to be taken,
    /// which is refused then. Without, what lacks (a mount finds fewer free blocks than there were)
    /// is taken when it is needed.
    pub(crate) fn hold(&self, adds: bool) -> bool {
        let want = self.snapshots.need(self.packs, self.layout, adds);
        let mut state = self.snapshots.state.lock();
        let class = if adds {
            OpClass::Normal
        } else {
            OpClass::Delete
        };
        let count = |blocks: u64| u32::try_from(blocks).expect("tables have fewer than 2^32 pairs");
        if state.held > want {
            self.space.unreserve(self.core, count(state.held - want));
        } else if !self
            .space
            .reserve(self.core, count(want - state.held), class)
        {
            return false;
        }
        state.held = want;
        true
    }
}
