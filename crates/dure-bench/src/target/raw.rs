//! A device or file by itself: one write and one flush, what no synchronous write can do without.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_block::BlockBuf;
use dure_sync::Arc;
use rustix::fs::OFlags;

use super::Worker;
use crate::workload::{FILE_BYTES, IO_BYTES, Workload, content};

/// An open device or file, overwritten.
#[derive(Debug)]
pub struct RawTarget {
    pub(super) name: String,
    file: Arc<File>,
    /// Pages of one write.
    pages: usize,
}

impl RawTarget {
    /// `text` is PATH or PATH,pages=N.
    pub(super) fn open(name: &str, text: &str) -> Result<RawTarget> {
        let (path, pages) = match text.split_once(",pages=") {
            None => (text, 1),
            Some((path, pages)) => (path, pages.parse().context("pages=N: a number")?),
        };
        if !(1..=16).contains(&pages) {
            bail!("--target {name}: pages=1 to pages=16");
        }
        let direct = i32::try_from(OFlags::DIRECT.bits()).context("a flag of open(2)")?;
        let file = File::options()
            .write(true)
            .custom_flags(direct)
            .open(Path::new(path));
        Ok(RawTarget {
            name: name.to_owned(),
            file: Arc::new(file.with_context(|| path.to_owned())?),
            pages,
        })
    }

    pub(super) fn offers(workload: Workload) -> bool {
        workload == Workload::OverwriteFsync
    }

    pub(super) fn worker(&self, thread: usize) -> Result<Box<dyn Worker>> {
        let pages = u64::try_from(self.pages).context("few")?;
        let mut buffer = BlockBuf::zeroed(self.pages);
        for page in buffer.as_mut_slice().chunks_exact_mut(IO_BYTES) {
            page.copy_from_slice(&content(thread));
        }
        Ok(Box::new(Writer {
            file: self.file.clone(),
            from: u64::try_from(thread).context("threads are few")? * FILE_BYTES * pages,
            step: 4096 * pages,
            buffer,
        }))
    }
}

struct Writer {
    file: Arc<File>,
    from: u64,
    step: u64,
    buffer: BlockBuf,
}

impl Worker for Writer {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let turns = FILE_BYTES / 4096;
        let offset = self.from + turn % turns * self.step;
        self.file.write_all_at(self.buffer.as_slice(), offset)?;
        rustix::fs::fdatasync(&*self.file)?;
        Ok(())
    }
}
