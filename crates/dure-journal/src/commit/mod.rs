//! Commit: the caller writes the prefixes of its closure and flushes once.
//!
//! **Problem.** Durability must cost the core that asks for it, and no other. **Structure.** (1)
//! the closure over marks, (2) journal by journal in ascending order: take the prefix under
//! `writer` and `joined` ([`prefix`]), write it under `writer` only ([`write`]), (3) check
//! the closure again, since another committer may have written a longer prefix of a journal, whose
//! last handles have marks of their own, (4) one flush ([`flush`]), (5) validity.
//!
//! **Invariants.** While a prefix is written, new handles join after it. Log writes of one journal
//! are serial: each completes before the next is issued. Nothing is retried after an error.
//!
//! **Crash.** Before the flush completes, any subset of the writes may be on the medium: recovery
//! keeps those that are closed under marks. After it, all of them are on the medium.

mod flush;
mod prefix;
mod write;

use dure_block::Lba;
use dure_sync::current_core;

use crate::closure::Closure;
use crate::error::{CommitError, StopCause, StopReason};
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::records::Records;
use crate::trace::TraceEvent;
use crate::units::{to_u32, to_u64};

type Result<T> = std::result::Result<T, CommitError>;

/// A point in time: the last handle that had joined in each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    last: Vec<u64>,
}

impl Cut {
    pub(crate) fn new(last: Vec<u64>) -> Self {
        Self { last }
    }

    /// The last handle number of `journal` that belongs to the cut.
    #[must_use]
    pub fn last(&self, journal: JournalId) -> u64 {
        self.last[journal.index()]
    }

    fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        let numbered = self
            .last
            .iter()
            .enumerate()
            .filter(|(_, number)| **number > 0);
        numbered.map(|(index, number)| Mark::new(JournalId::from_index(index), *number))
    }
}

/// Whether a commit may use the slack of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slack {
    /// It must leave room for all reservations.
    Keep,
    /// It is a checkpoint's commit, after which the tail moves.
    Use,
}

impl<S: Settle> Journal<S> {
    /// Makes the handles that `marks` name durable, with all they depend on. When it returns, they
    /// are valid and settled.
    ///
    /// # Errors
    /// [`CommitError::LogFull`]: checkpoint and commit again. [`CommitError::Stopped`].
    pub fn commit(&self, marks: &[Mark]) -> Result<()> {
        self.commit_roots(marks.iter().copied(), Slack::Keep)
    }

    /// The last joined handle of every journal. Compound transactions that run are closed here: later handles join new ones.
    #[must_use]
    pub fn cut(&self) -> Cut {
        match self.records {
            Records::Delta | Records::None => self.last_joined(),
            Records::Image { .. } => self.close_cut(),
        }
    }

    pub(crate) fn last_joined(&self) -> Cut {
        Cut {
            last: self
                .logs
                .iter()
                .map(|log| log.joined.lock().next() - 1)
                .collect(),
        }
    }

    /// Commits everything up to the cut, for the checkpoint: it may use the slack of the log, so it
    /// does not fail for lack of space. At most twice per [`Journal::checkpoint_done`].
    ///
    /// # Errors
    /// [`CommitError::Stopped`]; [`CommitError::LogFull`] only if called more often.
    pub fn commit_cut(&self, cut: &Cut) -> Result<()> {
        self.commit_checkpoint(cut, &[])
    }

    /// Like [`Journal::commit_cut`], together with the last writers of what the checkpoint copied,
    /// which may have joined after the cut.
    ///
    /// # Errors
    /// Those of [`Journal::commit_cut`].
    pub fn commit_checkpoint(&self, cut: &Cut, last_writers: &[Mark]) -> Result<()> {
        self.commit_roots(cut.marks().chain(last_writers.iter().copied()), Slack::Use)?;
        // Crash scenario without this: another committer has made a handle of the cut valid and is
        // about to settle its effects. The checkpoint finds nothing to commit, writes the space map
        // without them, and its tail passes the handle: after a crash nothing records that its
        // blocks are in use.
        for log in &self.logs {
            self.settle_journal(log);
        }
        Ok(())
    }

