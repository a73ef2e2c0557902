//! One user: picks jobs of the mix at random, each as often as the mix has it, and runs them.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use dure_sync::random::Seeded;

use super::mix::{Mix, Test};
use crate::measure::Worker;
use crate::target::{How, Listing, OpenFile, Tree};

/// Bytes of every read and write.
const UNIT: usize = 1 << 10;
/// Directories and all entries of the tree of sources.
const SOURCE_DIRECTORIES: u64 = 25;
const SOURCE_ENTRIES: u64 = 346;
/// How many names of a list of a hundred are only looked at; the others are created.
const NAMES_LOOKED_AT: u64 = 57;
const NAMES: u64 = 100;
/// Entries of the directory that is read where AIM7 reads /bin.
const BIN_ENTRIES: u64 = 1000;
const ENTRIES_READ: u64 = 10_000;

/// Whether the tests make the file system durable before and after, as AIM7 does unless told not
/// to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncs {
    Kept,
    LeftOut,
}

/// A user.
pub(super) struct User {
    tree: Tree,
    mix: Mix,
    syncs: Syncs,
    number: usize,
    /// KiB of a file, and I/Os of a test.
    count: u64,
    jobs: Vec<Test>,
    random: Seeded,
    buffer: Vec<u8>,
    content: Vec<u8>,
    names: u64,
    done: u64,
}

/// Makes what all users share.
pub(super) fn make_shared(tree: &Tree, kib: u64) -> Result<()> {
    let file = tree.open(&tree.path("tmpa.common"), How::CreateNew)?;
    let content = crate::micro::content(0);
    for at in 0..kib {
        file.write_at(&content[..UNIT], at << 10)?;
    }
    let sources = tree.below("fakeh");
    tree.create_dir(sources.root())?;
    for number in 0..SOURCE_DIRECTORIES {
        tree.create_dir(&sources.path(&format!("d{number}")))?;
    }
    for number in 0..SOURCE_ENTRIES - SOURCE_DIRECTORIES {
        tree.open(&source(&sources, number), How::CreateNew)?;
    }
    let bin = tree.below("bin");
    tree.create_dir(bin.root())?;
    (0..BIN_ENTRIES).try_for_each(|number| {
        tree.open(&bin.path(&number.to_string()), How::CreateNew)
            .map(drop)
    })
}

fn source(sources: &Tree, number: u64) -> PathBuf {
    let directory = number % SOURCE_DIRECTORIES;
    sources.path(&format!("d{directory}/f{number}.h"))
}

impl User {
    pub(super) fn new(
        tree: &Tree,
        (mix, syncs): (Mix, Syncs),
        number: usize,
        kib: u64,
    ) -> Result<User> {
        if number == 0 {
            make_shared(tree, kib)?;
        }
        Ok(User {
            tree: tree.clone(),
            mix,
            syncs,
            number,
            count: kib,
            jobs: Vec::new(),
            random: Seeded::new(u64::try_from(number)? + 1),
            buffer: vec![0; UNIT],
            content: crate::micro::content(number)[..UNIT].to_vec(),
            names: 0,
            done: 0,
        })
    }

    fn sync(&self) -> Result<()> {
        match self.syncs {
            Syncs::Kept => self.tree.sync(),
            Syncs::LeftOut => Ok(()),
        }
    }

    /// A name that no other user has.
    fn unique(&mut self) -> PathBuf {
        self.names += 1;
        self.tree
            .path(&format!("tmp-{}-{}", self.number, self.names))
    }

