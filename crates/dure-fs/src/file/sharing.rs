//! What a file has in memory once tasks share it, or seek in it. Most files never have it.

use dure_store::units::Mark;
use dure_sync::range_lock::RangeLock;
use dure_sync::{OnceLock, PerCoreRwLock};

use super::cached::Growth;
use super::direct::StoredTime;
use super::marks::OverwriteMarks;
use super::seek_hint::Stretches;
use super::sync_rounds::SyncRounds;
use crate::file::Files;
use crate::inode::{Inode, InodeState};
use crate::ranks::{OVERWRITES, RANGE};
use crate::volume::RangeWait;

/// See the module. Made once, by a task that holds the inode.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Data and holes, as seeks found them.
    pub(crate) stretches: Stretches,
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

/// Of overwrites without a page cache.
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
}

impl Inode {
    /// The sharing, made if it is not there. The caller holds the inode.
    #[cold]
    pub(super) fn sharing(&self) -> &Sharing {
        self.sharing.get_or_init(Box::default)
    }

    /// What tasks that overwrite the file share; `None`: it is not contended.
    #[inline]
    pub(crate) fn overwrites(&self) -> Option<&Overwrites> {
        let contended = self.sharing.get()?.contended()?;
        Some(&contended.overwrites)
    }

    /// The rounds of its fsyncs; `None`: it is not contended.
    pub(super) fn sync_rounds(&self) -> Option<&SyncRounds> {
        let contended = self.sharing.get()?.contended()?;
        Some(&contended.sync_rounds)
    }

    /// The last operations that overwrote pages under the shared lock and may not be valid yet, one
    /// per journal at most.
    pub(crate) fn overwrite_marks(&self) -> impl Iterator<Item = Mark> {
        let overwrites = self.overwrites().into_iter();
        overwrites.flat_map(|overwrites| overwrites.marks.all())
    }

    /// An operation that overwrote pages has joined. The caller holds the state shared, and the file
    /// is contended.
    pub(super) fn overwritten(&self, journals: usize, mark: Mark) {
        let overwrites = self.overwrites().expect("the file is contended");
        overwrites.marks.note(journals, mark);
    }

    /// Tasks contend for the file: from now on calls take ranges, and pages may be added under the
    /// shared lock. The caller holds the inode exclusively; without a page cache also the write-back
    /// lock, which it gives up before it changes anything more.
    #[cold]
    pub(super) fn make_contended(&self, _exclusive: &mut InodeState, files: &Files) {
        let config = files.options.range_lock;
        if !config.policy().is_whole_file() {
            self.sharing().contended.get_or_init(|| {
                Box::new(Contended {
                    ranges: RangeLock::within(config, &files.inodes.range_words),
                    wait: files.options.range_wait,
                    growth: Growth::default(),
                    overwrites: Overwrites::default(),
                    sync_rounds: SyncRounds::default(),
                })
            });
        }
    }
}
