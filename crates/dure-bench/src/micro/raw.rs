//! A device or file by itself: one write and one flush, what no synchronous write can do without.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use dure_block::BlockBuf;
use rustix::fs::OFlags;

use super::workload::{FILE_BYTES, IO_BYTES, content};
use crate::measure::Worker;

/// Overwrites its part of the device or file.
pub(super) struct Writer {
    file: File,
    from: u64,
    step: u64,
    buffer: BlockBuf,
    turn: u64,
}

impl Writer {
    /// The writer of thread `number`; `pages` are written at once.
    pub(super) fn open(path: &Path, pages: usize, number: usize) -> Result<Writer> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).context("a flag of open(2)")?;
        let file = File::options()
            .write(true)
            .custom_flags(direct)
            .open(path)
            .with_context(|| path.display().to_string())?;
        let mut buffer = BlockBuf::zeroed(pages);
        for page in buffer.as_mut_slice().chunks_exact_mut(IO_BYTES) {
            page.copy_from_slice(&content(number));
        }
        let pages = u64::try_from(pages).context("few")?;
        Ok(Writer {
            file,
            from: u64::try_from(number).context("threads are few")? * FILE_BYTES * pages,
            step: 4096 * pages,
            buffer,
            turn: 0,
        })
    }
}

impl Worker for Writer {
    fn operate(&mut self) -> Result<Option<u64>> {
        let turns = FILE_BYTES / 4096;
        let offset = self.from + self.turn % turns * self.step;
        self.turn += 1;
        self.file.write_all_at(self.buffer.as_slice(), offset)?;
        rustix::fs::fdatasync(&self.file)?;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        1
    }
}
