//! Validity at run time: what is durable with everything it depends on.
//!
//! **Problem.** A freed block may be reused, a node id given out again, an image written, only when
//! a crash can no longer undo the handle that allows it. **Structure.** With deltas a commit's
//! closure is closed under marks; once all of it is durable, all of it is valid. So nothing has to
//! be searched: `valid` of each journal in the closure rises to what the closure needs there. With
//! images a transaction is committed without all it marks, and a walk finds later what is valid
//! (`records::image::walk`). In both, effects up to `valid` are then settled.
//!
//! # What a valid handle guarantees
//! **Invariants.** The valid handles are closed under marks at all times that matter: the union of
//! closed sets is closed. `valid` rises journal by journal, but only after *all* of a closed set is
//! durable, so a task that sees a handle valid may rely on its dependencies. Each effect is settled
//! once, in join order per journal: one thread settles a journal at a time, others wait for it.
//!
//! **Cache lines.** Every operation checks whether the handles it depends on are valid; most have
//! been for long. So each core remembers what it has seen of each journal ([`Seen`]), and reads the
//! journal's line, which its committers write, only if that is not enough.
//!
//! **Crash.** Validity is not on the medium: recovery computes it from what is durable, and finds
//! at least what was valid here.

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, MutexGuard, PerCore, clock, current_core};

use crate::closure::{Closure, MarkSource};
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, JOINED, Joined};
use crate::statistics::Stall;
use crate::trace::TraceEvent;

/// Journals on one line pair.
const LINE_JOURNALS: usize = 16;

/// The last valid handle of each journal, as each core has seen it.
#[derive(Debug)]
pub(crate) struct Seen(
    /// By core, then journal. Written by tasks of the core; what one of them has seen stays true.
    PerCore<Box<[CachePadded<[AtomicU64; LINE_JOURNALS]>]>>,
);

impl Seen {
    /// For `journals` journals, used by as many cores.
    pub(crate) fn new(journals: usize) -> Seen {
        let line = |_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let lines = journals.div_ceil(LINE_JOURNALS);
        Seen(PerCore::new(journals, |_| (0..lines).map(line).collect()))
    }

    fn of(&self, journal: JournalId) -> &AtomicU64 {
        let (line, place) = (
            journal.index() / LINE_JOURNALS,
            journal.index() % LINE_JOURNALS,
        );
        &self.0.local()[line][place]
    }
}

impl<S: Settle> MarkSource for Journal<S> {
    fn is_valid(&self, mark: Mark) -> bool {
        Journal::is_valid(self, mark)
    }

    fn marks_of(
        &self,
        journal: JournalId,
        above: u64,
        upto: u64,
        sink: &mut dyn FnMut(Mark),
    ) -> u64 {
        self.log(journal).marks_of(above, upto, sink)
    }
}

impl<S: Settle> Journal<S> {
    /// Whether the handle is durable with everything it depends on. It may become so a little
    /// before this returns `true`.
    #[must_use]
    pub fn is_valid(&self, mark: Mark) -> bool {
        if mark.is_none() {
            return true;
        }
        let seen = self.seen.of(mark.journal());
        // Acquire: pairs with the Release below, by another task of this core.
        if mark.number() <= seen.load(Ordering::Acquire) {
            return true;
        }
        let valid = self.log(mark.journal()).reached.valid();
        // Release: pairs with the Acquire above; passes on what the load of `Reached::valid`
        // acquired. A task that has seen less may store last: that value is true, too.
        seen.store(valid, Ordering::Release);
        mark.number() <= valid
    }

    /// Everything in `closure` is durable: raises `valid` and settles. `ns` is the time now.
    pub(crate) fn advance_valid(&self, closure: &Closure, ns: u64) {
        for journal in closure.journals() {
            let log = self.log(*journal);
            let upto = closure.upto(*journal);
            assert!(
                log.reached.durable() >= upto,
                "journal {journal}: valid means durable"
            );
            let mut joined = log.joined.lock();
            joined.pop_valid(&log.tallies, ns, |link| link.last <= upto);
            self.raise_valid(log, joined, upto);
        }
        for journal in closure.journals() {
            self.settle_journal(self.log(*journal));
        }
    }

    /// Raises the number of a journal, whose transactions up to there are no links any more.
    pub(crate) fn raise_valid(
        &self,
        log: &CoreLog<S::Effect>,
        joined: MutexGuard<'_, JOINED, Joined<S::Effect>>,
        upto: u64,
    ) {
        log.reached.raise_valid(upto);
        drop(joined);
        self.trace
            .record(Some(log.id), || TraceEvent::Valid { upto });
    }

    /// Settles what has become valid in one journal; returns when all of it up to now is settled.
    pub(crate) fn settle_journal(&self, log: &CoreLog<S::Effect>) {
        let mut joined = log.joined.lock();
        if joined.settling {
            let start = clock::monotonic_ns();
            while joined.settling {
                joined = log.settled.wait(joined);
            }
            let waited = clock::monotonic_ns() - start;
            self.stalled(current_core(), Stall::Settle, waited);
        }
        let valid = log.reached.valid();
        let count = joined
            .effects
            .partition_point(|(number, _)| *number <= valid);
        if count == 0 {
            return;
        }
        joined.settling = true;
        log.tallies.join.effects.add(crate::units::to_u64(count));
        let effects = joined
            .effects
            .drain(..count)
            .map(|(_, effect)| effect)
            .collect();
        drop(joined);
        self.settle.settle(effects);
        log.joined.lock().settling = false;
        log.settled.notify_all();
    }
}
