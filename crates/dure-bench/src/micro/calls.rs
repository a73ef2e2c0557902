//! The single operations on a directory or a volume.

use std::path::PathBuf;

use anyhow::{Context, Result};
use dure_block::BlockBuf;

use super::workload::{APPEND_BYTES, CREATED_FILES, FILE_BYTES, SHARED_PARTS, Workload, content};
use crate::measure::Worker;
use crate::target::{How, OpenFile, Tree};

/// One thread's files.
pub(super) struct Calls {
    workload: Workload,
    tree: Tree,
    directory: PathBuf,
    path: PathBuf,
    file: OpenFile,
    /// Where the thread's part of the file begins.
    from: u64,
    /// On a page of its own, as FxMark's: where it lies in a page makes a copy up to twice as fast.
    buffer: BlockBuf,
    /// Operations so far, in all repetitions.
    done: u64,
}

impl Calls {
    pub(super) fn new(tree: &Tree, workload: Workload, number: usize) -> Result<Calls> {
        let directory = tree.path(&format!("t{number}"));
        tree.create_dir(&directory)?;
        let buffer = BlockBuf::from_slice(&content(number));
        let number = u64::try_from(number).context("threads are few")?;
        let (path, from) = match workload {
            Workload::OverwriteShared => (tree.path("shared"), number % SHARED_PARTS * FILE_BYTES),
            _ => (directory.join("file"), 0),
        };
        let file = tree.open(&path, How::Create)?;
        for page in 0..FILE_BYTES / 4096 {
            file.write_at(buffer.as_slice(), from + page * 4096)?;
        }
        file.sync()?;
        Ok(Calls {
            workload,
            tree: tree.clone(),
            directory,
            path,
            file,
            from,
            buffer,
            done: 0,
        })
    }

    fn create_and_sync(&mut self) -> Result<()> {
        let name = format!("n{}", self.done % CREATED_FILES);
        let path = self.directory.join(name);
        if self.done >= CREATED_FILES {
            self.tree.remove_file(&path)?;
        }
        let file = self.tree.open(&path, How::CreateNew)?;
        file.write_at(self.buffer.as_slice(), 0)?;
        file.sync()
    }
}

impl Worker for Calls {
    fn operate(&mut self) -> Result<Option<u64>> {
        let offset = self.from + self.done * 4096 % FILE_BYTES;
        match self.workload {
            Workload::Overwrite | Workload::OverwriteShared => {
                self.file.write_at(self.buffer.as_slice(), offset)?;
            }
            Workload::Read => self.file.read_at(self.buffer.as_mut_slice(), offset)?,
            Workload::Stat => {
                self.tree.stat(&self.path)?;
            }
            Workload::CreateUnlink => {
                let path = self.directory.join("new");
                drop(self.tree.open(&path, How::CreateNew)?);
                self.tree.remove_file(&path)?;
            }
            Workload::OverwriteFsync => {
                self.file.write_at(self.buffer.as_slice(), offset)?;
                self.file.sync()?;
            }
            Workload::AppendFsync => {
                let end = self.done * 4096 % APPEND_BYTES;
                if end == 0 {
                    self.file.set_len(0)?;
                }
                self.file.write_at(self.buffer.as_slice(), end)?;
                self.file.sync()?;
            }
            Workload::CreateFsync => self.create_and_sync()?,
        }
        self.done += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        match self.workload {
            Workload::OverwriteFsync | Workload::AppendFsync | Workload::CreateFsync => 1,
            Workload::CreateUnlink => 8,
            _ => 64,
        }
    }
}
