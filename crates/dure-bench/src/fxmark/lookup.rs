//! MRPL, MRPM, MRPH: stat of a path five deep.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use dure_sync::random::Seeded;

use super::seat::Seat;
use super::workload::Workload;
use crate::measure::Worker;
use crate::target::{How, Tree};

/// Levels of the shared tree; the last one are files.
const DEPTH: usize = 5;
/// Branches of each directory there, as the original has them.
pub(super) const BRANCHES: u32 = 8;

pub(super) fn make(tree: &Tree, workload: Workload, seat: Seat) -> Result<Box<dyn Worker>> {
    let path = if workload == Workload::Mrpl {
        let own = seat.private(tree)?;
        grow(&own, &own.path(""), DEPTH - 1, 1)?;
        own.path("0/0/0/0")
    } else {
        if seat.is_leader() {
            grow(tree, &tree.path(""), DEPTH, seat.branches)?;
        }
        tree.path("0/0/0/0/0")
    };
    let tree = tree.clone();
    if seat.is_background() {
        return Ok(Box::new(Changer {
            tree,
            branches: u64::from(seat.branches),
            random: Seeded::new(seat.id()),
        }));
    }
    if matches!(workload, Workload::Mrpm | Workload::MrpmBg) {
        return Ok(Box::new(Random {
            tree,
            path: path.into_os_string().into_string().ok().context("UTF-8")?,
            branches: seat.branches,
            state: u32::try_from(seat.number)?,
            found: 0,
        }));
    }
    let found = 0;
    Ok(Box::new(Same { tree, path, found }))
}

/// Makes `levels` levels of `branches` branches below `path`.
fn grow(tree: &Tree, path: &std::path::Path, levels: usize, branches: u32) -> Result<()> {
    for branch in 0..branches {
        let below = path.join(branch.to_string());
        if levels == 1 {
            // One byte, so that a stat that found nothing shows.
            tree.open(&below, How::CreateNew)?.write_at(b"l", 0)?;
        } else {
            tree.create_dir(&below)?;
            grow(tree, &below, levels - 1, branches)?;
        }
    }
    Ok(())
}

/// Looks up one leaf again and again.
struct Same {
    tree: Tree,
    path: PathBuf,
    /// Size of what was found last.
    found: u64,
}

impl Worker for Same {
    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        self.found = self.tree.stat(&self.path)?;
        Ok(Some(1))
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.found == 1, "stat found no leaf");
        Ok(())
    }
}

/// A leaf by chance, with the numbers of the original. Their low bits come again after eight
/// steps, so that a worker sees eight leaves only.
struct Random {
    tree: Tree,
    path: String,
    branches: u32,
    state: u32,
    found: u64,
}

impl Worker for Random {
    #[inline]
    fn operate(&mut self) -> Result<Option<u64>> {
        self.path.truncate(self.path.len() - 2 * DEPTH);
        for _ in 0..DEPTH {
            self.state = self.state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let digit = char::from_digit(self.state % self.branches, 10);
            self.path.push('/');
            self.path.push(digit.expect("a digit"));
        }
        self.found = self.tree.stat(self.path.as_ref())?;
        Ok(Some(1))
    }

    fn check(&mut self) -> Result<()> {
        ensure!(self.found == 1, "stat found no leaf");
        Ok(())
    }
}

/// MRPM_bg: a file with a name of its own, at a random depth of the tree, is created, or unlinked if
/// it is there.
struct Changer {
    tree: Tree,
    branches: u64,
    random: Seeded,
}

/// Added to the digit that names a file of the background; no branch has such a name.
const CHANGED_BASE: u64 = 1000;

impl Worker for Changer {
    fn operate(&mut self) -> Result<Option<u64>> {
        let mut path = self.tree.path("");
        for _ in 0..self.random.index(DEPTH) {
            path.push(self.random.below(self.branches).to_string());
        }
        path.push((CHANGED_BASE + self.random.below(self.branches)).to_string());
        if self.tree.exists(&path)? {
            self.tree.remove_file(&path)?;
        } else {
            drop(self.tree.open(&path, How::CreateNew)?);
        }
        Ok(Some(1))
    }

    fn batch(&self) -> u64 {
        8
    }
}
