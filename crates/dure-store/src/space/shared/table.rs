//! The lists of shared blocks on the medium.
//!
//! **Structure.** A chain of blocks for each segment with shared blocks, and an index that names the
//! chains. A checkpoint writes the chains that have changed, and then the index, to new blocks.
//!
//! # Order, each step with the crash it guards against
//! 1. The lists are taken before the SIT pairs and the summaries. Crash scenario the other way round:
//!    of two owners one lets go in between; the list does not have the block any more, and the
//!    summary that names the other owner is of the next checkpoint; recovery finds the block without
//!    an owner, and another file's data is written to it.
//! 2. They are written before the flush that the volume header follows.
//! 3. What they were in before is free when the header is durable. Crash scenario otherwise: the old
//!    header counts, and the lists that it names have been overwritten.
//!
//! **Invariants.** No task writes to a block of these but the checkpoint: it is pinned. Nothing on
//! them is believed before it is checked; a block is in one chain at most.

use std::collections::{BTreeMap, BTreeSet};

use dure_block::BlockBuf;
use dure_sync::CoreId;
use dure_sync::atomic::Ordering;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::super::pins::Pins;
use super::super::segment::Role;
use super::super::{OpClass, Space};
use super::Owners;
use crate::error::{Error, Result, expect, wrong};
use crate::format::pair_kind;
use crate::format::shared::{INDEX_ENTRIES, RUNS, SharedChain, SharedIndex, SharedRun, SharedRuns};
use crate::format::volume::VolumeHeader;
use crate::pair;
use crate::units::{BlockNo, Run, SegNo, is_zero, to_u64, to_usize};

/// Where the lists lie.
#[derive(Debug, Default)]
pub(super) struct Lists {
    chains: BTreeMap<SegNo, Vec<BlockNo>>,
    index: Vec<BlockNo>,
    /// How many blocks these are.
    used: u64,
    /// Blocks reserved for lists.
    held: u64,
    /// Blocks of chains that operations which have begun may add.
    claimed: u64,
    /// Blocks that were in use, and are free when the running checkpoint is complete.
    freed: Vec<BlockNo>,
}

impl Lists {
    /// Blocks of the lists on the medium.
    fn own(&self) -> impl Iterator<Item = BlockNo> {
        let chains = self.chains.values().flatten();
        chains.chain(&self.index).copied()
    }

    /// Blocks that are to be reserved, of which a checkpoint may need all: for chains of so many
    /// blocks and the index, to new blocks; and for what they grow by, once more for the next.
    fn wants(&self, chain_blocks: u64) -> u64 {
        if chain_blocks == 0 {
            return 0;
        }
        let need = chain_blocks + chain_blocks / to_u64(INDEX_ENTRIES) + 2;
        need + need.saturating_sub(self.used)
    }
}

/// Blocks that an operation may add to the lists. Dropped when it has joined, or does not happen.
#[derive(Debug)]
pub struct SharedClaim<'v> {
    space: &'v Space,
    blocks: u64,
}

impl Drop for SharedClaim<'_> {
    fn drop(&mut self) {
        self.space.shared.lists.lock().claimed -= self.blocks;
    }
}

