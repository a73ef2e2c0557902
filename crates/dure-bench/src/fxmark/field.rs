//! The workloads for others that measure: a simulation runs them on cores of its own.

use std::path::PathBuf;

use anyhow::Result;
use dure::Session;

use super::seat::Seat;
use super::workload::Workload;
use super::{lookup, make};
use crate::measure::Worker;
use crate::target::{Io, Tree};

/// How much the workers of a field make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Files that a worker makes before it removes, reads or moves them.
    pub fill: u64,
    /// Bytes between the blocks of two workers in a shared file, which the first one fills: whole
    /// blocks.
    pub region_bytes: u64,
}

/// A directory of a volume, and the workers of a workload in it.
#[derive(Debug)]
pub struct Field {
    tree: Tree,
    workload: Workload,
    count: usize,
    sizes: Sizes,
}

impl Field {
    /// A directory for `count` workers.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(session: Session, workload: Workload, count: usize, sizes: Sizes) -> Result<Field> {
        let tree = Tree::of_volume(session, PathBuf::from("/field"));
        tree.create_dir(tree.root())?;
        Ok(Field {
            tree,
            workload,
            count,
            sizes,
        })
    }

    /// Workers, including one in the background, which has the last number and is not counted.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.count + usize::from(self.workload.has_background())
    }

    /// The worker with a number. The first one makes what is shared, so it is made first; each is to
    /// be made on its core.
    ///
    /// # Errors
    /// Its files cannot be made.
    pub fn worker(&self, number: usize) -> Result<Box<dyn Worker>> {
        let seat = Seat {
            number,
            count: self.count,
            fill: self.sizes.fill,
            // Not by time: MWRM's files are bounded by `fill`.
            fill_ns: 3_600_000_000_000,
            branches: lookup::BRANCHES,
            region: self.sizes.region_bytes,
            io: Io::Buffered,
        };
        make(&self.tree, self.workload, seat)
    }
}
