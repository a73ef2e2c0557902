//! A volume through the library: no kernel crossing at all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure::{File, OpenOptions, Session, Volume};
use dure_block::file::open_file;
use dure_block::share;
use dure_fs::MountOptions;

use super::Worker;
use crate::workload::{FILE_BYTES, IO_BYTES, Workload};

const PLACE: &str = "/dure-bench";

/// An open volume.
#[derive(Debug)]
pub struct VolumeTarget {
    pub(super) name: String,
    pub(super) policy: String,
    volume: Volume,
    session: Session,
}

impl VolumeTarget {
    pub(super) fn open(name: &str, text: &str) -> Result<VolumeTarget> {
        let (path, policy) = text.split_once(',').unwrap_or((text, ""));
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
        let device = open_file(Path::new(path), dure_block::file::OpenOptions::default())?;
        let volume = Volume::open_on(share(device), options).with_context(|| path.to_owned())?;
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

    pub(super) fn worker(&self, workload: Workload, thread: usize) -> Result<Box<dyn Worker>> {
        let directory = Path::new(PLACE).join(format!("t{thread}"));
        self.session.create_dir_all(&directory)?;
        let path = directory.join("file");
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&self.session, &path)?;
        let buffer = vec![0x5a; IO_BYTES];
        for page in 0..FILE_BYTES / 4096 {
            file.write_all_at(&buffer, page * 4096)?;
        }
        file.sync_all()?;
        let new = directory.join("new");
        Ok(Box::new(Calls {
            workload,
            session: self.session.clone(),
            path,
            new,
            file,
            buffer,
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
    path: PathBuf,
    new: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl Worker for Calls {
    fn operate(&mut self, turn: u64) -> Result<()> {
        let offset = turn * 4096 % FILE_BYTES;
        match self.workload {
            Workload::Overwrite => self.file.write_all_at(&self.buffer, offset)?,
            Workload::Read => self.file.read_exact_at(&mut self.buffer, offset)?,
            Workload::Stat => {
                self.session.metadata(&self.path)?;
            }
            Workload::CreateUnlink => {
                let options = OpenOptions::new().write(true).create_new(true);
                drop(options.open(&self.session, &self.new)?);
                self.session.remove_file(&self.new)?;
            }
            Workload::OverwriteFsync => {
                self.file.write_all_at(&self.buffer, offset)?;
                self.file.sync_all()?;
            }
        }
        Ok(())
    }
}
