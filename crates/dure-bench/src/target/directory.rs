//! A directory of any mounted file system, through system calls.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Worker;
use crate::workload::{
    APPEND_BYTES, CREATED_FILES, FILE_BYTES, IO_BYTES, SHARED_PARTS, Workload, content,
};

/// A working directory below the one that was named.
#[derive(Debug)]
pub struct DirectoryTarget {
    pub(super) name: String,
    place: PathBuf,
}

impl DirectoryTarget {
    pub(super) fn open(name: &str, path: &Path) -> Result<DirectoryTarget> {
        let place = path.join("dure-bench");
        if place.exists() {
            fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
        }
        fs::create_dir(&place).with_context(|| place.display().to_string())?;
        Ok(DirectoryTarget {
            name: name.to_owned(),
            place,
        })
    }

    pub(super) fn worker(&self, workload: Workload, thread: usize) -> Result<Box<dyn Worker>> {
        let directory = self.place.join(format!("t{thread}"));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let number = u64::try_from(thread).context("threads are few")?;
        let (path, from) = match workload {
            Workload::OverwriteShared => (
                self.place.join("shared"),
                number % SHARED_PARTS * FILE_BYTES,
            ),
            _ => (directory.join("file"), 0),
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let buffer = content(thread);
        for page in 0..FILE_BYTES / 4096 {
            file.write_all_at(&buffer, from + page * 4096)?;
        }
        file.sync_all()?;
        for n in 0..CREATED_FILES {
            let old = directory.join(format!("n{n}"));
            if old.exists() {
                fs::remove_file(old)?;
            }
        }
        Ok(Box::new(SystemCalls {
            workload,
            directory,
            path,
            file,
            from,
            buffer,
            done: 0,
        }))
    }

    pub(super) fn close(self) -> Result<()> {
        fs::remove_dir_all(&self.place).with_context(|| self.place.display().to_string())
    }
}

struct SystemCalls {
    workload: Workload,
    directory: PathBuf,
    path: PathBuf,
    file: File,
    /// Where the thread's part of the file begins.
    from: u64,
    buffer: Vec<u8>,
    /// Operations so far, in all repetitions.
    done: u64,
}

impl SystemCalls {
    fn create_and_sync(&mut self) -> Result<()> {
        let path = self
            .directory
            .join(format!("n{}", self.done % CREATED_FILES));
        if self.done >= CREATED_FILES {
            fs::remove_file(&path)?;
        }
        let file = File::options().write(true).create_new(true).open(&path)?;
        file.write_all_at(&self.buffer, 0)?;
        file.sync_all()?;
        Ok(())
    }
}

impl Worker for SystemCalls {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let offset = self.from + turn * 4096 % FILE_BYTES;
        match self.workload {
            Workload::Overwrite | Workload::OverwriteShared => {
                self.file.write_all_at(&self.buffer, offset)?;
            }
            Workload::Read => self
                .file
                .read_exact_at(&mut self.buffer[..IO_BYTES], offset)?,
            Workload::Stat => {
                rustix::fs::stat(&self.path)?;
            }
            Workload::CreateUnlink => {
                let path = self.directory.join("new");
                drop(File::options().write(true).create_new(true).open(&path)?);
                fs::remove_file(&path)?;
            }
            Workload::OverwriteFsync => {
                self.file.write_all_at(&self.buffer, offset)?;
                self.file.sync_all()?;
            }
            Workload::AppendFsync => {
                let end = self.done * 4096 % APPEND_BYTES;
                if end == 0 {
                    self.file.set_len(0)?;
                }
                self.file.write_all_at(&self.buffer, end)?;
                self.file.sync_all()?;
            }
            Workload::CreateFsync => self.create_and_sync()?,
        }
        self.done += 1;
        Ok(())
    }
}
