//! The thread that commits a journal, as that journal and those that wait for it see it.
//!
//! **Problem.** In JBD2 and Z-Journal a thread of its own (kjournald) commits each journal.
//! **Structure.** The file system starts the threads; each makes itself a journal's [`CommitTask`].
//! A task that needs a commit asks, and waits until the journal is durable that far. Without a
//! thread, or if its commit fails, the caller commits.
//!
//! **Invariants.** A task that waits does so until its handle is durable, the thread has failed once
//! since it asked, or has ended: it then tries itself, and gets the error if there is one.
//! **Crash.** Nothing of this is on the medium.

use crate::error::CommitError;
use crate::ids::JournalId;
use crate::journal::{Journal, Settle};

/// The thread of a journal, if it has one.
#[derive(Debug, Default)]
pub(super) struct TaskState {
    has_thread: bool,
    ended: bool,
    /// A handle that a task waits for.
    asked: u64,
    /// Commits of the thread that have failed.
    failures: u64,
}

/// The right of a thread to commit a journal for all others; see [`Journal::commit_task`].
pub struct CommitTask<'j, S: Settle> {
    journal: &'j Journal<S>,
    id: JournalId,
}

impl<S: Settle> std::fmt::Debug for CommitTask<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("CommitTask");
        out.field("journal", &self.id).finish_non_exhaustive()
    }
}

impl<S: Settle> Drop for CommitTask<'_, S> {
    fn drop(&mut self) {
        let log = self.journal.log(self.id);
        log.joined.lock().images.task.has_thread = false;
        log.turned.notify_all();
    }
}

impl<S: Settle> CommitTask<'_, S> {
    /// Waits until a task asks for a commit. `false` once [`Journal::end_commit_tasks`] was called.
    #[must_use]
    pub fn wait(&self) -> bool {
        let log = self.journal.log(self.id);
        let mut joined = log.joined.lock();
        loop {
            let task = &joined.images.task;
            if task.ended {
                return false;
            }
            if task.asked > log.reached.durable() {
                return true;
            }
            joined = log.asked.wait(joined);
        }
    }

    /// Commits what has joined, and looks for what has become valid.
    ///
    /// # Errors
    /// Those of [`Journal::commit`]. Unless a later call succeeds, [`CommitTask::failed`] must be
    /// called.
    pub fn commit(&self) -> Result<(), CommitError> {
        let last = self.journal.log(self.id).joined.lock().next() - 1;
        self.journal.commit_one(self.id, last)
    }

    /// No commit is possible for now: the tasks that wait try themselves.
    pub fn failed(&self) {
        let log = self.journal.log(self.id);
        let mut joined = log.joined.lock();
        joined.images.task.failures += 1;
        joined.images.task.asked = 0;
        drop(joined);
        log.turned.notify_all();
    }
}

impl<S: Settle> Journal<S> {
    /// Makes the caller the thread that commits `journal`, until it drops the result. Only with
    /// [`crate::Records::Image`].
    ///
    /// # Panics
    /// If the journal has one.
    #[must_use]
    pub fn commit_task(&self, journal: JournalId) -> CommitTask<'_, S> {
        let mut joined = self.log(journal).joined.lock();
        let task = &mut joined.images.task;
        assert!(!task.has_thread, "journal {journal}: one thread commits it");
        task.has_thread = true;
        drop(joined);
        CommitTask {
            journal: self,
            id: journal,
        }
    }

    /// Ends all commit tasks, now and later.
    pub fn end_commit_tasks(&self) {
        for log in &self.logs {
            log.joined.lock().images.task.ended = true;
            log.asked.notify_all();
        }
    }

    /// Asks the thread of a journal for a commit up to handle `upto`. `None` if there is no thread,
    /// else what [`Journal::wait_for`] needs.
    pub(super) fn ask(&self, id: JournalId, upto: u64) -> Option<u64> {
        let log = self.log(id);
        let mut joined = log.joined.lock();
        let task = &mut joined.images.task;
        if !task.has_thread {
            return None;
        }
        task.asked = task.asked.max(upto);
        let failures = task.failures;
        drop(joined);
        log.asked.notify_all();
        Some(failures)
    }

    /// Waits for what was asked for. `false`: the thread has not done it, and will not.
    pub(super) fn wait_for(&self, id: JournalId, upto: u64, failures: u64) -> bool {
        let log = self.log(id);
        let mut joined = log.joined.lock();
        while log.reached.durable() < upto {
            let task = &joined.images.task;
            if !task.has_thread || task.failures != failures {
                return false;
            }
            joined = log.turned.wait(joined);
        }
        true
    }
}
