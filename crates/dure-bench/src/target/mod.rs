//! What is measured: a volume through the library, a directory through system calls, or a plain copy.

mod copy;
mod directory;
mod volume;

use std::path::Path;

use anyhow::{Result, bail};

use crate::workload::Workload;

/// One thread's share of a workload: everything opened, ready to loop.
pub trait Worker: Send {
    /// Does the operation once; `turn` counts up.
    ///
    /// # Errors
    /// The operation's.
    fn operate(&mut self, turn: u64) -> Result<()>;
}

/// Something that can be measured.
#[derive(Debug)]
pub enum Target {
    /// A volume, through the library.
    Volume(volume::VolumeTarget),
    /// A directory of a mounted file system.
    Directory(directory::DirectoryTarget),
    /// A plain copy of 4 KiB.
    Copy,
}

impl Target {
    /// Opens a target named as on the command line.
    ///
    /// # Errors
    /// An unknown kind of target, or one that cannot be opened.
    pub fn open(text: &str) -> Result<Target> {
        match text.split_once(':') {
            Some(("dure", rest)) => Ok(Target::Volume(volume::VolumeTarget::open(text, rest)?)),
            Some(("dir", path)) => Ok(Target::Directory(directory::DirectoryTarget::open(
                text,
                Path::new(path),
            )?)),
            None if text == "copy" => Ok(Target::Copy),
            _ => bail!("--target {text}: it is dure:VOLUME, dir:PATH or copy"),
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Target::Volume(target) => &target.name,
            Target::Directory(target) => &target.name,
            Target::Copy => "copy",
        }
    }

    /// The policies it was opened with.
    #[must_use]
    pub fn policy(&self) -> &str {
        match self {
            Target::Volume(target) => &target.policy,
            Target::Directory(_) | Target::Copy => "",
        }
    }

    /// Whether it can do this at all.
    #[must_use]
    pub fn offers(&self, workload: Workload) -> bool {
        !matches!(self, Target::Copy) || matches!(workload, Workload::Overwrite | Workload::Read)
    }

    /// A worker for thread `thread`.
    ///
    /// # Errors
    /// Making its files fails.
    pub fn worker(&self, workload: Workload, thread: usize) -> Result<Box<dyn Worker>> {
        match self {
            Target::Volume(target) => target.worker(workload, thread),
            Target::Directory(target) => target.worker(workload, thread),
            Target::Copy => Ok(Box::new(copy::Copier::new())),
        }
    }

    /// Removes what the runs made.
    ///
    /// # Errors
    /// Removing or closing fails.
    pub fn close(self) -> Result<()> {
        match self {
            Target::Volume(target) => target.close(),
            Target::Directory(target) => target.close(),
            Target::Copy => Ok(()),
        }
    }
}
