//! One thread of a point.

use std::path::Path;

use anyhow::{Context, Result};
use dure_block::BlockBuf;
use dure_sync::random::Seeded;

use super::Workload;
use super::deep::Deep;
use crate::measure;
use crate::micro::content;
use crate::target::{How, Io, OpenFile, Tree};

const PAGE_BYTES: u64 = 4096;
/// Bytes of one ordered read or write.
const RUN_BYTES: u64 = 1 << 20;
/// Files of a directory, and the bytes of each.
pub(super) const FILES: u64 = 1000;
const SMALL_BYTES: usize = 6000;
/// Reads at a depth that are begun and ended in one work.
const READS_IN_ONE: u64 = 2048;
/// How many of a hundred calls of a mix are reads.
const READS_PERCENT: u64 = 70;

/// Which of the workers this is, and how long all files are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) bytes: u64,
    pub(super) depth: usize,
}

/// Visits pages in an order without pattern, each once before any twice.
#[derive(Debug)]
struct Visits {
    pages: u64,
    step: u64,
    next: u64,
    /// Between two visits of this worker: those of the others.
    stride: u64,
}

impl Visits {
    /// All workers that share `pages` pages, which are a power of two, together visit each once.
    fn new(pages: u64, number: u64, of: u64) -> Visits {
        assert!(pages.is_power_of_two(), "an odd step reaches every page");
        Visits {
            pages,
            // Odd, and far from a simple fraction of the pages: the golden section.
            step: (u64::MAX / 1_618_034 * 1_000_000 / (u64::MAX / pages)) | 1,
            next: number,
            stride: of,
        }
    }

    fn next(&mut self) -> u64 {
        let page = self.next.wrapping_mul(self.step) % self.pages;
        self.next += self.stride;
        page
    }
}

/// See the module.
pub(super) struct Worker {
    workload: Workload,
    tree: Tree,
    number: usize,
    /// None of files that are made, or are read at a depth.
    file: Option<OpenFile>,
    deep: Option<Deep>,
    bytes: u64,
    visits: Visits,
    random: Seeded,
    buffer: BlockBuf,
    done: u64,
}

impl Worker {
    pub(super) fn new(tree: &Tree, (workload, io): (Workload, Io), part: Part) -> Result<Worker> {
        let (number, of) = (u64::try_from(part.number)?, u64::try_from(part.of)?);
        let shared = workload.is_shared();
        let bytes = if shared { part.bytes } else { part.bytes / of };
        let bytes = prev_power_of_two(bytes.max(RUN_BYTES));
        let pages = bytes / PAGE_BYTES;
        let path = match shared {
            true => tree.path("shared"),
            false => tree.path(&format!("own{number}")),
        };
        let is_first = !shared || number == 0;
        if is_first && workload != Workload::MakeFiles {
            fill(tree, &path, bytes)?;
        }
        let (file, deep) = match workload {
            Workload::MakeFiles => (None, None),
            Workload::RandomReadDeep => (None, Some(Deep::open(tree, &path, part.depth)?)),
            _ => (Some(tree.open_for(&path, How::Write, io)?), None),
        };
        let per_call = match workload {
            Workload::OrderedRead | Workload::OrderedWrite => RUN_BYTES,
            _ => PAGE_BYTES,
        };
        let one = content(part.number);
        let whole = one.repeat(usize::try_from(per_call / PAGE_BYTES)?);
        let (first, stride) = if shared { (number, of) } else { (0, 1) };
        Ok(Worker {
            workload,
            tree: tree.clone(),
            number: part.number,
            file,
            deep,
            bytes,
            visits: Visits::new(pages, first, stride),
            random: Seeded::new(number),
            buffer: BlockBuf::from_slice(&whole),
            done: 0,
        })
    }

    fn file(&self) -> &OpenFile {
        self.file.as_ref().expect("made unless files are made")
    }

    fn ordered(&self) -> u64 {
        self.done * RUN_BYTES % self.bytes
    }

    /// What it makes, of one measurement.
    fn made(&self) -> Tree {
        self.tree.below(&format!("t{}", self.number))
    }

    fn make_files(&self) -> Result<()> {
        let directory = self.made().path(&self.done.to_string());
        make_files(&self.tree, &directory, self.buffer.as_slice())?;
        self.tree.sync()
    }
}

