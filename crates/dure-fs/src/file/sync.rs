//! fsync and sync.
//!
//! **Structure.** The [body](super::body) makes operations of what is pending; commit makes the
//! inode's operations, and what they depend on, durable and valid with one flush. The caller does
//! all of it: nothing is handed to another thread.
//!
//! **Invariants.** Data was written before the operation that names it joined the journal, so the
//! flush of any commit that holds the operation covers the data (rule `flush=one`; recovery checks
//! the CRCs of slots above `durable_upto`). With `flush=two` the data was flushed before the
//! operation joined. **On a crash** after fsync returned, all that was written before it began is
//! there.

use dure_store::error::Result;
use dure_store::format::name::FileKind;
use dure_sync::Arc;

use super::body::Body;
use super::cached::{Extent, Way};
use super::marks::PendingMarks;
use super::sync_rounds::{SyncRounds, Turn};
use crate::file::Files;
use crate::inode::{Inode, InodeRef, InodeState};
use crate::volume::FsyncScope;

/// What fsync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The data, and what it takes to read it back: not the times.
    Data,
    /// Everything about the inode.
    All,
}

impl Files {
    /// The end of a call that has changed the data of a file, and holds no lock any more: what
    /// [`end_call`](dure_store::Store::end_call) does, and with `nvram_absorb=all` the data is in persistent
    /// memory.
    ///
    /// # Errors
    /// Those of [`fsync`](crate::volume::FileSystem::fsync).
    #[inline]
    pub(super) fn end_data_call(&self, inode: &Arc<Inode>) -> Result<()> {
        match self.options.absorbs_all {
            true => self.absorb(inode),
            false => self.store.end_call(),
        }
    }

    /// Puts the data of a file in persistent memory.
    fn absorb(&self, inode: &Arc<Inode>) -> Result<()> {
        self.sync_file(inode, SyncScope::Data)?;
        if self.options.absorbed_leaves_dram {
            self.drop_absorbed_pages(inode);
        }
        Ok(())
    }

    /// See [`FileSystem::fsync`](crate::volume::FileSystem::fsync); the volume is not read-only.
    pub(crate) fn fsync(&self, inode: &InodeRef, scope: SyncScope) -> Result<()> {
        self.store.check_writable()?;
        self.write_back_transaction();
        let shared = inode.inode();
        if inode.kind() == FileKind::File {
            return self.sync_file(shared, scope);
        }
        // Shared: a sync that has nothing to do writes nothing that readers read.
        let marks = shared.state().read().all_marks();
        self.commit_inode(shared, scope, marks)
    }

    fn sync_file(&self, inode: &Arc<Inode>, scope: SyncScope) -> Result<()> {
        match inode.sync_rounds() {
            Some(rounds) if self.body == Body::Cached => self.sync_contended(inode, rounds),
            _ => {
                let marks = self.body.sync(self, inode, scope)?;
                self.commit_inode(inode, scope, marks)
            }
        }
    }

    /// Syncs a file that tasks contend for, times included: they share rounds.
    fn sync_contended(&self, inode: &Arc<Inode>, rounds: &SyncRounds) -> Result<()> {
        if let Some(marks) = self.marks_if_clean(inode) {
            return self.commit_inode(inode, SyncScope::All, marks);
        }
        if rounds.turn(self.options.rules.later_round) == Turn::Covered {
            return Ok(());
        }
        let held = inode.lock_writeback();
        let number = rounds.begin();
        let written = self.write_back_held(inode, Way::Log, Extent::All);
        drop(held);
        let result =
            written.and_then(|written| self.commit_inode(inode, SyncScope::All, written.marks));
        rounds.end(number, result.is_ok());
        result
    }

    /// Makes these operations durable, and the last writers of the inode's granules.
    fn commit_inode(
        &self,
        inode: &Arc<Inode>,
        scope: SyncScope,
        mut marks: PendingMarks,
    ) -> Result<()> {
        if scope == SyncScope::All {
            self.inodes.write_access_time(inode);
        }
        marks.note(inode.attribute_writer());
        marks.note(inode.data_writer());
        inode.overwrite_marks().for_each(|mark| marks.note(mark));
        let marks = marks.pending(|mark| self.store.journal().is_valid(mark));
        if marks.is_empty() {
            return Ok(());
        }
        match self.options.fsync {
            FsyncScope::Closure => self.store.commit(marks),
            FsyncScope::All => self.store.commit_all(),
        }
    }
}

impl InodeState {
    /// The operations that concerned the inode or, in a directory, its entries; apart from the last
    /// writers of its granules.
    fn all_marks(&self) -> PendingMarks {
        let mut marks = self.marks.clone();
        if let Some(directory) = self.if_directory() {
            directory.marks().for_each(|mark| marks.note(mark));
        }
        marks
    }
}
