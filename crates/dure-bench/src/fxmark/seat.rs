//! One worker's place in a crew, and the names of its files.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dure_sync::clock;
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::target::{How, Io, Tree, is_full};

/// The place of a worker in its crew, and how much it may create before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat {
    /// Its number, from 0: the first one makes what is shared.
    pub(super) number: usize,
    /// Workers that count. The one in the background, if there is one, has this number.
    pub(super) count: usize,
    /// Files or blocks it makes at most.
    pub(super) fill: u64,
    /// For how long it makes files where the original does so for the length of a measurement.
    pub(super) fill_ns: u64,
    /// Branches of each directory of the shared tree, ten at most.
    pub(super) branches: u32,
    /// Bytes between the blocks of two workers in a shared file.
    pub(super) region: u64,
    /// How the content of files is moved.
    pub(super) io: Io,
}

impl Seat {
    /// Its number, for offsets and names.
    pub(super) fn id(self) -> u64 {
        u64::try_from(self.number).expect("workers are few")
    }

    pub(super) fn is_leader(self) -> bool {
        self.number == 0
    }

    /// Whether this is the worker in the background.
    pub(super) fn is_background(self) -> bool {
        self.number == self.count
    }

    /// The seats of those that count.
    pub(super) fn counted(self) -> impl Iterator<Item = Seat> {
        (0..self.count).map(move |number| Seat { number, ..self })
    }

    /// Blocks that leave half of the room to others; the workers share the rest.
    pub(super) fn blocks_max(self, tree: &Tree) -> Result<u64> {
        let count = u64::try_from(self.count).context("workers are few")?;
        Ok(tree.room_bytes()? / 2 / count / 4096)
    }

    /// The worker's own directory.
    pub(super) fn own(self, tree: &Tree) -> Tree {
        tree.below(&self.number.to_string())
    }

    /// Makes the worker's own directory.
    pub(super) fn private(self, tree: &Tree) -> Result<Tree> {
        let own = self.own(tree);
        tree.create_dir(own.root())?;
        Ok(own)
    }
}

/// Paths that differ in the number at their end.
#[derive(Debug)]
pub(crate) struct Numbered {
    text: String,
    base: usize,
}

impl Numbered {
    pub(crate) fn new(tree: &Tree, prefix: &str) -> Result<Numbered> {
        let path: PathBuf = tree.path(prefix);
        let text = path.to_str().context("a path in UTF-8")?.to_owned();
        let base = text.len();
        Ok(Numbered { text, base })
    }

    #[inline]
    pub(crate) fn at(&mut self, number: u64) -> &Path {
        self.text.truncate(self.base);
        write!(self.text, "{number}").expect("a String takes all");
        Path::new(&self.text)
    }
}

/// Files of one worker in one directory: those with numbers `first..next` are there.
#[derive(Debug)]
pub(super) struct Files {
    tree: Tree,
    prefix: String,
    names: Numbered,
    first: u64,
    next: u64,
    side: PathBuf,
}

impl Files {
    /// No files yet, in the directory `tree`.
    pub(super) fn new(tree: &Tree, seat: Seat) -> Result<Files> {
        let prefix = format!("f{}-", seat.number);
        Ok(Files {
            names: Numbered::new(tree, &prefix)?,
            side: tree.path(&format!("warm{}", seat.number)),
            tree: tree.clone(),
            prefix,
            first: 0,
            next: 0,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.next - self.first
    }

    /// Creates the next one and writes `content` if there is any.
    #[inline]
    pub(super) fn create(&mut self, content: &[u8]) -> Result<()> {
        create(&self.tree, self.names.at(self.next), content)?;
        self.next += 1;
        Ok(())
    }

    /// Unlinks the oldest; whether there was one.
    #[inline]
    pub(super) fn unlink(&mut self) -> Result<bool> {
        if self.count() == 0 {
            return Ok(false);
        }
        self.tree.remove_file(self.names.at(self.first))?;
        self.first += 1;
        Ok(true)
    }

    /// Takes over the files that another worker has made.
    pub(super) fn adopt(&mut self) -> Result<()> {
        let prefix = self.prefix.as_bytes();
        let found = self.tree.list(self.tree.root())?;
        self.next = found.count(|name| name.starts_with(prefix))?;
        Ok(())
    }

    /// Unlinks file number `number` of those that are there.
    pub(super) fn unlink_one(&mut self, number: u64) -> Result<()> {
        self.tree.remove_file(self.names.at(number))
    }

    /// Creates it again.
    pub(super) fn create_again(&mut self, number: u64) -> Result<()> {
        create(&self.tree, self.names.at(number), &[])
    }

    /// The last one is not counted any more; returns its number.
    pub(super) fn unlink_last(&mut self) -> Result<()> {
        assert!(self.count() > 0, "there is a file to unlink");
        self.tree.remove_file(self.names.at(self.next - 1))?;
        self.next -= 1;
        Ok(())
    }

    /// Creates and unlinks one that is not counted.
    pub(super) fn create_and_unlink(&mut self, content: &[u8]) -> Result<()> {
        create(&self.tree, &self.side, content)?;
        self.tree.remove_file(&self.side)
    }

    /// Empty files until there are `most`, until the time, or until there is no room.
    pub(super) fn fill(&mut self, most: u64, until_ns: u64) -> Result<()> {
        while self.count() < most && clock::monotonic_ns() < until_ns {
            interrupt::check()?;
            match self.create(&[]) {
                Ok(()) => (),
                Err(error) if is_full(&error) && self.count() > 1 => return self.unlink_last(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether exactly those files are there that should be.
    pub(super) fn check(&self) -> Result<()> {
        let found = self.tree.list(self.tree.root())?;
        let found = found.count(|name| name.starts_with(self.prefix.as_bytes()))?;
        let want = self.count();
        anyhow::ensure!(
            found == want,
            "{}: {found} files named {}..., where {want} must be",
            self.tree.root().display(),
            self.prefix
        );
        Ok(())
    }
}

#[inline]
fn create(tree: &Tree, path: &Path, content: &[u8]) -> Result<()> {
    let file = tree.open(path, How::CreateNew)?;
    if content.is_empty() {
        return Ok(());
    }
    file.write_at(content, 0)
}
