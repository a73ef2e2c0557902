//! What a file has in memory once tasks share it, or seek in it. Most files never have it.

use dure_store::units::Mark;
use dure_sync::range_lock::RangeLock;
use dure_sync::{OnceLock, PerCoreRwLock};

use super::cached::PendingPages;
use super::direct::StoredTime;
use super::marks::OverwriteMarks;
use super::seek_hint::Stretches;
use crate::inode::{Inode, InodeState};
use crate::ranks::{OVERWRITES, RANGE};
use crate::volume::{RangeWait, Volume};

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
    /// Pages that were added under the shared inode lock.
    pending_pages: PendingPages,
    /// Without a page cache: shared by overwrites, exclusive to all else that changes the map.
    overwrites: PerCoreRwLock<OVERWRITES, ()>,
    /// The operations of these overwrites.
    overwrite_marks: OverwriteMarks,
    /// The time that one of them stored last.
    overwrite_time: StoredTime,
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

    /// The lock of overwrites.
    #[inline]
    pub(crate) fn overwrites(&self) -> Option<&PerCoreRwLock<OVERWRITES, ()>> {
        self.contended().map(|contended| &contended.overwrites)
    }

    fn overwrite_marks(&self) -> Option<&OverwriteMarks> {
        self.contended().map(|contended| &contended.overwrite_marks)
    }

    /// The time of overwrites.
    #[inline]
    pub(super) fn overwrite_time(&self) -> Option<&StoredTime> {
        self.contended().map(|contended| &contended.overwrite_time)
    }

    /// The pages that the state lacks.
    #[inline]
    pub(crate) fn pending_pages(&self) -> Option<&PendingPages> {
        self.contended().map(|contended| &contended.pending_pages)
    }
}

impl Inode {
    /// The sharing, made if it is not there. The caller holds the inode.
    #[cold]
    pub(super) fn sharing(&self) -> &Sharing {
        self.sharing.get_or_init(Box::default)
    }

    /// The last operations that overwrote pages under the shared lock and may not be valid yet, one
    /// per journal at most.
    pub(crate) fn overwrite_marks(&self) -> impl Iterator<Item = Mark> {
        let marks = self
            .sharing
            .get()
            .and_then(|sharing| sharing.overwrite_marks());
        marks.into_iter().flat_map(OverwriteMarks::all)
    }

    /// An operation that overwrote pages has joined. The caller holds the state shared, and the file
    /// is contended.
    pub(super) fn overwritten(&self, journals: usize, mark: Mark) {
        let marks = self
            .sharing
            .get()
            .and_then(|sharing| sharing.overwrite_marks());
        marks.expect("the file is contended").note(journals, mark);
    }

    /// Tasks contend for the file: from now on calls take ranges, and pages may be added under the
    /// shared lock. The caller holds the inode exclusively; without a page cache also the write-back
    /// lock, which it gives up before it changes anything more.
    #[cold]
    pub(super) fn make_contended(&self, _exclusive: &mut InodeState, volume: &Volume) {
        let config = volume.options.range_lock;
        if !config.policy().is_whole_file() {
            self.sharing().contended.get_or_init(|| {
                Box::new(Contended {
                    ranges: RangeLock::within(config, &volume.range_words),
                    wait: volume.options.range_wait,
                    pending_pages: PendingPages::default(),
                    overwrites: PerCoreRwLock::default(),
                    overwrite_marks: OverwriteMarks::default(),
                    overwrite_time: StoredTime::default(),
                })
            });
        }
    }
}