    /// Commits everything that has joined.
    ///
    /// # Errors
    /// Those of [`Journal::commit`].
    pub fn commit_all(&self) -> Result<()> {
        self.commit_roots(self.last_joined().marks(), Slack::Keep)
    }

    /// Commits what has joined in these journals, and all it depends on. Compound transactions: only
    /// what has joined in these journals, which may become valid later.
    ///
    /// # Errors
    /// Those of [`Journal::commit`].
    pub fn commit_joined(&self, journals: &[JournalId]) -> Result<()> {
        if matches!(self.records, Records::Image { .. }) {
            self.check_running()?;
            return self.commit_journals(journals);
        }
        let last = |journal: &JournalId| {
            let number = self.logs[journal.index()].joined.lock().next() - 1;
            (number > 0).then(|| Mark::new(*journal, number))
        };
        self.commit_roots(journals.iter().filter_map(last), Slack::Keep)
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stopped() {
            Some(reason) => Err(CommitError::Stopped(reason)),
            None => Ok(()),
        }
    }

    /// Stops the journal; returns the error to report, which names the first reason.
    fn stop_for(
        &self,
        cause: StopCause,
        place: Option<(JournalId, Lba)>,
        error: &dure_block::Error,
    ) -> CommitError {
        let reason = StopReason {
            cause,
            journal: place.map(|(journal, _)| journal),
            at: place.map(|(_, at)| at),
            detail: error.to_string(),
        };
        self.stop(reason.clone());
        CommitError::Stopped(self.stopped().unwrap_or(reason))
    }

    fn commit_roots(&self, roots: impl Iterator<Item = Mark>, slack: Slack) -> Result<()> {
        self.check_running()?;
        if matches!(self.records, Records::Image { .. }) {
            return match slack {
                Slack::Keep => self.commit_images(roots),
                Slack::Use => self.commit_at_once(&roots.collect::<Vec<Mark>>(), slack),
            };
        }
        let mut closure = Closure::new(self.logs.len());
        for root in roots {
            closure.require(self, root);
        }
        if closure.is_empty() {
            return Ok(());
        }
        if !self.rules.closure.holds() {
            return self.commit_without_closure(&closure, slack);
        }
        let core = self.journal_of(current_core());
        self.trace.record(Some(core), || TraceEvent::CommitBegin);
        closure.extend(self);
        let mut wrote_ns = None;
        loop {
            for journal in closure.journals() {
                let wrote = self.write_upto(*journal, closure.upto(*journal), slack)?;
                wrote_ns = wrote.or(wrote_ns);
            }
            // Crash scenario: another committer wrote handles 1 to 9 of a journal in one
            // transaction, this closure needs 7. A crash now leaves the transaction without what 8
            // and 9 depend on; it is cut back, and 7 with it. So 8 and 9 belong to this closure.
            if !self.rules.recheck.holds() || !closure.recheck(self) {
                break;
            }
        }
        self.end_commit(&closure, wrote_ns)
    }

    /// Counts a commit by a task of the core of journal `core`. Returns its number of journals.
    #[inline]
    pub(crate) fn count_commit(&self, core: JournalId, closure: &Closure) -> usize {
        let tallies = self.commit_tallies(core);
        tallies.commits.add_shared(1);
        let journals = closure.journals().len();
        tallies.journals.add_shared(to_u64(journals));
        journals
    }

    /// Flushes a written closure, and makes it valid.
    fn end_commit(&self, closure: &Closure, wrote_ns: Option<u64>) -> Result<()> {
        let core = self.journal_of(current_core());
        let journals = self.count_commit(core, closure);
        let ns = self.flush(closure, wrote_ns)?;
        self.advance_valid(closure, ns);
        self.trace.record(Some(core), || TraceEvent::CommitEnd {
            journals: to_u32(journals),
        });
        Ok(())
    }

    /// Test-only: writes and flushes only the roots' own prefixes, not what they depend on.
    fn commit_without_closure(&self, closure: &Closure, slack: Slack) -> Result<()> {
        for journal in closure.journals() {
            self.write_upto(*journal, closure.upto(*journal), slack)?;
        }
        self.flush(closure, None).map(|_| ())
    }
}
