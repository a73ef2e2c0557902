//! Pages in the running transaction: `data=journal` with the protocols of JBD2 and Z-Journal.
//!
//! **Problem.** In these a buffered write is an operation of the journal: it takes write access to
//! its pages in the running transaction, and its commit commits the pages. That is where
//! writers of different files meet in one journal, and do not with one per core. **Structure.** A
//! step of a write enters the running transaction of its partition's journal before it locks the
//! inode, and leaves it when the pages are dirty and their file is on the partition's list. A commit
//! writes the files on the lists of its journal into the log first ([`super::writeback`]).
//!
//! **Invariants.** No step waits for room or for memory while it has access: that may take a commit.
//! **Crash.** As without: a page is old or new.

use dure_journal::{Order, WriteAccess};
use dure_store::Settler;

use crate::file::Files;

impl Files {
    /// Enters the running transaction, if pages are to join one. May wait for a commit that waits
    /// for open handles: the caller holds no inode lock.
    #[inline]
    pub(super) fn write_access(&self) -> Option<WriteAccess<'_, Settler>> {
        self.options
            .pages_join
            .then(|| self.store.journal().write_access(self.store.partition()))
    }

    /// Writes what has joined the running transaction of this task's journal into the log, before
    /// it commits it. A file whose write-back fails stays dirty, and its own fsync reports that.
    pub(in crate::file) fn write_back_transaction(&self) {
        if self.options.pages_join {
            let _ = match self.options.order {
                Order::Single => self.write_back_all(),
                Order::PerCore => self.write_back_list(self.store.partition(), &mut 0),
            };
        }
    }
}