    fn write_all(&self, file: &OpenFile, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| file.write(&self.content))
    }

    /// `count` reads or writes at random places of `blocks` KiB.
    fn at_random(
        &mut self,
        count: u64,
        blocks: u64,
        mut io: impl FnMut(&mut [u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        for _ in 0..count {
            let at = self.random.below(blocks) << 10;
            io(&mut self.buffer, &self.content, at)?;
        }
        Ok(())
    }

    /// Creates a file of `count` KiB and closes it.
    fn written(&mut self, count: u64) -> Result<PathBuf> {
        let path = self.unique();
        let file = self.tree.open(&path, How::CreateNew)?;
        self.write_all(&file, count)?;
        ensure!(
            file.len()? == count << 10,
            "a file of {count} KiB was written"
        );
        Ok(path)
    }

    fn disk_write(&mut self) -> Result<()> {
        let path = self.unique();
        let file = self.tree.open(&path, How::CreateNew)?;
        self.sync()?;
        self.write_all(&file, self.count)?;
        ensure!(file.len()? == self.count << 10, "all writes arrived");
        self.tree.remove_file(&path)?;
        drop(file);
        self.sync()
    }

    fn disk_read(&mut self, test: Test) -> Result<()> {
        let count = self.count;
        let path = self.written(count)?;
        self.sync()?;
        let file = self.tree.open(&path, How::Read)?;
        if test == Test::DiskRead {
            for at in 0..count {
                file.read_at(&mut self.buffer, at << 10)?;
            }
        } else {
            self.at_random(count, count, |buffer, _, at| file.read_at(buffer, at))?;
        }
        ensure!(self.buffer == self.content, "what was read was written");
        drop(file);
        self.sync()?;
        self.tree.remove_file(&path)
    }

    fn disk_rewrite(&mut self) -> Result<()> {
        let count = self.count;
        let path = self.written(count)?;
        self.sync()?;
        let file = self.tree.open(&path, How::Write)?;
        self.at_random(count, count, |_, content, at| file.write_at(content, at))?;
        self.tree.remove_file(&path)?;
        drop(file);
        self.sync()
    }

    /// From the file all share.
    fn copy(&mut self, count: u64, how: How) -> Result<()> {
        let common = self.tree.open(&self.tree.path("tmpa.common"), How::Read)?;
        let path = self.unique();
        let file = self.tree.open(&path, how)?;
        if how == How::CreateNew {
            self.sync()?;
        }
        for at in 0..count {
            common.read_at(&mut self.buffer, at << 10)?;
            file.write(&self.buffer)?;
        }
        ensure!(file.len()? == count << 10, "all of it was copied");
        self.tree.remove_file(&path)
    }

    fn disk_copy(&mut self) -> Result<()> {
        self.sync()?;
        self.copy(self.count, How::CreateNew)?;
        self.sync()
    }

    fn disk_source(&mut self) -> Result<()> {
        let sources = self.tree.below("fakeh");
        let mut list: Vec<u64> = (0..NAMES).collect();
        shuffle(&mut list, &mut self.random);
        for number in list {
            if number < NAMES_LOOKED_AT {
                self.tree.stat(&source(&sources, number * 5))?;
            } else {
                let directory = number % SOURCE_DIRECTORIES;
                let name = format!("d{directory}/c{number}-{}", self.number);
                let path = sources.path(&name);
                drop(self.tree.open(&path, How::Truncate)?);
                self.tree.remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn sync_write(&mut self) -> Result<()> {
        let path = self.unique();
        let file = self.tree.open(&path, How::TruncateDurable)?;
        self.write_all(&file, self.count / 2)?;
        drop(file);
        self.tree.remove_file(&path)
    }

    fn sync_rewrite(&mut self) -> Result<()> {
        let count = self.count / 2;
        let path = self.written(count)?;
        let file = self.tree.open(&path, How::Durable)?;
        self.at_random(count, count, |_, content, at| file.write_at(content, at))?;
        drop(file);
        self.tree.remove_file(&path)
    }

    /// Reads at random, and writes what follows.
    fn sync_update(&mut self) -> Result<()> {
        let path = self.written(self.count)?;
        let file = self.tree.open(&path, How::Durable)?;
        self.at_random(self.count / 2, self.count - 1, |buffer, _, at| {
            file.read_at(buffer, at)?;
            file.write_at(buffer, at + (1 << 10))
        })?;
        drop(file);
        self.tree.remove_file(&path)
    }

    fn create_close(&mut self) -> Result<()> {
        let path = self.unique();
        for _ in 0..1000 {
            drop(self.tree.open(&path, How::Truncate)?);
        }
        self.tree.remove_file(&path)
    }

    fn link(&mut self) -> Result<()> {
        let first = self.unique();
        drop(self.tree.open(&first, How::CreateNew)?);
        let links: Vec<_> = (0..7).map(|_| self.unique()).collect();
        for link in &links {
            self.tree.link(&first, link)?;
        }
        for _ in 0..9 {
            for link in &links {
                self.tree.remove_file(link)?;
                self.tree.link(&first, link)?;
            }
        }
        for path in links.iter().chain([&first]) {
            self.tree.remove_file(path)?;
        }
        Ok(())
    }

    fn read_directory(&mut self) -> Result<()> {
        let bin = self.tree.path("bin");
        let mut listing: Option<Listing> = None;
        let mut read = 0;
        while read < ENTRIES_READ {
            let open = match &mut listing {
                Some(open) => open,
                None => listing.insert(self.tree.list(&bin)?),
            };
            match open.read(|_| ())? {
                Some(entries) => read += entries,
                None => listing = None,
            }
        }
        Ok(())
    }
}

fn shuffle<T>(list: &mut [T], random: &mut Seeded) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.index(last + 1));
    }
}

impl Worker for User {
    fn operate(&mut self) -> Result<Option<u64>> {
        if self.jobs.is_empty() {
            self.jobs = self.mix.jobs();
            shuffle(&mut self.jobs, &mut self.random);
        }
        let test = self.jobs.pop().expect("a mix has jobs");
        match test {
            Test::DiskWrite => self.disk_write()?,
            Test::DiskRead | Test::DiskReadRandom => self.disk_read(test)?,
            Test::DiskRewriteRandom => self.disk_rewrite()?,
            Test::DiskCopy => self.disk_copy()?,
            Test::DiskSource => self.disk_source()?,
            Test::SyncWrite => self.sync_write()?,
            Test::SyncRewriteRandom => self.sync_rewrite()?,
            Test::SyncCopy => self.copy(self.count / 2, How::TruncateDurable)?,
            Test::SyncUpdate => self.sync_update()?,
            Test::CreateClose => self.create_close()?,
            Test::Link => self.link()?,
            Test::ReadDirectory => self.read_directory()?,
        }
        self.done += 1;
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        1
    }

    /// Every test removes what it made.
    fn check(&mut self) -> Result<()> {
        ensure!(self.done > 0, "a user did nothing");
        let prefix = format!("tmp-{}-", self.number);
        let left = self.tree.list(self.tree.root())?;
        let left = left.count(|name| name.starts_with(prefix.as_bytes()))?;
        ensure!(left == 0, "{left} files of user {} are left", self.number);
        Ok(())
    }
}