impl Space {
    /// Room in the lists for an operation that shares at most `runs` runs of blocks; `None` if there
    /// are too few free blocks.
    pub fn claim_shared(&self, core: CoreId, runs: u32) -> Option<SharedClaim<'_>> {
        // Source and target may each begin a chain, or a block of one.
        let blocks = 2 * u64::from(runs);
        let mut lists = self.shared.lists.lock();
        let now = self.shared.chain_blocks.load(Ordering::Relaxed);
        let wants = lists.wants(now + lists.claimed + blocks);
        let have = lists.held + to_u64(lists.freed.len());
        if let Some(more) = wants.checked_sub(have).filter(|more| *more > 0) {
            let more = u32::try_from(more).ok()?;
            if !self.reserve(core, more, OpClass::Normal) {
                return None;
            }
            lists.held += u64::from(more);
        }
        lists.claimed += blocks;
        Some(SharedClaim {
            space: self,
            blocks,
        })
    }

    /// Takes the lists that have changed since the last checkpoint, and writes them. Returns whether
    /// there were any. Not flushed.
    ///
    /// # Errors
    /// `NoSpace`, or a failed write. The volume has to stop then.
    pub(crate) fn write_shared(&self, core: CoreId, checkpoint: u64) -> Result<bool> {
        let mut writes = Vec::new();
        let mut changed = false;
        for segment in self.segments.with_shared() {
            let start = self.layout.segment_start(segment);
            let runs = self.segments.with(segment, |state| {
                let shared = state.shared.as_deref_mut().filter(|shared| shared.dirty)?;
                let before = shared.chain_blocks();
                let runs = shared.runs(start);
                self.count_chain(before, shared.chain_blocks());
                Some(runs)
            });
            if let Some(runs) = runs {
                self.write_chain(core, checkpoint, (segment, &runs), &mut writes)?;
                changed = true;
            }
        }
        if changed {
            self.write_index(core, checkpoint, &mut writes)?;
        }
        self.region.write_all(writes)?;
        Ok(changed)
    }

    fn write_chain(
        &self,
        core: CoreId,
        checkpoint: u64,
        (segment, runs): (SegNo, &[SharedRun]),
        writes: &mut Vec<(BlockNo, BlockBuf)>,
    ) -> Result<()> {
        let mut lists = self.shared.lists.lock();
        let old = lists.chains.remove(&segment).unwrap_or_default();
        self.give_up(&mut lists, old);
        let mut blocks = Vec::new();
        for _ in 0..runs.len().div_ceil(RUNS) {
            blocks.push(self.take_own(&mut lists, core)?);
        }
        for (n, some) in runs.chunks(RUNS).enumerate() {
            let mut list = SharedRuns::new_zeroed();
            list.next = U64::new(blocks.get(n + 1).map_or(0, |block| block.0));
            list.segment = U32::new(segment.0);
            list.count = U32::new(u32::try_from(some.len()).expect("few runs"));
            list.runs[..some.len()].copy_from_slice(some);
            writes.push(self.own_block(blocks[n], pair_kind::SHARED_RUNS, checkpoint, &list));
        }
        if !blocks.is_empty() {
            lists.chains.insert(segment, blocks);
        }
        Ok(())
    }

    fn write_index(
        &self,
        core: CoreId,
        checkpoint: u64,
        writes: &mut Vec<(BlockNo, BlockBuf)>,
    ) -> Result<()> {
        let mut lists = self.shared.lists.lock();
        let old = std::mem::take(&mut lists.index);
        self.give_up(&mut lists, old);
        let mut blocks = Vec::new();
        for _ in 0..lists.chains.len().div_ceil(INDEX_ENTRIES) {
            blocks.push(self.take_own(&mut lists, core)?);
        }
        let mut chains = lists.chains.iter();
        for (n, block) in blocks.iter().enumerate() {
            let mut index = SharedIndex::new_zeroed();
            index.next = U64::new(blocks.get(n + 1).map_or(0, |block| block.0));
            let mut count = 0;
            for (entry, (segment, chain)) in index.chains.iter_mut().zip(&mut chains) {
                *entry = SharedChain {
                    first: U64::new(chain[0].0),
                    segment: U32::new(segment.0),
                    blocks: U32::new(u32::try_from(chain.len()).expect("few blocks")),
                };
                count += 1;
            }
            index.count = U32::new(count);
            writes.push(self.own_block(*block, pair_kind::SHARED_INDEX, checkpoint, &index));
        }
        lists.index = blocks;
        Ok(())
    }

    fn own_block(
        &self,
        at: BlockNo,
        kind: u32,
        checkpoint: u64,
        content: &(impl IntoBytes + zerocopy::Immutable),
    ) -> (BlockNo, BlockBuf) {
        let content = (checkpoint, content.as_bytes());
        pair::single_block(at, kind, content, self.layout.crc_seed)
    }

    /// Names the lists in the volume header.
    pub(crate) fn name_shared(&self, header: &mut VolumeHeader) {
        let lists = self.shared.lists.lock();
        header.shared = U64::new(lists.index.first().map_or(0, |block| block.0));
    }

    /// The checkpoint is complete, and durable. Blocks that are not needed any more are given back;
    /// what lacks is taken, as far as there is.
    pub(crate) fn end_shared(&self, core: CoreId) {
        if !self.may_share() {
            return;
        }
        let mut lists = self.shared.lists.lock();
        for first in std::mem::take(&mut lists.freed) {
            self.release(Run { first, count: 1 });
            lists.held += 1;
        }
        let now = self.shared.chain_blocks.load(Ordering::Relaxed);
        let wants = lists.wants(now + lists.claimed);
        let blocks = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        if lists.held > wants {
            self.unreserve(core, blocks(lists.held - wants));
            lists.held = wants;
        } else if self.reserve(core, blocks(wants - lists.held), OpClass::Delete) {
            lists.held = wants;
        }
    }

    /// These blocks are free when the checkpoint is complete.
    fn give_up(&self, lists: &mut Lists, blocks: Vec<BlockNo>) {
        for block in blocks {
            self.disown(block);
            lists.freed.push(block);
            lists.used -= 1;
        }
    }

    fn take_own(&self, lists: &mut Lists, core: CoreId) -> Result<BlockNo> {
        let what = "blocks reserved for lists of shared blocks";
        if lists.held > 0 {
            lists.held -= 1;
        } else if !self.reserve(core, 1, OpClass::Delete) {
            return Err(Error::NoSpace { what });
        }
        let block = self.alloc_node(core).ok_or(Error::NoSpace { what })?;
        self.adopt(block);
        lists.used += 1;
        Ok(block)
    }

    /// The blocks of the lists.
    pub fn own_of_shared(&self) -> Vec<BlockNo> {
        self.shared.lists.lock().own().collect()
    }

    /// Mount: reads the lists that the header names into a map that was just loaded, and pins their
    /// blocks.
    ///
    /// # Errors
    /// `Corrupt`, naming block and field; `Block` when reading fails.
    pub fn load_shared(&self, header: &VolumeHeader) -> Result<()> {
        let first = header.shared.get();
        expect(
            "volume header: index of shared blocks, of a volume without clones",
            first,
            first == 0 || self.may_share(),
        )?;
        let mut reader = Reader {
            space: self,
            seen: BTreeSet::new(),
        };
        let mut lists = reader.index(BlockNo(first))?;
        let own: Vec<BlockNo> = lists.own().collect();
        lists.used = to_u64(own.len());
        let segments: Vec<SegNo> = lists.chains.keys().copied().collect();
        *self.shared.lists.lock() = lists;
        self.pin(Pins::default(), &own)?;
        for segment in segments {
            let single = self.segments.with(segment, |state| {
                let shared = state.shared.as_deref_mut();
                shared.and_then(|shared| {
                    self.count_chain(0, shared.chain_blocks());
                    shared.count()
                })
            });
            let at = self.layout.segment_start(segment).0 + u64::from(single.unwrap_or(0));
            expect(
                "list of shared blocks: a second owner",
                at,
                single.is_none(),
            )?;
        }
        Ok(())
    }

    /// The map is as recovery leaves it: every shared block is live, and none in a log.
    ///
    /// # Errors
    /// `Corrupt`, naming the block.
    pub fn check_shared(&self) -> Result<()> {
        for segment in self.segments.with_shared() {
            let dead = self.segments.peek(segment, |state| {
                let shared = state.shared.as_deref()?;
                let mut all = (0..self.layout.segment_blocks).filter(|n| shared.is_shared(*n));
                all.find(|n| state.role == Role::Log || !state.live.contains(*n))
            });
            if let Some(Some(index)) = dead {
                let at = self.block(segment, index).0;
                return Err(wrong("list of shared blocks: a block that is live", at));
            }
        }
        Ok(())
    }
}

