//! Blocks for pages: allocation, and writing with other blocks in reserve.
//!
//! **Problem.** A block may refuse to be written; the data must go elsewhere, and the block must
//! not be tried again. **Structure.** A [`Target`] is a page, its old slot and the block it is to
//! lie in. Runs are written in one request; when one fails its blocks are written singly, and a
//! block that fails is fenced off: it stays allocated until the next mount, and the page gets
//! another one.
//!
//! **Invariants.** Each target holds one reserved block at the end as at the beginning. Nothing is
//! retried at the same place. **On a crash** blocks that no slot names are free.

use dure_store::alloc::Temperature;
use dure_store::error::{Error, Result};
use dure_store::format::slot::Slot;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BlockNo, Run, to_u64, to_usize};
use dure_sync::CoreId;

use super::run::contiguous;
use crate::volume::Volume;

/// Blocks that are tried for one page.
const TRIES_MAX: u32 = 4;

/// A page on its way to a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) page: u64,
    old: Slot,
    /// Where it goes; none until allocated.
    pub(super) block: BlockNo,
    pub(super) crc: u32,
}

impl Target {
    /// A page whose slot is `old`. A preallocated block is filled in place: its content never
    /// counted, so a crash half way leaves a slot that still says "unwritten".
    pub(super) fn new(page: u64, old: Slot, crc: u32) -> Target {
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

    /// Whether it goes into the block its slot names already.
    pub(super) fn is_in_place(&self) -> bool {
        !self.block.is_none() && self.block == self.old.block()
    }
}

impl Volume {
    /// Gives a block to each target that has none, in runs as long as can be had. Each holds a
    /// reserved block.
    pub(super) fn allocate(&self, core: CoreId, targets: &mut [Target]) -> Result<()> {
        let homeless = || targets.iter().filter(|target| target.block.is_none());
        let mut without = homeless().count();
        let temperature = if homeless().all(|target| target.old.is_written()) {
            Temperature::Hot
        } else {
            Temperature::Warm
        };
        let mut run: Option<Run> = None;
        for target in targets.iter_mut().filter(|target| target.block.is_none()) {
            let next = match run {
                Some(run) if run.count > 0 => run,
                _ => {
                    let want = u32::try_from(without).expect("a batch has few pages");
                    self.alloc_data(core, temperature, want)?
                }
            };
            target.block = next.first;
            run = Some(Run {
                first: BlockNo(next.first.0 + 1),
                count: next.count - 1,
            });
            without -= 1;
        }
        assert!(
            run.is_none_or(|run| run.count == 0),
            "more blocks than pages"
        );
        Ok(())
    }

    /// A run of 1 to `want` blocks the caller has reserved.
    fn alloc_data(&self, core: CoreId, temperature: Temperature, want: u32) -> Result<Run> {
        let none = Error::NoSpace {
            what: "data blocks, although reserved",
        };
        let run = self.place_data(core, temperature, want).ok_or(none)?;
        assert!(
            (1..=want).contains(&run.count),
            "wanted {want} blocks, got {run:?}"
        );
        Ok(run)
    }

    /// Frees the blocks of targets whose write-back failed; they keep their reserved blocks.
    pub(super) fn release(&self, targets: &[Target]) {
        for target in targets {
            if !target.block.is_none() && !target.is_in_place() {
                self.space.release(Run {
                    first: target.block,
                    count: 1,
                });
            }
        }
    }

    /// Writes `bytes`, one page per target. A target whose block fails gets another one.
    pub(super) fn write_blocks(
        &self,
        core: CoreId,
        targets: &mut [Target],
        bytes: &[u8],
    ) -> Result<()> {
        assert_eq!(
            targets.len() * BLOCK_BYTES,
            bytes.len(),
            "a page of bytes per target"
        );
        let mut at = 0;
        while at < targets.len() {
            let rest = &mut targets[at..];
            let count = contiguous(rest.iter().map(|target| target.block), rest.len());
            assert!(count > 0, "a page is written that has no block");
            let run = &bytes[at * BLOCK_BYTES..(at + count) * BLOCK_BYTES];
            let written = self.region.write(rest[0].block, run);
            match written {
                Ok(()) => {}
                Err(error) if count == 1 => self.write_elsewhere(core, &mut rest[0], run, error)?,
                Err(_) => {
                    for (target, page) in rest.iter_mut().zip(run.chunks_exact(BLOCK_BYTES)) {
                        if let Err(error) = self.region.write(target.block, page) {
                            self.write_elsewhere(core, target, page, error)?;
                        }
                    }
                }
            }
            at += count;
        }
        Ok(())
    }

    /// The target's block could not be written: fences it off and tries others.
    fn write_elsewhere(
        &self,
        core: CoreId,
        target: &mut Target,
        page: &[u8],
        mut error: dure_block::Error,
    ) -> Result<()> {
        for _ in 1..TRIES_MAX {
            // A bad block keeps the reserved one it was allocated from, so the next needs another;
            // a preallocated block took none.
            let reserve = u32::from(!target.is_in_place());
            if reserve > 0 && !self.space.reserve(core, reserve, OpClass::Delete) {
                break;
            }
            let Some(run) = self.place_data(core, Temperature::Warm, 1) else {
                self.unreserve(core, reserve);
                break;
            };
            self.pages.counters.fenced_off.add(1);
            target.block = run.first;
            match self.region.write(run.first, page) {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
        Err(error.into())
    }

    /// Allocates up to `count` blocks for slots that will be unwritten; the caller has reserved
    /// them.
    pub(super) fn alloc_unwritten(&self, core: CoreId, count: usize) -> Result<Vec<BlockNo>> {
        let mut blocks = Vec::with_capacity(count);
        while blocks.len() < count {
            let want = u32::try_from(count - blocks.len()).expect("a step has few blocks");
            match self.alloc_data(core, Temperature::Warm, want) {
                Ok(run) => {
                    blocks.extend((0..run.count).map(|n| BlockNo(run.first.0 + u64::from(n))))
                }
                Err(error) => {
                    self.release_blocks(&blocks);
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }

    /// Frees blocks that were allocated and never placed.
    pub(super) fn release_blocks(&self, blocks: &[BlockNo]) {
        let mut at = 0;
        while at < blocks.len() {
            let count = contiguous(blocks[at..].iter().copied(), blocks.len() - at);
            let run = Run {
                first: blocks[at],
                count: u32::try_from(count).expect("a step has few blocks"),
            };
            self.space.release(run);
            at += to_usize(to_u64(count));
        }
    }
}
