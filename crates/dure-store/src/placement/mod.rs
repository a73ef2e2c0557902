//! Pages on their way to blocks, and back.
//!
//! **Problem.** A block may refuse to be written; the data must go elsewhere, and the block must
//! not be tried again. And a page may be in a log only: its block has something else.
//!
//! **Structure.** A [`Target`] is a page, its old slot and the block it is to lie in; [`Placement`]
//! finds blocks for targets. `write` puts pages into blocks: of write-back, of the data log at a
//! checkpoint, of recovery. Each run is one request, and all of a call are under way together
//! (`begin_write` returns meanwhile); when one fails its blocks are written
//! singly, and a block that fails is fenced off: it stays allocated until the next mount, and the
//! page gets another one. `read` finds a page in the data log or else in its block.
//!
//! # Invariants
//! * Each target holds one reserved block at the end as at the beginning.
//! * A block that failed by itself is not tried again.
//! * Pages are durable when an operation that names them is: with `flush=one` by the flush of its
//!   log, which covers the same medium; recovery compares what may have been in flight with the CRC
//!   in the slot. With `flush=two` they are flushed before the operation begins.
//!
//! **On a crash** blocks that no slot names are free.

mod read;
#[cfg(test)]
mod tests;
mod verified;
mod write;

use dure_sync::{Arc, CoreId, Counter};

use crate::alloc::{ActiveLogs, AllocPolicy, Temperature};
use crate::data_log::DataLog;
use crate::error::{Error, Result};
use crate::format::slot::Slot;
use crate::media::Region;
use crate::options::{Absorb, FlushRule, StoreOptions};
use crate::space::Space;
use crate::units::{BlockNo, Run};
use verified::Verified;
pub use write::Writing;

/// A page on its way to a block.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its place in the file.
    pub page: u64,
    old: Slot,
    /// Where it goes; none until allocated.
    pub block: BlockNo,
    /// The checksum of its content.
    pub crc: u32,
}

impl Target {
    /// A page whose slot is `old`. A preallocated block is filled in place: its content never
    /// counted, so a crash half way leaves a slot that still says "unwritten".
    pub fn new(page: u64, old: Slot, crc: u32) -> Target {
        let block = if old.is_unwritten() {
            old.block()
        } else {
            BlockNo::NONE
        };
        Target {
            page,
            old,
            block,
            crc,
        }
    }

    /// A page that moves to `block`.
    pub fn to(block: BlockNo) -> Target {
        Target {
            page: 0,
            old: Slot::HOLE,
            block,
            crc: 0,
        }
    }

    /// Whether the page has content in a block, which it leaves.
    pub fn is_overwrite(&self) -> bool {
        self.old.is_written()
    }

    /// Whether it goes into the block its slot names already.
    pub fn is_in_place(&self) -> bool {
        !self.block.is_none() && self.block == self.old.block()
    }
}

/// On which medium a page is to lie, of a volume on two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Where the volume has its data.
    Home,
    /// In persistent memory as long as there is room for it ([`Absorb`]), else at home.
    Memory,
}

/// Where pages of a volume go, and where they are.
#[derive(Debug)]
pub struct Placement {
    pub(crate) region: Arc<Region>,
    pub(crate) space: Arc<Space>,
    pub(crate) data_log: Arc<DataLog>,
    alloc: AllocPolicy,
    active_logs: ActiveLogs,
    flush: FlushRule,
    absorb: Option<Absorb>,
    verified: Verified,
    /// Times that there was no room for data in persistent memory, so that it went to the device.
    pub absorb_refused: Counter,
    /// Blocks set aside because a write to them failed.
    pub fenced_off: Counter,
}

