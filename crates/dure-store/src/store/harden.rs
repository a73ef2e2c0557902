//! Operations that are durable before they release their locks: `durability=strict`.
//!
//! **Problem.** In persistent memory a record is durable after a copy and a fence. A call that waits
//! for no device has no reason to promise less when it returns than an fsync would.
//! **Structure.** An operation that has joined commits its journal up to itself while it holds its
//! granules ([`Store::harden`]). All that it depends on was committed likewise, so its closure is
//! its own journal's prefix. A call ends with [`Store::end_call`], which says what went wrong.
//!
//! # Invariants
//! A commit needs no lock of a rank below that of granules. It may find the log full: then a
//! checkpoint is needed, which waits for granules, so the operation is *late*, and the call that
//! finds a late one, its own at least, commits all before it returns.
//!
//! **On a crash** a call that has returned is there wholly; of one under way those of its operations
//! whose record was fenced.

use dure_journal::CommitError;
use dure_sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::error::Result;
use crate::options::Durability;
use crate::units::Mark;

/// Operations that were not durable when they released their locks.
#[derive(Debug, Default)]
pub(crate) struct LateOperations {
    /// How many there were.
    found: AtomicU64,
    /// How many of them are durable by now.
    durable: AtomicU64,
}

impl Store {
    /// When what a call has done is durable.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// The operation of `mark` has joined; with `durability=strict` it is durable when this returns,
    /// unless it is late or the volume has stopped. The caller may hold inodes and granules.
    ///
    /// Crash scenario without this: a create returns, and the power fails before the next commit:
    /// the file is not there.
    #[inline]
    pub(crate) fn harden(&self, mark: Mark) {
        if self.options.durability == Durability::Strict {
            self.commit_now(mark);
        }
    }

    #[inline(never)]
    fn commit_now(&self, mark: Mark) {
        if !self.options.store_rules.strict_joins.holds() {
            return;
        }
        match self.journal().commit(&[mark]) {
            // What became valid contradicts the space map: `end_call` says that it stopped.
            Ok(()) => drop(self.check_space()),
            Err(CommitError::LogFull(_)) => {
                // Release: pairs with the Acquire in `end_call`; a task that sees it commits the
                // operation.
                self.late.found.fetch_add(1, Ordering::Release);
            }
            Err(error) => drop(self.stopped_by_journal(&error)),
        }
    }

    /// Operations that were not durable when they released their locks, and how many of them are by
    /// now.
    pub fn late_operations(&self) -> (u64, u64) {
        let LateOperations { found, durable } = &self.late;
        (
            found.load(Ordering::Acquire),
            durable.load(Ordering::Acquire),
        )
    }

    /// The end of a call that has changed something, and holds no lock any more: with
    /// `durability=strict` all of it is durable when this returns.
    ///
    /// # Errors
    /// `Stopped`, and what a checkpoint reports: then it is not known whether the change survives a
    /// crash.
    #[inline]
    pub fn end_call(&self) -> Result<()> {
        match self.options.durability {
            Durability::Posix => Ok(()),
            Durability::Strict => self.commit_late(),
        }
    }

    #[inline(never)]
    fn commit_late(&self) -> Result<()> {
        // Acquire: pairs with the Release below; so many were committed.
        let (found, durable) = self.late_operations();
        if durable < found {
            self.commit_all()?;
            self.late.durable.fetch_max(found, Ordering::Release);
        }
        self.check_running()
    }
}
