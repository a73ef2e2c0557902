//! A volume through the library: no kernel crossing at all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure::{File, OpenOptions, Session, Volume};
use dure_block::file::open_file;
use dure_block::{Device, share};
use dure_fs::MountOptions;
use dure_sync::Arc;

use super::{Counts, Worker};
use crate::workload::{APPEND_BYTES, CREATED_FILES, FILE_BYTES, SHARED_PARTS, Workload, content};

const PLACE: &str = "/dure-bench";

/// An open volume.
#[derive(Debug)]
pub struct VolumeTarget {
    pub(super) name: String,
    pub(super) policy: String,
    volume: Volume,
    session: Session,
}

/// Mount options from `key=value` policies with commas between them.
pub(crate) fn options_of(name: &str, policy: &str) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    for option in policy.split(',').filter(|option| !option.is_empty()) {
        let set = match option.split_once('=') {
            Some((key, value)) => options.set_policy(key, value).map_err(anyhow::Error::msg)?,
            None => false,
        };
        if !set {
            bail!("--target {name}: unknown option '{option}'");
        }
    }
    Ok(options)
}

impl VolumeTarget {
    pub(super) fn open(name: &str, text: &str) -> Result<VolumeTarget> {
        let (path, policy) = text.split_once(',').unwrap_or((text, ""));
        options_of(name, policy)?;
        let device = open_file(Path::new(path), dure_block::file::OpenOptions::default())?;
        VolumeTarget::open_on(name, policy, share(device)).with_context(|| path.to_owned())
    }

    pub(super) fn open_on(
        name: &str,
        policy: &str,
        device: Arc<dyn Device>,
    ) -> Result<VolumeTarget> {
        let volume = Volume::open_on(device, options_of(name, policy)?)?;
        let session = volume.root();
        if session.exists(PLACE)? {
            session.remove_dir_all(PLACE)?;
        }
        session.create_dir(PLACE)?;
        Ok(VolumeTarget {
            name: name.to_owned(),
            policy: policy.to_owned(),
            volume,
            session,
        })
    }

    pub(super) fn counts(&self) -> Counts {
        let activity = self.volume.file_system().activity();
        let blocks: u64 = activity.journals.iter().map(|journal| journal.blocks).sum();
        Counts {
            log_bytes: blocks * 4096,
            flushes: activity.device.flush_requests,
            device_flushes: activity.device.device_flushes,
        }
    }

    pub(super) fn worker(&self, workload: Workload, thread: usize) -> Result<Box<dyn Worker>> {
        let directory = Path::new(PLACE).join(format!("t{thread}"));
        self.session.create_dir_all(&directory)?;
        let number = u64::try_from(thread).context("threads are few")?;
        let (path, from) = match workload {
            Workload::OverwriteShared => (
                Path::new(PLACE).join("shared"),
                number % SHARED_PARTS * FILE_BYTES,
            ),
            _ => (directory.join("file"), 0),
        };
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&self.session, &path)?;
        let buffer = content(thread);
        for page in 0..FILE_BYTES / 4096 {
            file.write_all_at(&buffer, from + page * 4096)?;
        }
        file.sync_all()?;
        for n in 0..CREATED_FILES {
            let old = directory.join(format!("n{n}"));
            if self.session.exists(&old)? {
                self.session.remove_file(&old)?;
            }
        }
        Ok(Box::new(Calls {
            workload,
            session: self.session.clone(),
            directory,
            path,
            file,
            from,
            buffer,
            done: 0,
        }))
    }

    pub(super) fn close(self) -> Result<()> {
        self.session.remove_dir_all(PLACE)?;
        self.volume.close()?;
        Ok(())
    }
}

struct Calls {
    workload: Workload,
    session: Session,
    directory: PathBuf,
    path: PathBuf,
    file: File,
    /// Where the thread's part of the file begins.
    from: u64,
    buffer: Vec<u8>,
    /// Operations so far, in all repetitions.
    done: u64,
}

impl Calls {
    fn create_and_sync(&mut self) -> Result<()> {
        let path = self
            .directory
            .join(format!("n{}", self.done % CREATED_FILES));
        if self.done >= CREATED_FILES {
            self.session.remove_file(&path)?;
        }
        let options = OpenOptions::new().write(true).create_new(true);
        let file = options.open(&self.session, &path)?;
        file.write_all_at(&self.buffer, 0)?;
        file.sync_all()?;
        Ok(())
    }
}

impl Worker for Calls {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let offset = self.from + turn * 4096 % FILE_BYTES;
        match self.workload {
            Workload::Overwrite | Workload::OverwriteShared => {
                self.file.write_all_at(&self.buffer, offset)?;
            }
            Workload::Read => self.file.read_exact_at(&mut self.buffer, offset)?,
            Workload::Stat => {
                self.session.metadata(&self.path)?;
            }
            Workload::CreateUnlink => {
                let path = self.directory.join("new");
                let options = OpenOptions::new().write(true).create_new(true);
                drop(options.open(&self.session, &path)?);
                self.session.remove_file(&path)?;
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
