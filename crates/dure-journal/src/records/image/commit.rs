//! Commits of compound transactions: one journal at a time, until all that a task needs is valid.
//!
//! **Problem.** The transaction that an fsync needs is valid only with those it marks, these with
//! those they mark; and cores must not commit one after another, nor at one moment. **Structure.**
//! A task asks the journals of all that it needs and that is not durable to commit, each by a
//! thread of its own if it has one ([`super::task`]), and waits; then it walks over the marks
//! ([`super::walk`]). What it needs may mark what began meanwhile, so it does this in rounds.
//!
//! # A chain that goes on
//! The released Z-Journal waits for one commit of each journal, and returns for what a crash takes
//! away (model case I6). To go on until all is valid may take for ever: each round's transactions
//! share buffers with those that run next. So after [`ROUNDS_MAX`] rounds all close at one moment
//! (case I6b), as for a checkpoint: counted as [`crate::LogStatistics::commits_at_once`].
//!
//! **Invariants.** A commit returns when its roots are valid; only that of some journals
//! ([`Journal::commit_joined`]) does not wait for that. **Crash.** What a crash leaves of the
//! transactions is cut back by the marks.

use dure_sync::{HeldRank, current_core};

use crate::closure::{Closure, MarkSource};
use crate::commit::{Cut, Slack};
use crate::error::CommitError;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::HANDLE;
use crate::trace::TraceEvent;
use crate::units::to_u32;

type Result<T> = std::result::Result<T, CommitError>;

/// Rounds of commits of single journals before all close at one moment.
const ROUNDS_MAX: u32 = 8;

/// The marks of what had joined at some time.
struct Before<'j, S: Settle> {
    journal: &'j Journal<S>,
    limit: Cut,
}

impl<S: Settle> MarkSource for Before<'_, S> {
    fn is_valid(&self, mark: Mark) -> bool {
        self.journal.is_valid(mark)
    }

    fn marks_of(
        &self,
        journal: JournalId,
        above: u64,
        upto: u64,
        sink: &mut dyn FnMut(Mark),
    ) -> u64 {
        // What joins while others are looked at is for the next round: so this ends.
        let limited = |mark: Mark| {
            let last = self.limit.last(mark.journal());
            if last > 0 {
                sink(Mark::new(mark.journal(), mark.number().min(last)));
            }
        };
        let log = self.journal.log(journal);
        let joined = log.joined.lock();
        let mut marks = Vec::new();
        let mut covered = joined.marks_of_links(above, upto, &mut |mark| marks.push(mark));
        if covered >= joined.pending.first {
            // The running transaction counts as a whole.
            marks.extend_from_slice(&joined.pending.marks);
            log.running.marks(&mut marks);
            covered = joined.next() - 1;
        }
        drop(joined);
        marks.into_iter().for_each(limited);
        covered
    }
}

impl<S: Settle> Journal<S> {
    /// Commits what `roots` need, until it is valid.
    pub(crate) fn commit_images(&self, roots: impl Iterator<Item = Mark>) -> Result<()> {
        HeldRank::<HANDLE>::check();
        let mut roots: Vec<Mark> = roots.collect();
        let mut rounds = 0;
        loop {
            self.check_running()?;
            roots.retain(|root| !self.is_valid(*root));
            if roots.is_empty() {
                return Ok(());
            }
            if rounds == ROUNDS_MAX && self.rules.rounds.holds() {
                self.commit_at_once(&roots, Slack::Keep)?;
                let own = self.journal_of(current_core());
                self.commit_tallies(own).at_once.add_shared(1);
                return Ok(());
            }
            rounds += 1;
            self.commit_each(self.needs_of(&roots))?;
            if !self.rules.wait_valid.holds() {
                return Ok(());
            }
            self.find_valid(&mut journals_of(&roots).into_iter());
        }
    }

    /// Commits the last handle that has joined in each of these journals. It may depend on what is
    /// not durable: then it becomes valid later.
    pub(crate) fn commit_journals(&self, journals: &[JournalId]) -> Result<()> {
        let last = |id: &JournalId| (*id, self.log(*id).joined.lock().next() - 1);
        self.commit_each(journals.iter().map(last).collect())?;
        self.find_valid(&mut journals.iter().copied());
        Ok(())
    }

