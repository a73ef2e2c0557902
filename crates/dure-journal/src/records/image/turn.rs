//! The life of a compound transaction: running, locked, committing.
//!
//! **Problem.** Many tasks that ask for durability at once must not write a transaction each, and a
//! transaction must not close in the middle of operations that have begun in it. **Structure.** As
//! in JBD2, a journal has one running transaction, which handles enter when they begin, and at most
//! one that is being committed, by its *committer*: its thread, or a task if there is no thread or
//! it failed:
//!
//! | phase | handles that begin | handles that are open | other committers |
//! |---|---|---|---|
//! | running | enter | join when they end | one of them may lock |
//! | locked | wait | are waited for | wait |
//! | committing | enter the next one | none is left in it | wait, then find theirs durable, or lock the next one, with all that joined meanwhile: group commit |
//!
//! All of this is about one journal: others go on, and commit at the same time.
//!
//! # Why no task waits for ever
//! **Invariants.**
//! * A task with an open handle takes only locks of ranks above [`HANDLE`]; a task that begins a
//!   handle or commits holds none of these. So an open handle ends without a committer's help.
//! * A committer has one journal, and waits for no other while it has it.
//! * A locked journal stays locked only until its handles have ended: a full log unlocks it before
//!   the committer makes room.
//!
//! A checkpoint closes transactions without a turn ([`super::close`]): a handle changes nothing
//! before it joins, so what has joined is whole, whichever handle is open.
//!
//! **Crash.** The phases are in memory only.

use dure_sync::{CoreId, HeldRank, MutexGuard};

use crate::error::CommitError;
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, HANDLE, JOINED, Joined};
use crate::records::Records;

/// How far the committer of a journal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none.
    Running,
    /// It waits for open handles.
    Locked,
    /// It writes.
    Committing,
}

/// What a handle holds while it is open, if committers wait for handles.
pub(crate) type OpenHandle = Option<HeldRank<HANDLE>>;

/// A journal that has this committer.
pub(super) struct Turn<'l, E> {
    log: &'l CoreLog<E>,
    /// The last handle that is closed.
    pub(super) upto: u64,
}

impl<E> Turn<'_, E> {
    fn set(&self, joined: &mut Joined<E>, phase: Phase) {
        joined.images.phase = phase;
        self.log.turned.notify_all();
    }
}

impl<E> Drop for Turn<'_, E> {
    fn drop(&mut self) {
        let mut joined = self.log.joined.lock();
        self.set(&mut joined, Phase::Running);
    }
}

/// A change of memory that commits are to find whole, and that logs nothing itself: file data on
/// its way into the log. Ends when it is dropped.
pub struct WriteAccess<'j, S: Settle> {
    journal: &'j Journal<S>,
    log: &'j CoreLog<S::Effect>,
    _open: OpenHandle,
}

impl<S: Settle> std::fmt::Debug for WriteAccess<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("WriteAccess");
        out.field("journal", &self.log.id).finish_non_exhaustive()
    }
}

impl<S: Settle> Drop for WriteAccess<'_, S> {
    fn drop(&mut self) {
        let mut joined = self.log.joined.lock();
        self.journal.end_handle(self.log, &mut joined);
    }
}

type Joining<'l, E> = MutexGuard<'l, JOINED, Joined<E>>;

impl<S: Settle> Journal<S> {
    /// Enters the running transaction of a journal: waits while it is locked.
    pub(crate) fn start_handle<'l>(
        &self,
        log: &'l CoreLog<S::Effect>,
    ) -> (Joining<'l, S::Effect>, OpenHandle) {
        if !matches!(self.records, Records::Image { .. }) {
            return (log.joined.lock(), None);
        }
        let open = HeldRank::new();
        let mut joined = log.joined.lock();
        while joined.images.phase == Phase::Locked {
            joined = log.turned.wait(joined);
        }
        joined.images.open += 1;
        (joined, Some(open))
    }

    /// Enters the running transaction of the journal of `core`, as a handle that logs nothing. Waits
    /// while it is locked: the caller holds no lock that a task may want which has a handle open.
    #[must_use]
    pub fn write_access(&self, core: CoreId) -> WriteAccess<'_, S> {
        let log = self.log(self.journal_of(core));
        let (_, open) = self.start_handle(log);
        WriteAccess {
            journal: self,
            log,
            _open: open,
        }
    }

    /// Leaves it.
    pub(crate) fn end_handle(&self, log: &CoreLog<S::Effect>, joined: &mut Joined<S::Effect>) {
        if !matches!(self.records, Records::Image { .. }) {
            return;
        }
        let images = &mut joined.images;
        images.open -= 1;
        if images.open == 0 && images.phase == Phase::Locked {
            log.turned.notify_all();
        }
    }

    /// Waits until the running transaction of a journal can be closed, and closes it. Nothing if
    /// another committer has made all up to `upto` durable.
    pub(super) fn take_turn<'l>(
        &self,
        log: &'l CoreLog<S::Effect>,
        upto: u64,
    ) -> Result<Option<Turn<'l, S::Effect>>, CommitError> {
        HeldRank::<HANDLE>::check();
        let mut joined = log.joined.lock();
        while joined.images.phase != Phase::Running && log.reached.durable() < upto {
            joined = log.turned.wait(joined);
        }
        if log.reached.durable() >= upto {
            return Ok(None);
        }
        let mut turn = Turn { log, upto };
        turn.set(&mut joined, Phase::Locked);
        while upto >= joined.pending.first && joined.images.open > 0 {
            joined = log.turned.wait(joined);
        }
        // Else a checkpoint has closed it.
        let runs = upto >= joined.pending.first;
        let closed = match self.check_running() {
            Ok(()) if runs => self.close_one(log, &mut joined),
            other => other,
        };
        turn.set(&mut joined, Phase::Committing);
        turn.upto = joined.pending.first - 1;
        drop(joined);
        closed.map(|()| Some(turn))
    }
}
