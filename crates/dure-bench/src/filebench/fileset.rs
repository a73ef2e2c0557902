//! A set of files that all workers pick from.
//!
//! **Structure.** Every entry has a path, a size, and a state; a worker that picks one holds it
//! until it puts it back, present or absent. **Invariants.** The holder of an entry has its file to
//! itself. Picking examines each entry at most once, starting at a random one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dure_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use dure_sync::random::Seeded;

use super::personality::{SetShape, Size};
use crate::interrupt;
use crate::random::gamma;
use crate::target::{How, OpenFile, Tree};

/// Bytes of a write or read of a whole file at once.
pub(super) const IO_BYTES: usize = 1 << 20;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const HELD: u8 = 2;

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// Bytes it is created with.
    size: u64,
    /// Claimed by the exchange from ABSENT or PRESENT to HELD (Acquire), given back by its holder
    /// (Release), which publishes `len` and the file.
    state: AtomicU8,
    /// Bytes it has. Only its holder writes it; `check` reads it after an Acquire of `state`. Hence
    /// Relaxed.
    len: AtomicU64,
}

/// The set of files.
#[derive(Debug)]
pub(super) struct FileSet {
    pub(super) tree: Tree,
    entries: Vec<Entry>,
}

/// An entry that is held; if dropped without being put back it stays held, as after a failed call.
#[derive(Debug)]
pub(super) struct Pick<'s> {
    set: &'s FileSet,
    entry: &'s Entry,
}

impl FileSet {
    /// Makes the directories and the files that are there at the beginning.
    pub(super) fn make(
        tree: &Tree,
        name: &str,
        shape: SetShape,
        content: &[u8],
    ) -> Result<FileSet> {
        let tree = tree.below(name);
        tree.create_dir_all(tree.root())?;
        let mut random = Seeded::new(1);
        let mut entries = Vec::with_capacity(shape.files);
        for number in 0..shape.files {
            let directory = tree.root().join(directory(number, shape));
            if number < directories(shape) {
                tree.create_dir_all(&directory)?;
            }
            let size = match shape.size {
                Size::Fixed(bytes) => bytes,
                Size::Gamma(mean) => gamma(&mut random, mean),
            };
            entries.push(Entry {
                path: directory.join(format!("{number:08}")),
                size,
                state: AtomicU8::new(ABSENT),
                len: AtomicU64::new(0),
            });
        }
        let set = FileSet { tree, entries };
        for number in 0..shape.files * shape.present_percent / 100 {
            interrupt::check()?;
            let pick = set.take(number, ABSENT).context("nobody else is here")?;
            let file = pick.open(How::CreateNew)?;
            pick.write_whole(&file, content)?;
            pick.put_back();
        }
        Ok(set)
    }

    fn take(&self, number: usize, wanted: u8) -> Option<Pick<'_>> {
        let entry = &self.entries[number];
        // Relaxed: a hint; the exchange decides. Acquire: pairs with the Release of `give`.
        let taken = entry.state.load(Ordering::Relaxed) == wanted
            && entry
                .state
                .compare_exchange(wanted, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then_some(Pick { set: self, entry })
    }

    fn pick(&self, random: &mut Seeded, wanted: u8) -> Option<Pick<'_>> {
        let count = self.entries.len();
        let start = random.index(count);
        (0..count).find_map(|step| self.take((start + step) % count, wanted))
    }

    /// An existing file; `None` if there is none, or other workers hold them all.
    pub(super) fn pick_present(&self, random: &mut Seeded) -> Option<Pick<'_>> {
        self.pick(random, PRESENT)
    }

    /// A file that does not exist; `None` as in `pick_present`.
    pub(super) fn pick_absent(&self, random: &mut Seeded) -> Option<Pick<'_>> {
        self.pick(random, ABSENT)
    }

    /// File number `number`, whether or not another worker uses it.
    pub(super) fn path(&self, number: usize) -> &Path {
        &self.entries[number].path
    }

    /// Whether exactly the files exist that must, with the length they must have.
    pub(super) fn check(&self) -> Result<()> {
        for entry in &self.entries {
            let state = entry.state.load(Ordering::Acquire);
            let there = self.tree.exists(&entry.path)?;
            let shown = entry.path.display();
            ensure!(state != HELD, "{shown} was never put back");
            ensure!(there == (state == PRESENT), "{shown}: there: {there}");
            if there {
                let want = entry.len.load(Ordering::Relaxed);
                let found = self.tree.stat(&entry.path)?;
                ensure!(found == want, "{shown} has {found} bytes, not {want}");
            }
        }
        Ok(())
    }
}

/// Levels of directories above the files, enough that none has many more entries than the width.
fn levels(shape: SetShape) -> usize {
    let (mut levels, mut room) = (0, shape.width);
    while room < shape.files / 2 {
        room *= shape.width;
        levels += 1;
    }
    levels
}

/// Directories that hold files.
fn directories(shape: SetShape) -> usize {
    (0..levels(shape)).map(|_| shape.width).product()
}

fn directory(number: usize, shape: SetShape) -> PathBuf {
    let mut rest = number;
    (0..levels(shape))
        .map(|_| {
            let branch = rest % shape.width;
            rest /= shape.width;
            branch.to_string()
        })
        .collect()
}

impl Pick<'_> {
    pub(super) fn path(&self) -> &Path {
        &self.entry.path
    }

    pub(super) fn open(&self, how: How) -> Result<OpenFile> {
        self.set.tree.open(&self.entry.path, how)
    }

    fn len(&self) -> u64 {
        self.entry.len.load(Ordering::Relaxed)
    }

    /// The size it is created with, in large writes.
    pub(super) fn write_whole(&self, file: &OpenFile, content: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < self.entry.size {
            let count = usize::try_from(self.entry.size - at)?.min(content.len());
            file.write_at(&content[..count], at)?;
            at += u64::try_from(count)?;
        }
        self.entry.len.store(at, Ordering::Relaxed);
        Ok(())
    }

    /// The file was created and is empty.
    pub(super) fn begin(&self) {
        self.entry.len.store(0, Ordering::Relaxed);
    }

    /// Appends.
    pub(super) fn append(&self, file: &OpenFile, content: &[u8]) -> Result<()> {
        let end = self.len();
        if !content.is_empty() {
            file.write_at(content, end)?;
        }
        let end = end + u64::try_from(content.len())?;
        self.entry.len.store(end, Ordering::Relaxed);
        Ok(())
    }

    /// Reads all of it in large reads.
    pub(super) fn read_whole(&self, file: &OpenFile, buffer: &mut [u8]) -> Result<()> {
        let mut at = 0;
        loop {
            let count = file.read_some_at(buffer, at)?;
            at += u64::try_from(count)?;
            if count < buffer.len() {
                break;
            }
        }
        let want = self.len();
        ensure!(at == want, "{at} of {want} bytes were read");
        Ok(())
    }

    /// Deletes the file; the entry is absent from then on.
    pub(super) fn delete(self) -> Result<()> {
        self.set.tree.remove_file(&self.entry.path)?;
        self.give(ABSENT);
        Ok(())
    }

    /// The file exists from then on.
    pub(super) fn put_back(self) {
        self.give(PRESENT);
    }

    fn give(&self, state: u8) {
        assert_eq!(self.entry.state.load(Ordering::Relaxed), HELD, "held");
        // Release: pairs with the Acquire in `take`; the file and its length are there.
        self.entry.state.store(state, Ordering::Release);
    }
}
