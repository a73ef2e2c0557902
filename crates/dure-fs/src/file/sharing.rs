//! What a file has in memory once tasks share it, or seek in it. Most files never have it.

use dure_store::units::Mark;
use dure_sync::range_lock::RangeLock;
use dure_sync::{CachePadded, OnceLock, PerCoreRwLock};

use super::cached::Growth;
use super::marks::OverwriteMarks;
use super::seek_hint::Stretches;
use super::stored_time::StoredTime;
use super::sync_rounds::SyncRounds;
use crate::ranks::{OVERWRITES, RANGE};
use crate::volume::RangeWait;

/// See the module. Made once, by a task that holds the inode.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Data and holes, as seeks found them. Every write of the file changes them, and changes of its
    /// attributes read the line below.
    pub(crate) stretches: CachePadded<Stretches>,
    /// Set by a holder of the exclusive inode lock; stays as long as the inode is in memory.
    contended: OnceLock<Box<Contended>>,
}

/// What a file has for which tasks contend.
#[derive(Debug)]
struct Contended {
    /// Ranks before the locks of the inode.
    ranges: RangeLock<RANGE>,
    /// What a task does that finds its range taken.
    wait: RangeWait,
    /// What was added under the shared inode lock.
    growth: Growth,
    overwrites: Overwrites,
    sync_rounds: SyncRounds,
}

/// What overwrites without a page cache share.
#[derive(Debug, Default)]
pub(crate) struct Overwrites {
    /// Shared by them, exclusive to all else that changes the map.
    pub(crate) lock: PerCoreRwLock<OVERWRITES, ()>,
    /// Their operations.
    marks: OverwriteMarks,
    /// The time that one of them stored last.
    pub(super) time: StoredTime,
}

impl Sharing {
    fn contended(&self) -> Option<&Contended> {
        self.contended.get().map(|contended| &**contended)
    }

    /// Tasks contend for the file. The caller holds the inode exclusively.
    pub(super) fn make_contended(&self, ranges: RangeLock<RANGE>, wait: RangeWait) {
        self.contended.get_or_init(|| {
            Box::new(Contended {
                ranges,
                wait,
                growth: Growth::default(),
                overwrites: Overwrites::default(),
                sync_rounds: SyncRounds::default(),
            })
        });
    }

    /// The range lock, and how it is taken.
    #[inline]
    pub(super) fn ranges(&self) -> Option<(&RangeLock<RANGE>, RangeWait)> {
        self.contended()
            .map(|contended| (&contended.ranges, contended.wait))
    }

    /// What the state lacks.
    #[inline]
    pub(crate) fn growth(&self) -> Option<&Growth> {
        self.contended().map(|contended| &contended.growth)
    }

    /// What overwrites without a page cache share; `None`: the file is not contended.
    #[inline]
    pub(super) fn overwrites(&self) -> Option<&Overwrites> {
        self.contended().map(|contended| &contended.overwrites)
    }

    /// Rounds of fsyncs.
    pub(super) fn sync_rounds(&self) -> Option<&SyncRounds> {
        self.contended().map(|contended| &contended.sync_rounds)
    }
}

impl Overwrites {
    /// Their last operations that may not be valid yet.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.marks.all()
    }

    /// One of them has joined the log of one of `journals` journals.
    pub(super) fn note(&self, journals: usize, mark: Mark) {
        self.marks.note(journals, mark);
    }
}
