//! An inode whose file tasks share: what it has for that, and when it gets it.

use dure_store::units::Mark;
use dure_sync::range_lock::RangeLock;

use super::Files;
use super::sharing::{Overwrites, Sharing};
use super::sync_rounds::SyncRounds;
use crate::inode::{Inode, InodeState};

impl Inode {
    /// The sharing, made if it is not there. The caller holds the inode.
    #[cold]
    pub(super) fn sharing(&self) -> &Sharing {
        self.sharing.get_or_init(Box::default)
    }

    /// What tasks that overwrite the file share; `None`: it is not contended.
    #[inline]
    pub(crate) fn overwrites(&self) -> Option<&Overwrites> {
        self.sharing.get()?.overwrites()
    }

    /// The rounds of its fsyncs; `None`: it is not contended.
    pub(super) fn sync_rounds(&self) -> Option<&SyncRounds> {
        self.sharing.get()?.sync_rounds()
    }

    /// The last operations that overwrote pages under the shared lock and may not be valid yet, one
    /// per journal at most.
    pub(crate) fn overwrite_marks(&self) -> impl Iterator<Item = Mark> {
        let overwrites = self.overwrites().into_iter();
        overwrites.flat_map(|overwrites| overwrites.marks())
    }

    /// An operation that overwrote pages has joined. The caller holds the state shared, and the file
    /// is contended.
    pub(super) fn overwritten(&self, journals: usize, mark: Mark) {
        let overwrites = self.overwrites().expect("the file is contended");
        overwrites.note(journals, mark);
    }

    /// Tasks contend for the file: from now on calls take ranges, and pages may be added under the
    /// shared lock. The caller holds the inode exclusively; without a page cache also the write-back
    /// lock, which it gives up before it changes anything more.
    #[cold]
    pub(super) fn make_contended(&self, _exclusive: &mut InodeState, files: &Files) {
        let config = files.options.range_lock;
        if !config.policy().is_whole_file() {
            let ranges = RangeLock::within(config, &files.inodes.range_words);
            let wait = files.options.range_wait;
            self.sharing().make_contended(ranges, wait);
        }
    }
}
