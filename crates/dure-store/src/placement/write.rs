//! Writing pages to their blocks, or to others.

use dure_block::BlockBuf;
use dure_sync::CoreId;

use super::{Placement, Target, contiguous};
use crate::alloc::Temperature;
use crate::data_log::Unplaced;
use crate::error::{Error, Result};
use crate::format::slot::Slot;
use crate::options::FlushRule;
use crate::space::OpClass;
use crate::units::{BLOCK_BYTES, BlockNo, to_u64};

/// Blocks that are tried for one page.
const TRIES_MAX: u32 = 4;
/// Blocks of the data log in one device write.
const BLOCKS_PER_WRITE: usize = 256;

impl Placement {
    /// Writes `bytes`, one page per target. A target whose block fails gets another one.
    ///
    /// # Errors
    /// The last block's error when none takes a page.
    pub fn write(&self, core: CoreId, targets: &mut [Target], bytes: &[u8]) -> Result<()> {
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
            for (n, error) in self.write_run(rest[0].block, run) {
                let page = &run[n * BLOCK_BYTES..][..BLOCK_BYTES];
                self.write_to_others(core, &mut rest[n], page, TRIES_MAX - 1, error)?;
            }
            at += count;
        }
        Ok(())
    }

    /// Writes adjacent blocks from `first` on. Returns those that did not take their page, as
    /// places in the run.
    fn write_run(&self, first: BlockNo, bytes: &[u8]) -> Vec<(usize, Error)> {
        let Err(error) = self.region.write(first, bytes) else {
            return Vec::new();
        };
        if bytes.len() == BLOCK_BYTES {
            return vec![(0, error.into())];
        }
        // Most likely one block failed: the others need not move.
        let pages = bytes.chunks_exact(BLOCK_BYTES).enumerate();
        let failed = pages.filter_map(|(n, page)| {
            let written = self.region.write(BlockNo(first.0 + to_u64(n)), page);
            Some((n, written.err()?.into()))
        });
        failed.collect()
    }

    /// Writes a page that its block did not take to another one, which it returns.
    ///
    /// # Errors
    /// The last block's error when none takes the page; `NoSpace` when there is none.
    pub fn write_elsewhere(&self, core: CoreId, page: &[u8]) -> Result<BlockNo> {
        let none = Error::NoSpace {
            what: "blocks for data whose own cannot be written",
        };
        let mut target = Target::new(0, Slot::HOLE, 0);
        self.write_to_others(core, &mut target, page, TRIES_MAX, none)?;
        Ok(target.block)
    }

    /// Tries up to `tries` other blocks than the target's, which becomes the last one tried.
    fn write_to_others(
        &self,
        core: CoreId,
        target: &mut Target,
        page: &[u8],
        tries: u32,
        mut error: Error,
    ) -> Result<()> {
        for _ in 0..tries {
            // A bad block keeps the reserved one it was allocated from, so the next needs another;
            // a preallocated block took none.
            let reserve = u32::from(!target.is_in_place());
            if reserve > 0 && !self.space.reserve(core, reserve, OpClass::Delete) {
                break;
            }
            let Ok(run) = self.alloc_data(core, Temperature::Warm, 1) else {
                self.space.unreserve(core, reserve);
                break;
            };
            self.fenced_off.add(1);
            target.block = run.first;
            match self.region.write(target.block, page) {
                Ok(()) => return Ok(()),
                Err(next) => error = next.into(),
            }
        }
        Err(error)
    }

    /// Writes all pages of the data log to their blocks. Not flushed: the checkpoint that lets the
    /// tail pass these blocks' handles flushes after this call, or after it found them written. The
    /// caller holds the checkpoint lock.
    ///
    /// # Errors
    /// The blocks that could not be written; all others were. The caller must end them.
    pub(crate) fn write_logged(&self, core: CoreId) -> std::result::Result<(), Unplaced> {
        let log = &self.data_log;
        if log.is_unused() {
            return Ok(());
        }
        let blocks = log.begin_writing();
        let mut unplaced: Vec<(BlockNo, Error)> = Vec::new();
        let mut bytes = BlockBuf::zeroed(blocks.len().min(BLOCKS_PER_WRITE));
        let mut rest = &blocks[..];
        while !rest.is_empty() {
            let (run, after) = rest.split_at(contiguous(rest.iter().copied(), BLOCKS_PER_WRITE));
            let bytes = &mut bytes.as_mut_slice()[..run.len() * BLOCK_BYTES];
            log.copy(run, bytes);
            let failed = self.write_run(run[0], bytes);
            let placed = |n: usize| failed.iter().all(|(failed, _)| *failed != n);
            let placed = run.iter().enumerate().filter(|(n, _)| placed(*n));
            log.end_writing(core, &self.space, placed.map(|(_, block)| *block));
            unplaced.extend(failed.into_iter().map(|(n, error)| (run[n], error)));
            rest = after;
        }
        log.learn(blocks.len());
        let (blocks, errors): (Vec<_>, Vec<_>) = unplaced.into_iter().unzip();
        match errors.into_iter().next() {
            None => Ok(()),
            Some(error) => Err(Unplaced { blocks, error }),
        }
    }

    /// Makes the pages durable that were written, where the flush of the log that names them is not
    /// to do it.
    ///
    /// # Errors
    /// A failed flush; the volume must stop then.
    pub(crate) fn flush(&self) -> Result<()> {
        match self.flush {
            FlushRule::One => Ok(()),
            FlushRule::Two => Ok(self.region.flush()?),
        }
    }
}
