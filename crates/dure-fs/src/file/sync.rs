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

use super::marks::PendingMarks;
use crate::inode::{InodeRef, InodeState};
use crate::volume::{FileSystem, FsyncScope};

/// What fsync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The data, and what it takes to read it back: not the times.
    Data,
    /// Everything about the inode.
    All,
}

impl FileSystem {
    /// Makes an inode durable. While write-back of one of its pages fails, so does this.
    ///
    /// # Errors
    /// `NoSpace` when pages that were accepted find no room, `Stopped`, device errors.
    pub fn fsync(&self, inode: &InodeRef, scope: SyncScope) -> Result<()> {
        let volume = &self.0;
        if volume.options.read_only {
            return Ok(());
        }
        volume.check_writable()?;
        volume.write_back_transaction();
        let shared = inode.inode();
        let mut marks = if inode.kind() == FileKind::File {
            volume.body.sync(volume, shared, scope)?
        } else {
            // Shared: a sync that has nothing to do writes nothing that readers read.
            shared.state().read().all_marks()
        };
        if scope == SyncScope::All {
            volume.write_access_time(shared);
        }
        // The writers of the inode itself; the others are in the lists.
        marks.note(shared.attribute_writer());
        marks.note(shared.data_writer());
        let marks = marks.pending(|mark| volume.journal().is_valid(mark));
        if marks.is_empty() {
            Ok(())
        } else {
            match volume.options.fsync {
                FsyncScope::Closure => volume.commit(marks),
                FsyncScope::All => volume.commit_all(),
            }
        }
    }

    /// Makes everything that happened before it began durable.
    ///
    /// # Errors
    /// The first failure of a write-back, after all others were tried; `Stopped`.
    pub fn sync(&self) -> Result<()> {
        let volume = &self.0;
        if volume.options.read_only {
            return Ok(());
        }
        volume.check_writable()?;
        volume.write_access_times();
        let written = volume.body.write_back_all(volume);
        volume.commit_all()?;
        written
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