struct Reader<'s> {
    space: &'s Space,
    /// Blocks that were met.
    seen: BTreeSet<BlockNo>,
}

impl Reader<'_> {
    fn index(&mut self, first: BlockNo) -> Result<Lists> {
        let mut lists = Lists::default();
        let mut next = first;
        let mut last = None;
        while !next.is_none() {
            let at = self.own("block of the index of shared blocks", next)?;
            let payload = self.payload(next, pair_kind::SHARED_INDEX)?;
            let index = SharedIndex::read_from_bytes(&payload).expect("the size is a slot's");
            lists.index.push(next);
            let count = to_usize(u64::from(index.count.get()));
            let sound = (1..=INDEX_ENTRIES).contains(&count)
                && is_zero(&index.reserved)
                && is_zero(index.chains[count..].as_bytes());
            expect("index of shared blocks: entries", at, sound)?;
            for chain in &index.chains[..count] {
                let segment = chain.segment.get();
                let fine = segment < self.space.layout.segments && last < Some(segment);
                expect("index of shared blocks: number of a segment", at, fine)?;
                last = Some(segment);
                let blocks = self.chain(SegNo(segment), chain)?;
                lists.chains.insert(SegNo(segment), blocks);
            }
            next = BlockNo(index.next.get());
        }
        Ok(lists)
    }

    fn chain(&mut self, segment: SegNo, chain: &SharedChain) -> Result<Vec<BlockNo>> {
        let mut blocks = Vec::new();
        let mut next = BlockNo(chain.first.get());
        for n in (0..chain.blocks.get()).rev() {
            let at = self.own("block of a list of shared blocks", next)?;
            let payload = self.payload(next, pair_kind::SHARED_RUNS)?;
            let list = SharedRuns::read_from_bytes(&payload).expect("the size is a slot's");
            blocks.push(next);
            let count = to_usize(u64::from(list.count.get()));
            let sound = (1..=RUNS).contains(&count)
                && list.segment.get() == segment.0
                && (list.next.get() == 0) == (n == 0)
                && is_zero(&list.reserved)
                && is_zero(list.runs[count..].as_bytes());
            expect("list of shared blocks", at, sound)?;
            for run in &list.runs[..count] {
                let fine = self.run(segment, run);
                expect("list of shared blocks: a run that can be", at, fine)?;
            }
            next = BlockNo(list.next.get());
        }
        expect(
            "list of shared blocks: its length",
            chain.first.get(),
            !blocks.is_empty(),
        )?;
        Ok(blocks)
    }

    /// Takes a run in; false if there can be none such.
    fn run(&self, segment: SegNo, run: &SharedRun) -> bool {
        let (first, owner, slots) = (run.first(), run.owner(), run.blocks.get());
        let layout = &self.space.layout;
        let Some((SegNo(found), index)) = layout.locate(first) else {
            return false;
        };
        let len = 64 - slots.leading_zeros();
        let fits = found == segment.0
            && slots & 1 == 1
            && u32::from(owner.slot) + len <= 64
            && index + len <= layout.segment_blocks
            && owner.nid.0 < layout.nids();
        fits && self.space.segments.with_sharing(segment, |state| {
            let new = || Box::new(Owners::new(layout.segment_blocks));
            let shared = state.shared.get_or_insert_with(new);
            shared.load(index, owner, slots)
        })
    }

    /// A block of the lists' own: of the main area, and met for the first time.
    fn own(&mut self, what: &str, block: BlockNo) -> Result<u64> {
        let fine = self.space.layout.locate(block).is_some() && self.seen.insert(block);
        expect(what, block.0, fine)?;
        Ok(block.0)
    }

    fn payload(&self, block: BlockNo, kind: u32) -> Result<Vec<u8>> {
        pair::read_single(&self.space.region, block, kind, self.space.layout.crc_seed)
    }
}
