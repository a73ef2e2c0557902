//! What a file has in memory once tasks share it, or seek in it. Most files never have it.

use dure_sync::OnceLock;
use dure_sync::range_lock::RangeLock;

use super::cached::PendingPages;
use super::seek_hint::Stretches;
use crate::inode::{Inode, InodeState};
use crate::ranks::RANGE;
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

    /// Tasks contend for the file: from now on calls take ranges, and pages may be added under the
    /// shared lock. The caller holds the inode exclusively.
    #[cold]
    pub(super) fn make_contended(&self, _exclusive: &mut InodeState, volume: &Volume) {
        let config = volume.options.range_lock;
        if !config.policy().is_whole_file() {
            self.sharing().contended.get_or_init(|| {
                Box::new(Contended {
                    ranges: RangeLock::within(config, &volume.range_words),
                    wait: volume.options.range_wait,
                    pending_pages: PendingPages::default(),
                })
            });
        }
    }
}
