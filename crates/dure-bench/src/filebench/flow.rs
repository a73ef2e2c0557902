//! The loops of fileserver, varmail, webserver and webproxy. A loop is one operation; its works are
//! Filebench's flowops.

use anyhow::{Result, ensure};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use dure_sync::random::Seeded;

use super::fileset::{FileSet, IO_BYTES, Pick};
use super::personality::Personality;
use crate::measure::Worker;
use crate::target::{How, OpenFile};

/// An append writes at most so much.
const APPEND_BYTES: usize = 16 << 10;

/// What the workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) files: FileSet,
    /// Bytes the workers have appended to the log since it was emptied. Each adds its own when it
    /// is checked, one after the other; hence Relaxed.
    pub(super) appended: AtomicU64,
    /// Workers that have not been checked yet, likewise.
    pub(super) unchecked: AtomicUsize,
    /// What is written.
    pub(super) content: Vec<u8>,
}

/// One thread of a server.
pub(super) struct Flow {
    personality: Personality,
    shared: Arc<Shared>,
    /// The log of webserver; each worker has opened it by itself.
    log: Option<OpenFile>,
    /// Bytes this worker has appended to it since it was emptied.
    appended: u64,
    random: Seeded,
    buffer: Vec<u8>,
    is_first: bool,
    works: u64,
}

impl Flow {
    pub(super) fn new(
        personality: Personality,
        shared: Arc<Shared>,
        number: usize,
    ) -> Result<Flow> {
        let log = if personality == Personality::Webserver {
            let tree = &shared.files.tree;
            Some(tree.open(&tree.path("log"), How::Append)?)
        } else {
            None
        };
        Ok(Flow {
            personality,
            shared,
            log,
            appended: 0,
            random: Seeded::new(u64::try_from(number)? + 7),
            buffer: vec![0; IO_BYTES],
            is_first: number == 0,
            works: 0,
        })
    }

    /// Uniform below 16 KiB.
    fn append(&mut self, pick: &Pick<'_>, file: &OpenFile) -> Result<()> {
        let count = self.random.index(APPEND_BYTES);
        pick.append(file, &self.shared.content[..count])
    }

    /// open, read the whole file, close.
    fn read_one(&mut self, shared: &Shared) -> Result<u64> {
        let Some(pick) = shared.files.pick_present(&mut self.random) else {
            return Ok(0);
        };
        let file = pick.open(How::Read)?;
        pick.read_whole(&file, &mut self.buffer)?;
        drop(file);
        pick.put_back();
        Ok(3)
    }

    fn delete_one(&mut self, shared: &Shared) -> Result<u64> {
        let Some(pick) = shared.files.pick_present(&mut self.random) else {
            return Ok(0);
        };
        pick.delete()?;
        Ok(1)
    }

    fn fileserver(&mut self, shared: &Shared) -> Result<u64> {
        let mut works = 0;
        if let Some(pick) = shared.files.pick_absent(&mut self.random) {
            let file = pick.open(How::CreateNew)?;
            pick.write_whole(&file, &shared.content)?;
            drop(file);
            pick.put_back();
            works += 3;
        }
        if let Some(pick) = shared.files.pick_present(&mut self.random) {
            let file = pick.open(How::Write)?;
            self.append(&pick, &file)?;
            drop(file);
            pick.put_back();
            works += 3;
        }
        works += self.read_one(shared)?;
        works += self.delete_one(shared)?;
        if let Some(pick) = shared.files.pick_present(&mut self.random) {
            shared.files.tree.stat(pick.path())?;
            pick.put_back();
            works += 1;
        }
        Ok(works)
    }

    /// create, append, perhaps fsync, close.
    fn create_and_append(&mut self, shared: &Shared) -> Result<u64> {
        let Some(pick) = shared.files.pick_absent(&mut self.random) else {
            return Ok(0);
        };
        let file = pick.open(How::CreateNew)?;
        pick.begin();
        self.append(&pick, &file)?;
        let syncs = self.personality == Personality::Varmail;
        if syncs {
            file.sync()?;
        }
        drop(file);
        pick.put_back();
        Ok(3 + u64::from(syncs))
    }

    fn varmail(&mut self, shared: &Shared) -> Result<u64> {
        let mut works = self.delete_one(shared)?;
        works += self.create_and_append(shared)?;
        if let Some(pick) = shared.files.pick_present(&mut self.random) {
            let file = pick.open(How::Write)?;
            pick.read_whole(&file, &mut self.buffer)?;
            self.append(&pick, &file)?;
            file.sync()?;
            drop(file);
            pick.put_back();
            works += 5;
        }
        Ok(works + self.read_one(shared)?)
    }

    fn webserver(&mut self, shared: &Shared) -> Result<u64> {
        let mut works = 0;
        for _ in 0..10 {
            works += self.read_one(shared)?;
        }
        let count = self.random.index(APPEND_BYTES);
        if let Some(log) = &self.log
            && count > 0
        {
            log.write(&shared.content[..count])?;
            self.appended += u64::try_from(count)?;
        }
        Ok(works + 1)
    }

    fn webproxy(&mut self, shared: &Shared) -> Result<u64> {
        let mut works = self.delete_one(shared)?;
        works += self.create_and_append(shared)?;
        for _ in 0..5 {
            works += self.read_one(shared)?;
        }
        Ok(works)
    }
}

impl Worker for Flow {
    /// Every measurement begins with an empty log.
    fn prepare(&mut self) -> Result<()> {
        self.appended = 0;
        match &self.log {
            Some(log) if self.is_first => log.set_len(0),
            _ => Ok(()),
        }
    }

    fn operate(&mut self) -> Result<Option<u64>> {
        let shared = Arc::clone(&self.shared);
        let works = match self.personality {
            Personality::Fileserver => self.fileserver(&shared)?,
            Personality::Varmail => self.varmail(&shared)?,
            Personality::Webserver => self.webserver(&shared)?,
            _ => self.webproxy(&shared)?,
        };
        self.works += works;
        Ok(Some(works))
    }

    fn batch(&self) -> u64 {
        1
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.works > 0, "a worker did nothing");
        let shared = &self.shared;
        shared.appended.fetch_add(self.appended, Ordering::Relaxed);
        if shared.unchecked.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Ok(());
        }
        shared.files.check()?;
        if let Some(log) = &self.log {
            let appended = shared.appended.load(Ordering::Relaxed);
            let found = log.len()?;
            // An append that found too little room may have left a part.
            ensure!(found >= appended, "{found} of {appended} bytes of the log");
        }
        Ok(())
    }
}
