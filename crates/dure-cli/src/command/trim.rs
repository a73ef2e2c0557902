//! `dure trim`.

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::count::Count;
use dure_block::{Lba, Queue, QueueConfig};
use dure_fs::{VolumeInfo, VolumeState};

use crate::args::Trim;
use crate::exit;
use crate::size::Size;
use crate::volume::{self, Access};

const BLOCK: u64 = 4096;

pub(crate) fn run(args: &Trim) -> Result<u8> {
    let path = args.volume.as_path();
    let at = || path.display().to_string();
    let device = volume::device(path, Access::Write)?;
    let info = VolumeInfo::read(device.clone()).with_context(at)?;
    // What it does not know may be in blocks that it takes for free.
    info.layout.superblock.expect_writable().with_context(at)?;
    if info.state != VolumeState::Clean {
        bail!(
            "{}: it was not unmounted, and its logs may name blocks that count as free; mount and \
             unmount it first",
            at()
        );
    }
    let queue = Queue::new(device, QueueConfig::default());
    let mut blocks = 0;
    for run in &info.free_runs {
        let count = run.end - run.start;
        let discarded = queue.discard(Lba::new(run.start), count);
        discarded.with_context(|| format!("{}: discard", at()))?;
        blocks += count;
    }
    queue.flush().with_context(at)?;
    say!(
        "{}: {} in {} told to be free",
        path.display(),
        Size(blocks * BLOCK),
        Count::of(info.free_runs.len(), "place")
    );
    Ok(exit::OK)
}