/// Makes a directory of small files with this content, again and again.
pub(super) fn make_files(tree: &Tree, directory: &Path, content: &[u8]) -> Result<()> {
    tree.create_dir(directory)?;
    let bytes: Vec<u8> = content.iter().copied().cycle().take(SMALL_BYTES).collect();
    for n in 0..FILES {
        let file = tree.open(&directory.join(n.to_string()), How::CreateNew)?;
        file.write_at(&bytes, 0)?;
    }
    Ok(())
}

impl measure::Worker for Worker {
    fn prepare(&mut self) -> Result<()> {
        if self.workload != Workload::MakeFiles {
            return Ok(());
        }
        let made = self.made();
        if self.tree.exists(made.root())? {
            made.remove()?;
            self.tree.sync()?;
        }
        self.done = 0;
        self.tree.create_dir(made.root())
    }

    fn operate(&mut self) -> Result<Option<u64>> {
        let mut works = 1;
        match self.workload {
            Workload::RandomRead | Workload::RandomReadOwn => {
                let at = self.visits.next() * PAGE_BYTES;
                let file = self.file.as_ref().context("a file")?;
                file.read_at(self.buffer.as_mut_slice(), at)?;
            }
            Workload::RandomReadDeep => {
                let deep = self.deep.as_ref().context("a file")?;
                let visits = (0..READS_IN_ONE).map(|_| self.visits.next() * PAGE_BYTES);
                deep.read_all(visits)?;
                works = READS_IN_ONE;
            }
            Workload::Mix | Workload::MixOwn => {
                let at = self.visits.next() * PAGE_BYTES;
                let file = self.file.as_ref().context("a file")?;
                if self.random.next_u64() % 100 < READS_PERCENT {
                    file.read_at(self.buffer.as_mut_slice(), at)?;
                } else {
                    file.write_at(self.buffer.as_slice(), at)?;
                }
            }
            Workload::OverwriteFsync => {
                let at = self.visits.next() * PAGE_BYTES;
                self.file().write_at(self.buffer.as_slice(), at)?;
                self.file().sync()?;
            }
            Workload::OrderedRead => {
                let at = self.ordered();
                let file = self.file.as_ref().context("a file")?;
                file.read_at(self.buffer.as_mut_slice(), at)?;
            }
            Workload::OrderedWrite => {
                self.file()
                    .write_at(self.buffer.as_slice(), self.ordered())?;
                if self.ordered() + RUN_BYTES == self.bytes {
                    self.file().sync()?;
                }
            }
            Workload::MakeFiles => {
                self.make_files()?;
                works = FILES;
            }
            Workload::ListCold | Workload::ReadCold | Workload::RemoveCold => {
                unreachable!("done once, not again and again")
            }
        }
        self.done += 1;
        Ok(Some(works))
    }

    fn batch(&self) -> u64 {
        match self.workload {
            Workload::RandomRead | Workload::RandomReadOwn | Workload::Mix | Workload::MixOwn => 8,
            _ => 1,
        }
    }
}

/// Writes a file of `bytes` bytes that no device can compress, and drops it from the kernel's cache.
fn fill(tree: &Tree, path: &Path, bytes: u64) -> Result<()> {
    let file = tree.open(path, How::Truncate)?;
    let mut random = Seeded::new(bytes);
    for at in (0..bytes).step_by(usize::try_from(RUN_BYTES)?) {
        let words = (0..RUN_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes());
        file.write_at(&words.collect::<Vec<_>>(), at)?;
    }
    file.sync()?;
    file.drop_cached()
}

fn prev_power_of_two(bytes: u64) -> u64 {
    1 << bytes.ilog2()
}

#[cfg(test)]
mod tests {
    use super::Visits;

    #[test]
    fn workers_together_visit_each_page_once() {
        let mut seen = vec![0; 256];
        for number in 0..3 {
            let mut visits = Visits::new(256, number, 3);
            (0..85).for_each(|_| seen[usize::try_from(visits.next()).unwrap()] += 1);
        }
        assert_eq!(seen.iter().filter(|&&count| count == 1).count(), 255);
        let mut visits = Visits::new(1 << 18, 0, 1);
        let pages: Vec<_> = (0..100).map(|_| visits.next()).collect();
        let near = |pair: &[u64]| pair[0].abs_diff(pair[1]) < 512;
        assert!(!pages.windows(2).any(near), "{pages:?}");
    }
}