impl Placement {
    /// Placement in `space` on `region`, by the policies of `options`.
    pub(crate) fn new(
        region: Arc<Region>,
        space: Arc<Space>,
        data_log: Arc<DataLog>,
        options: &StoreOptions,
    ) -> Placement {
        Placement {
            verified: Verified::new(region.blocks()),
            region,
            space,
            data_log,
            alloc: options.alloc,
            active_logs: options.active_logs,
            flush: match options.store_rules.data_before_record.holds() {
                true => options.flush,
                false => FlushRule::One,
            },
            absorb: options.absorb,
            absorb_refused: Counter::default(),
            fenced_off: Counter::default(),
        }
    }

    /// 1 ..= `want` blocks in a row for data, where the policies want them, out of a reservation of
    /// the caller.
    ///
    /// # Errors
    /// `NoSpace`; see `crate::space::Space::alloc_data`.
    pub fn alloc_data(&self, core: CoreId, temperature: Temperature, want: u32) -> Result<Run> {
        let partition = self.alloc.partition(core);
        let temperature = self.active_logs.place(temperature);
        let run = self.space.alloc_data(partition, temperature, want);
        run.ok_or(Error::NoSpace {
            what: "data blocks, although reserved",
        })
    }

    /// Gives a block to each target that has none, in runs as long as can be had; in persistent
    /// memory also to those that were to be filled in place. Each holds a reserved block.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn allocate(&self, core: CoreId, targets: &mut [Target], tier: Tier) -> Result<()> {
        if let (Tier::Memory, Some(absorb)) = (tier, self.absorb) {
            self.absorb(core, targets, absorb);
        }
        let homeless = || targets.iter().filter(|target| target.block.is_none());
        let mut without = homeless().count();
        let temperature = if homeless().all(|target| target.old.is_written()) {
            Temperature::Hot
        } else {
            Temperature::Warm
        };
        let mut blocks = 0..0;
        for target in targets.iter_mut().filter(|target| target.block.is_none()) {
            if blocks.is_empty() {
                let want = u32::try_from(without).expect("a batch has few pages");
                let run = self.alloc_data(core, temperature, want)?;
                blocks = run.first.0..run.first.0 + u64::from(run.count);
            }
            target.block = BlockNo(blocks.next().expect("a run has a block"));
            without -= 1;
        }
        assert!(blocks.is_empty(), "more blocks than pages");
        Ok(())
    }

    /// Gives blocks in persistent memory to as many targets as there is room for.
    fn absorb(&self, core: CoreId, targets: &mut [Target], absorb: Absorb) {
        let partition = self.alloc.partition(core);
        let mut blocks = 0..0;
        let mut want = u32::try_from(targets.len()).expect("a batch has few pages");
        for target in targets {
            if blocks.is_empty() {
                let max = absorb.segments_max;
                let Some(run) = self.space.alloc_absorbed(partition, max, want) else {
                    self.absorb_refused.add(1);
                    return;
                };
                blocks = run.first.0..run.first.0 + u64::from(run.count);
            }
            target.block = BlockNo(blocks.next().expect("a run has a block"));
            want -= 1;
        }
    }

    /// Frees the blocks of targets that no slot will name; they keep their reserved blocks.
    pub fn release(&self, targets: &[Target]) {
        let taken = |target: &&Target| !target.block.is_none() && !target.is_in_place();
        let taken = targets.iter().filter(taken);
        self.release_blocks(taken.map(|target| target.block));
    }

    /// Frees blocks that were allocated and never placed.
    pub fn release_blocks(&self, blocks: impl IntoIterator<Item = BlockNo>) {
        for first in blocks {
            self.space.release(Run { first, count: 1 });
        }
    }
}

/// The length of the prefix of `blocks` that is contiguous on the device, at most `count_max`.
pub fn contiguous(blocks: impl IntoIterator<Item = BlockNo>, count_max: usize) -> usize {
    let mut count = 0;
    let mut next = None;
    for block in blocks.into_iter().take(count_max) {
        if block.is_none() || next.is_some_and(|next| next != block) {
            break;
        }
        next = Some(BlockNo(block.0 + 1));
        count += 1;
    }
    count
}
