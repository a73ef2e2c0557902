//! The life of a compound transaction: running, locked, committing.
//!
//! **Problem.** Many tasks that ask for durability at once must not write a transaction each, and a
//! transaction must not close in the middle of operations that have begun in it. **Structure.** As
//! in JBD2, a journal has one running transaction, which handles enter when they begin, and at most
//! one that is being committed. The task that needs the running one committed and finds no other
//! committer becomes the *committer*:
//!
//! | phase | handles that begin | handles that are open | other committers |
//! |---|---|---|---|
//! | running | enter | join when they end | one of them may lock |
//! | locked | wait | are waited for | wait |
//! | committing | enter the next one | none is left in it | wait, then find theirs valid, or lock the next one, with all that joined meanwhile: group commit |
//!
//! A commit closes all journals of its closure at one moment, so it locks all of them, and no other.
//! Open handles may make the closure grow while it waits for them; then it locks more.
//!
//! # Why no task waits for ever
//! **Invariants.**
//! * A task with an open handle takes only locks of ranks above [`HANDLE`]; a task that begins a
//!   handle or commits holds none of these. So an open handle ends without a committer's help.
//! * A committer that needs a journal which has another committer unlocks its own first: so of two
//!   committers that need each other's journals, one goes on.
//! * A locked journal stays locked only until its handles have ended: a full log unlocks it before
//!   the committer makes room.
//!
//! A checkpoint closes transactions without a turn ([`super::close`]): a handle changes nothing
//! before it joins, so what has joined is whole, whichever handle is open.
//!
//! **Crash.** The phases are in memory only.

use dure_sync::{CoreId, HeldRank, MutexGuard};

use super::Guards;
use super::close::Still;
use crate::closure::Closure;
use crate::commit::Slack;
use crate::error::CommitError;
use crate::ids::{JournalId, Mark};
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

/// Journals that have this committer.
pub(crate) struct Turn<'j, S: Settle> {
    journal: &'j Journal<S>,
    of: Vec<JournalId>,
}

impl<S: Settle> Turn<'_, S> {
    fn has(&self, id: JournalId) -> bool {
        self.of.contains(&id)
    }

    fn set_phase(&self, guards: &mut Guards<'_, S::Effect>, phase: Phase) {
        for id in &self.of {
            guards.of(*id).images.phase = phase;
            self.journal.log(*id).turned.notify_all();
        }
    }
}

impl<S: Settle> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        for id in &self.of {
            let log = self.journal.log(*id);
            log.joined.lock().images.phase = Phase::Running;
            log.turned.notify_all();
        }
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

/// What keeps a committer from closing.
enum Obstacle {
    /// The closure needs this journal, too.
    Unlocked(Vec<JournalId>),
    /// Another task commits it.
    Committer(JournalId),
    /// It has open handles.
    Handles(JournalId),
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

    /// Waits until the running transactions that `roots` need can be closed, and closes them.
    /// Nothing if another committer has made all of it valid.
    pub(crate) fn take_turn(
        &self,
        roots: &[Mark],
    ) -> Result<Option<(Turn<'_, S>, Closure)>, CommitError> {
        HeldRank::<HANDLE>::check();
        let mut turn = Turn {
            journal: self,
            of: Vec::new(),
        };
        let mut ids: Vec<JournalId> = roots.iter().map(|root| root.journal()).collect();
        loop {
            self.check_running()?;
            ids.sort_unstable();
            ids.dedup();
            let mut guards = Guards::lock(self, ids.clone());
            let (mut closure, missing) = self.closure_of(&guards, roots);
            if closure.is_empty() {
                drop(guards);
                return Ok(None);
            }
            match turn.lock(&mut guards, &closure, missing) {
                None => {
                    let closed = self.close_covered(&mut guards, &mut closure, Slack::Keep);
                    if closed.is_ok() {
                        turn.set_phase(&mut guards, Phase::Committing);
                    }
                    drop(guards);
                    return closed.map(|()| Some((turn, closure)));
                }
                Some(Obstacle::Unlocked(missing)) => ids.extend(missing),
                Some(Obstacle::Committer(id) | Obstacle::Handles(id)) => {
                    let joined = guards.keep(id);
                    drop(self.log(id).turned.wait(joined));
                }
            }
        }
    }

    /// The closure as far as it can be seen, and the journals that it needs besides those locked.
    fn closure_of(
        &self,
        guards: &Guards<'_, S::Effect>,
        roots: &[Mark],
    ) -> (Closure, Vec<JournalId>) {
        let still = Still::new(self, guards);
        let mut closure = Closure::new(self.logs.len());
        roots.iter().for_each(|root| closure.require(&still, *root));
        closure.extend(&still);
        (closure, still.missing.into_inner())
    }
}

impl<S: Settle> Turn<'_, S> {
    /// Locks what of the closure is running. Returns what is still to be waited for.
    fn lock(
        &mut self,
        guards: &mut Guards<'_, S::Effect>,
        closure: &Closure,
        missing: Vec<JournalId>,
    ) -> Option<Obstacle> {
        if !missing.is_empty() {
            return Some(Obstacle::Unlocked(missing));
        }
        let of = closure.journals();
        let other = |id: &&JournalId| {
            let joined = guards
                .get(**id)
                .expect("the closure lies in what is locked");
            joined.images.phase != Phase::Running && !self.has(**id)
        };
        if let Some(id) = of.iter().find(other).copied() {
            self.set_phase(guards, Phase::Running);
            self.of.clear();
            return Some(Obstacle::Committer(id));
        }
        for id in of {
            if !self.has(*id) && closure.upto(*id) >= guards.of(*id).pending.first {
                guards.of(*id).images.phase = Phase::Locked;
                self.of.push(*id);
            }
        }
        let open = |id: &&JournalId| guards.get(**id).is_some_and(|one| one.images.open > 0);
        self.of.iter().find(open).map(|id| Obstacle::Handles(*id))
    }
}
