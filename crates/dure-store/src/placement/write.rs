//! Writing pages to their blocks, or to others.

use dure_block::{BlockBuf, UnderWay};
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
/// Blocks of the data log that are written together.
const BLOCKS_TOGETHER: usize = 256;

/// Pages that the device is writing.
#[derive(Debug)]
#[must_use = "how it ended is learned by Placement::end_write"]
pub struct Writing {
    /// Runs of targets: the first of each, and its pages.
    runs: Vec<(usize, UnderWay)>,
    /// All pages, if they are several runs.
    all: Option<BlockBuf>,
}

impl Placement {
    /// Writes `bytes`, one page per target. A target whose block fails gets another one.
    ///
    /// # Errors
    /// The last block's error when none takes a page.
    pub fn write(&self, core: CoreId, targets: &mut [Target], bytes: &[u8]) -> Result<()> {
        let lengths = runs_of(targets, bytes.len());
        if let [count] = lengths[..] {
            assert_eq!(count, targets.len(), "one run has all pages");
            let written = self.region.write(targets[0].block, bytes);
            return written.or_else(|error| self.move_failed(core, targets, bytes, error));
        }
        let runs = self.begin_runs(targets, &lengths, bytes);
        self.end_runs(core, targets, runs).1
    }

    /// Begins to write `pages`, one per target, and returns while that is under way.
    pub fn begin_write(&self, targets: &[Target], pages: BlockBuf) -> Writing {
        let lengths = runs_of(targets, pages.as_slice().len());
        if lengths.len() == 1 {
            let requests = self.region.begin_writes(vec![(targets[0].block, pages)]);
            let runs = requests.into_iter().map(|request| (0, request)).collect();
            return Writing { runs, all: None };
        }
        let runs = self.begin_runs(targets, &lengths, pages.as_slice());
        Writing {
            runs,
            all: Some(pages),
        }
    }

    /// Waits for that. Returns the pages, and how it ended: as [`Placement::write`].
    pub fn end_write(
        &self,
        core: CoreId,
        targets: &mut [Target],
        writing: Writing,
    ) -> (BlockBuf, Result<()>) {
        let Writing { runs, all } = writing;
        let (last, result) = self.end_runs(core, targets, runs);
        (all.or(last).unwrap_or_default(), result)
    }

    fn begin_runs(
        &self,
        targets: &[Target],
        lengths: &[usize],
        bytes: &[u8],
    ) -> Vec<(usize, UnderWay)> {
        let mut at = 0;
        let (mut firsts, mut writes) = (Vec::new(), Vec::new());
        for count in lengths {
            let run = &bytes[at * BLOCK_BYTES..][..count * BLOCK_BYTES];
            firsts.push(at);
            writes.push((targets[at].block, BlockBuf::from_slice(run)));
            at += count;
        }
        let requests = self.region.begin_writes(writes);
        firsts.into_iter().zip(requests).collect()
    }

    /// Returns the memory of the last run, too.
    fn end_runs(
        &self,
        core: CoreId,
        targets: &mut [Target],
        runs: Vec<(usize, UnderWay)>,
    ) -> (Option<BlockBuf>, Result<()>) {
        let (mut result, mut last) = (Ok(()), None);
        // Each is waited for, also behind one that failed: its blocks are not free before.
        for (first, request) in runs {
            let (buf, written) = self.region.end(request);
            if let Err(error) = written {
                let targets = &mut targets[first..first + buf.blocks()];
                result = result.and(self.move_failed(core, targets, buf.as_slice(), error));
            }
            last = Some(buf);
        }
        (last, result)
    }

    /// Writes the pages of a run that failed: those to other blocks whose own fail by themselves.
    fn move_failed(
        &self,
        core: CoreId,
        targets: &mut [Target],
        bytes: &[u8],
        error: dure_block::Error,
    ) -> Result<()> {
        for (n, error) in self.write_singly(targets[0].block, bytes, error) {
            let page = &bytes[n * BLOCK_BYTES..][..BLOCK_BYTES];
            self.write_to_others(core, &mut targets[n], page, TRIES_MAX - 1, error)?;
        }
        Ok(())
    }

    /// Writes adjacent blocks one by one, which failed together: most likely only one of them did.
    /// Returns those that do not take their page, as places in the run.
    fn write_singly(
        &self,
        first: BlockNo,
        bytes: &[u8],
        error: dure_block::Error,
    ) -> Vec<(usize, Error)> {
        if bytes.len() == BLOCK_BYTES {
            return vec![(0, error.into())];
        }
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
        for blocks in blocks.chunks(BLOCKS_TOGETHER) {
            let (mut rest, mut runs, mut writes) = (blocks, Vec::new(), Vec::new());
            while !rest.is_empty() {
                let (run, after) = rest.split_at(contiguous(rest.iter().copied(), rest.len()));
                let mut buf = BlockBuf::zeroed(run.len());
                log.copy(run, buf.as_mut_slice());
                runs.push(run);
                writes.push((run[0], buf));
                rest = after;
            }
            for (run, request) in runs.into_iter().zip(self.region.begin_writes(writes)) {
                let (buf, written) = self.region.end(request);
                let failed = match written {
                    Ok(()) => Vec::new(),
                    Err(error) => self.write_singly(run[0], buf.as_slice(), error),
                };
                let placed = |n: usize| failed.iter().all(|(failed, _)| *failed != n);
                let placed = run.iter().enumerate().filter(|(n, _)| placed(*n));
                log.end_writing(core, &self.space, placed.map(|(_, block)| *block));
                unplaced.extend(failed.into_iter().map(|(n, error)| (run[n], error)));
            }
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

/// Lengths of the runs of targets whose blocks lie side by side.
fn runs_of(targets: &[Target], bytes: usize) -> Vec<usize> {
    assert_eq!(
        targets.len() * BLOCK_BYTES,
        bytes,
        "a page of bytes per target"
    );
    let (mut at, mut lengths) = (0, Vec::new());
    while at < targets.len() {
        let rest = &targets[at..];
        let count = contiguous(rest.iter().map(|target| target.block), rest.len());
        assert!(count > 0, "a page is written that has no block");
        lengths.push(count);
        at += count;
    }
    lengths
}
