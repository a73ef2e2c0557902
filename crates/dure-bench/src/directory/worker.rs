//! A worker of a directory that grows and shrinks: its own names in the shared directory.

use anyhow::{Context, Result, anyhow, ensure};

use dure_sync::random::Seeded;

use super::TENTHS;
use crate::fxmark::Numbered;
use crate::measure;
use crate::target::{How, Tree};

/// What is done with the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// A tenth of the names becomes files.
    Create,
    /// Stat of names that are there.
    Lookup,
    /// Stat of names that are not there.
    Miss,
    /// The whole directory, as large as it is.
    Read,
    /// Unlink of a tenth of the names, the oldest first.
    Unlink,
}

impl Task {
    pub(super) const ALL: [Task; 5] = [
        Task::Create,
        Task::Lookup,
        Task::Miss,
        Task::Read,
        Task::Unlink,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Task::Create => "create",
            Task::Lookup => "lookup",
            Task::Miss => "lookup-missing",
            Task::Read => "readdir",
            Task::Unlink => "unlink",
        }
    }
}

/// What is done in turn, with the tenth it belongs to.
pub(super) fn stages() -> impl Iterator<Item = (Task, usize)> {
    let growing = [Task::Create, Task::Lookup, Task::Miss, Task::Read];
    let growing = (0..TENTHS).flat_map(move |tenth| growing.map(|task| (task, tenth)));
    growing.chain((0..TENTHS).map(|tenth| (Task::Unlink, tenth)))
}

/// A worker's share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Names of its own.
    pub(super) entries: u64,
    /// Names it looks up in a tenth.
    pub(super) lookups: u64,
    /// Workers that have such a share.
    pub(super) workers: u64,
}

/// Does one stage after the other, one in each measurement.
pub(super) struct Worker {
    tree: Tree,
    share: Share,
    there: Numbered,
    missing: Numbered,
    random: Seeded,
    /// Stages begun.
    begun: usize,
    task: Task,
    /// Operations of the stage still to do.
    left: u64,
    /// Its files: those with numbers `first..next`.
    first: u64,
    next: u64,
}

impl Worker {
    pub(super) fn new(tree: &Tree, number: usize, share: Share) -> Result<Worker> {
        Ok(Worker {
            tree: tree.clone(),
            share,
            there: Numbered::new(tree, &format!("f{number}-"))?,
            missing: Numbered::new(tree, &format!("g{number}-"))?,
            random: Seeded::new(u64::try_from(number)?),
            begun: 0,
            task: Task::Unlink,
            left: 0,
            first: 0,
            next: 0,
        })
    }

    fn is_done(&self) -> Result<()> {
        let (left, task) = (self.left, self.task.name());
        ensure!(left == 0, "{left} names to {task} are left");
        Ok(())
    }

    /// One of its files.
    fn any(&mut self) -> u64 {
        self.first + self.random.below(self.next - self.first)
    }

    /// Reads the whole directory; returns the number of its entries.
    fn read(&self) -> Result<u64> {
        let found = self.tree.list(self.tree.root())?.count(|_| true)?;
        let want = (self.next - self.first) * self.share.workers;
        ensure!(
            found == want,
            "{}: {found} entries, where {want} must be",
            self.tree.root().display()
        );
        Ok(found)
    }
}

impl measure::Worker for Worker {
    fn prepare(&mut self) -> Result<()> {
        self.is_done()?;
        let (task, _) = stages()
            .nth(self.begun)
            .context("begins again at its end")?;
        self.begun = (self.begun + 1) % stages().count();
        self.task = task;
        self.left = match task {
            Task::Create | Task::Unlink => self.share.entries / u64::try_from(TENTHS)?,
            Task::Lookup | Task::Miss => self.share.lookups,
            Task::Read => 1,
        };
        Ok(())
    }

    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut works = 1;
        match self.task {
            Task::Create => {
                let made = self.tree.open(self.there.at(self.next), How::CreateNew);
                // A full file system is no end here, but a failure.
                drop(made.map_err(|error| anyhow!("{error:#}"))?);
                self.next += 1;
            }
            Task::Lookup => {
                let number = self.any();
                self.tree.stat(self.there.at(number))?;
            }
            Task::Miss => {
                let path = self.missing.at(self.random.next_u64() >> 16);
                ensure!(!self.tree.exists(path)?, "{} is there", path.display());
            }
            Task::Read => works = self.read()?,
            Task::Unlink => {
                self.tree.remove_file(self.there.at(self.first))?;
                self.first += 1;
            }
        }
        self.left -= 1;
        Ok(Some(works))
    }

    fn batch(&self) -> u64 {
        if self.task == Task::Read { 1 } else { 64 }
    }

    fn check(&mut self) -> Result<()> {
        self.is_done()?;
        ensure!(self.first == self.next, "all files were unlinked");
        self.read().map(drop)
    }
}
