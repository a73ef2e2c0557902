//! What is measured: a volume through the library, a directory through system calls, a device by itself,
//! or a plain copy.

mod copy;
mod directory;
mod raw;
mod volume;

use std::path::Path;

use anyhow::{Result, bail};

use crate::workload::Workload;

pub(crate) use volume::options_of;

/// One thread's share of a workload: everything opened, ready to loop.
pub trait Worker: Send {
    /// Does the operation once; `turn` counts up.
    ///
    /// # Errors
    /// The operation's.
    fn operate(&mut self, turn: u64) -> Result<()>;
}

/// What a volume has counted so far.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Bytes written to the logs, in whole blocks.
    pub log_bytes: u64,
    /// Flushes that were asked for.
    pub flushes: u64,
    /// Flushes that reached the device.
    pub device_flushes: u64,
}

impl Counts {
    /// Adds what was counted between two moments.
    pub(crate) fn add(&mut self, before: &Counts, after: &Counts) {
        self.log_bytes += after.log_bytes - before.log_bytes;
        self.flushes += after.flushes - before.flushes;
        self.device_flushes += after.device_flushes - before.device_flushes;
    }
}

/// Something that can be measured.
#[derive(Debug)]
pub enum Target {
    /// A volume, through the library.
    Volume(volume::VolumeTarget),
    /// A directory of a mounted file system.
    Directory(directory::DirectoryTarget),
    /// A device or file by itself.
    Raw(raw::RawTarget),
    /// A plain copy of 4 KiB.
    Copy,
}

impl Target {
    /// Opens a target named as on the command line.
    ///
    /// # Errors
    /// An unknown kind of target, or one that cannot be opened.
    pub fn open(text: &str) -> Result<Target> {
        Target::named(text, text)
    }

    /// Opens the target `text` under another name.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn named(name: &str, text: &str) -> Result<Target> {
        match text.split_once(':') {
            Some(("dure", rest)) => Ok(Target::Volume(volume::VolumeTarget::open(name, rest)?)),
            Some(("dir", path)) => Ok(Target::Directory(directory::DirectoryTarget::open(
                name,
                Path::new(path),
            )?)),
            Some(("raw", rest)) => Ok(Target::Raw(raw::RawTarget::open(name, rest)?)),
            None if text == "copy" => Ok(Target::Copy),
            _ => bail!("--target {text}: it is dure:VOLUME, dir:PATH, raw:PATH or copy"),
        }
    }

    /// A volume on an open device.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn volume(
        name: &str,
        policy: &str,
        device: dure_sync::Arc<dyn dure_block::Device>,
    ) -> Result<Target> {
        let volume = volume::VolumeTarget::open_on(name, policy, device)?;
        Ok(Target::Volume(volume))
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Target::Volume(target) => &target.name,
            Target::Directory(target) => &target.name,
            Target::Raw(target) => &target.name,
            Target::Copy => "copy",
        }
    }

    /// The policies it was opened with.
    #[must_use]
    pub fn policy(&self) -> &str {
        match self {
            Target::Volume(target) => &target.policy,
            _ => "",
        }
    }

    /// Whether it can do this at all.
    #[must_use]
    pub fn offers(&self, workload: Workload) -> bool {
        match self {
            Target::Volume(_) | Target::Directory(_) => true,
            Target::Raw(_) => raw::RawTarget::offers(workload),
            Target::Copy => matches!(workload, Workload::Overwrite | Workload::Read),
        }
    }

    /// What it has counted, if it counts.
    #[must_use]
    pub fn counts(&self) -> Option<Counts> {
        match self {
            Target::Volume(target) => Some(target.counts()),
            _ => None,
        }
    }

    /// A worker for thread `thread`.
    ///
    /// # Errors
    /// Making its files fails.
    pub fn worker(&self, workload: Workload, thread: usize) -> Result<Box<dyn Worker>> {
        match self {
            Target::Volume(target) => target.worker(workload, thread),
            Target::Directory(target) => target.worker(workload, thread),
            Target::Raw(target) => target.worker(thread),
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
            Target::Raw(_) | Target::Copy => Ok(()),
        }
    }
}