    /// The last handle of each journal that `roots` need.
    fn needs_of(&self, roots: &[Mark]) -> Vec<(JournalId, u64)> {
        let before = Before {
            journal: self,
            limit: self.last_joined(),
        };
        let mut closure = Closure::new(self.logs.len());
        roots
            .iter()
            .for_each(|root| closure.require(&before, *root));
        closure.extend(&before);
        let needs = closure.journals().iter().map(|id| (*id, closure.upto(*id)));
        needs.collect()
    }

    /// What is not durable of these: all at once, as far as their journals have threads.
    fn commit_each(&self, mut needs: Vec<(JournalId, u64)>) -> Result<()> {
        needs.retain(|(id, upto)| self.log(*id).reached.durable() < *upto);
        let asked: Vec<_> = needs
            .iter()
            .map(|(id, upto)| self.ask(*id, *upto))
            .collect();
        for ((id, upto), asked) in needs.into_iter().zip(asked) {
            let done = asked.is_some_and(|asked| self.wait_for(id, upto, asked));
            if !done {
                self.commit_one(id, upto)?;
            }
        }
        Ok(())
    }

    /// The commit of one journal, at least up to handle `upto`, by the caller.
    pub(super) fn commit_one(&self, id: JournalId, upto: u64) -> Result<()> {
        let log = self.log(id);
        let Some(turn) = self.take_turn(log, upto)? else {
            return Ok(());
        };
        let mut closure = Closure::new(self.logs.len());
        closure.require(self, Mark::new(id, turn.upto));
        // Its end, also by an error, lets the next committer go on, and the tasks that wait.
        self.commit_closure(&closure, || drop(turn))
    }

    /// Commits what has closed, up to `closure`, and finds what is valid then. Calls `durable` in
    /// between.
    fn commit_closure(&self, closure: &Closure, durable: impl FnOnce()) -> Result<()> {
        let own = self.journal_of(current_core());
        self.trace.record(Some(own), || TraceEvent::CommitBegin);
        let mut wrote_ns = None;
        for id in closure.journals() {
            self.capture_closed(*id, closure.upto(*id));
            let wrote = self.write_closed(*id, closure.upto(*id))?;
            wrote_ns = wrote.or(wrote_ns);
        }
        let journals = to_u32(self.count_commit(own, closure));
        self.flush(closure, wrote_ns)?;
        durable();
        self.find_valid(&mut closure.journals().iter().copied());
        self.trace
            .record(Some(own), || TraceEvent::CommitEnd { journals });
        Ok(())
    }

    /// Commits everything that has joined, closed at one moment; nothing if `roots` are valid.
    pub(crate) fn commit_at_once(&self, roots: &[Mark], slack: Slack) -> Result<()> {
        self.check_running()?;
        let waits = |root: &Mark| !self.is_valid(*root);
        if !roots.iter().any(waits) {
            return Ok(());
        }
        let runs = |root: &Mark| {
            let joined = self.log(root.journal()).joined.lock();
            root.number() >= joined.pending.first
        };
        // A checkpoint has closed what it needs.
        if slack == Slack::Keep || roots.iter().any(runs) {
            self.close_all(slack)?;
        }
        self.commit_closed()?;
        if roots.iter().any(waits) {
            // Race: after the checkpoint had closed all, a journal's thread closed the transaction of
            // a root, the last writer of a copied buffer, which marks one that still runs.
            self.close_all(slack)?;
            self.commit_closed()?;
        }
        assert!(
            !self.rules.two_way.holds() || !roots.iter().any(waits),
            "what closed at one moment marks nothing that runs"
        );
        Ok(())
    }

    /// Commits what has closed in any journal.
    fn commit_closed(&self) -> Result<()> {
        let mut closure = Closure::new(self.logs.len());
        for log in &self.logs {
            let last = log.joined.lock().pending.first - 1;
            if last > 0 {
                closure.require(self, Mark::new(log.id, last));
            }
        }
        self.commit_closure(&closure, || {
            for id in closure.journals() {
                // A task that has found it not durable, and is about to wait, waits by now.
                drop(self.log(*id).joined.lock());
                self.log(*id).turned.notify_all();
            }
        })
    }
}

fn journals_of(roots: &[Mark]) -> Vec<JournalId> {
    let mut all: Vec<JournalId> = roots.iter().map(|root| root.journal()).collect();
    all.sort_unstable();
    all.dedup();
    all
}
