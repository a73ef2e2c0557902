//! The load on files of a volume instead of the device itself.
//!
//! **Problem.** A lock around submission in a file system undoes what the block layer below it was
//! freed of: F2FS takes one for reads too. **Structure.** A volume is made on the device; each job
//! has a file of its own there, which is written whole before. Reads come from the device: they
//! pass the page cache by. A write is synced. Policies (`submit_lock=all`) are those of a mount.
//! **Invariants.** What was on a device is lost only with `--overwrite`. **On a crash** an image file
//! that was made for the run stays behind.

use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_fs::{FileSystem, FormatOptions, InodeRef, NewInode, Stamp, SubmitLockWaits, SyncScope};
use dure_sync::Arc;

use super::choices::Pattern;
use super::device;
use super::job::{Access, Job};
use super::load::{self, Done, Load, block_bytes};
use super::report::Report;
use crate::target::options_of;

/// Files take one part of the device in so many: the rest is for metadata and logs.
const FILES_SHARE: u64 = 2;
/// Bytes that one call fills.
const FILL_BYTES: usize = 1 << 20;
/// The page cache: nothing is to be read from it.
const CACHE_BYTES: u64 = 1 << 20;

/// Measures the load on files, with these policies.
pub(super) fn measure(load: &Load, policies: &str) -> Result<Report> {
    if load.work.iodepth > 1 {
        bail!("--through-fs: calls of a file system are synchronous; leave --iodepth out");
    }
    let mut work = load.work.clone();
    let there = Path::new(&work.device).exists();
    if !device::is_in_memory(&work.device) && there && !work.overwrite {
        bail!(
            "{}: a volume is made on it, and its content would be lost; --overwrite allows it",
            work.device
        );
    }
    // The volume is written whatever the load does.
    work.rw = Pattern::RandRw;
    let device = device::open(&work, load.jobs)?;
    let mut options = options_of("through-fs", policies)?;
    options.cache_bytes = CACHE_BYTES;
    FileSystem::format(Arc::clone(&device), &FormatOptions::default())?;
    let blocks = device.info().blocks;
    let fs = Arc::new(FileSystem::open(device, options)?);
    let size = blocks / FILES_SHARE / u64::from(load.jobs) / load.blocks() * load.blocks();
    if size == 0 {
        bail!(
            "--size: {blocks} blocks have no room for a file of each of {} jobs",
            load.jobs
        );
    }
    let done = run(load, &fs, size);
    let closed = fs.close();
    let done = done?;
    closed?;
    let (done, waits) = done;
    Ok(Report::of_files(load, policies, done, waits))
}

/// What the jobs did, and how they waited for the submission lock.
fn run(load: &Load, fs: &Arc<FileSystem>, size: u64) -> Result<(Done, Option<SubmitLockWaits>)> {
    let files = (0..load.jobs).map(|number| new_file(fs, number, size));
    let files: Vec<InodeRef> = files.collect::<Result<_>>()?;
    fs.checkpoint_now()?;
    let job = |number: u16| {
        let file = files[usize::from(number)].clone();
        Job::new(load, Access::File(Arc::clone(fs), file), number, size)
    };
    let before = fs.activity().submit_lock.unwrap_or_default();
    let done = load::run_jobs(load, job, load::show)?;
    let waits = fs.activity().submit_lock;
    Ok((done, waits.map(|waits| waits.since(before))))
}

/// A file of `size` blocks that are on the device.
fn new_file(fs: &FileSystem, number: u16, size: u64) -> Result<InodeRef> {
    let new = NewInode {
        mode: 0o100_600,
        ..NewInode::default()
    };
    let name = format!("job-{number}");
    let file = fs.create(&fs.root()?, name.as_bytes(), &new)?;
    let (data, end) = (vec![0x5a; FILL_BYTES], size * block_bytes());
    let mut at = 0;
    while at < end {
        let bytes = usize::try_from(end - at)?.min(FILL_BYTES);
        fs.write(&file, at, &data[..bytes], Stamp::Set)
            .with_context(|| format!("filling {name}"))?;
        at += u64::try_from(bytes)?;
    }
    fs.fsync(&file, SyncScope::All)?;
    Ok(file)
}
