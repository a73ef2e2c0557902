//! A directory of any mounted file system, through system calls.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Worker;
use crate::workload::{FILE_BYTES, IO_BYTES, Workload};

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
        let path = directory.join("file");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let mut buffer = vec![0x5a; IO_BYTES];
        for page in 0..FILE_BYTES / 4096 {
            file.write_all_at(&buffer, page * 4096)?;
        }
        file.sync_all()?;
        buffer[0] = 1;
        Ok(Box::new(SystemCalls {
            workload,
            directory,
            path,
            file,
            buffer,
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
    buffer: Vec<u8>,
}

impl Worker for SystemCalls {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let offset = turn * 4096 % FILE_BYTES;
        match self.workload {
            Workload::Overwrite => self.file.write_all_at(&self.buffer, offset)?,
            Workload::Read => self.file.read_exact_at(&mut self.buffer, offset)?,
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
        }
        Ok(())
    }
}
