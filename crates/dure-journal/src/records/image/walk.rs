//! Finds out later what is valid: the walk over marks.
//!
//! **Problem.** Each core commits its transaction when it wants; so what one depends on may become
//! durable after it. **Structure.** A task that has committed a transaction, or waits for one, walks
//! from the transactions of some journals over their marks, and takes the greatest set of durable
//! ones that is closed under them. It locks one journal at a time. A transaction found valid loses
//! its marks, so no later walk goes through it; the number of its journal rises when all before it
//! are valid, too.
//!
//! **Invariants.** The marks of a closed transaction do not change, and durable stays durable: so a
//! closed set stays one, whatever happens while it is searched. What is not closed or not durable
//! yet is not valid. **Crash.** Nothing is written. Recovery finds at least these.

use dure_sync::clock;

use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{Joined, Link};

/// A transaction that is durable, and not known to be valid.
struct Candidate {
    journal: JournalId,
    first: u64,
    last: u64,
    marks: Vec<Mark>,
    /// The candidates that mark it.
    marked_by: Vec<usize>,
    /// It depends on something that is not durable, as far as is known.
    falls: bool,
}

/// What a mark leads to.
enum Target {
    Valid,
    /// It runs, or is on its way to the medium.
    Missing,
    Candidate(usize),
}

impl<S: Settle> Journal<S> {
    /// Finds what is valid in these journals, and in what it depends on; settles it.
    pub(crate) fn find_valid(&self, journals: &mut dyn Iterator<Item = JournalId>) {
        let mut candidates = Vec::new();
        for id in journals {
            let log = self.log(id);
            let durable = self.done(id);
            let joined = log.joined.lock();
            let open = joined.links.iter().filter(|link| link.last <= durable);
            candidates.extend(open.map(|link| of_link(id, link)));
        }
        let mut at = 0;
        while at < candidates.len() {
            for mark in std::mem::take(&mut candidates[at].marks) {
                match self.target(mark, &mut candidates) {
                    Target::Valid => {}
                    Target::Missing => candidates[at].falls = true,
                    Target::Candidate(target) => candidates[target].marked_by.push(at),
                }
            }
            at += 1;
        }
        let falls = |at: &usize| candidates[*at].falls;
        let mut falling: Vec<usize> = (0..candidates.len()).filter(falls).collect();
        while let Some(at) = falling.pop() {
            for by in std::mem::take(&mut candidates[at].marked_by) {
                if !std::mem::replace(&mut candidates[by].falls, true) {
                    falling.push(by);
                }
            }
        }
        self.note_valid(&candidates);
    }

    /// How far a journal's transactions are on the medium for good.
    fn done(&self, id: JournalId) -> u64 {
        let reached = &self.log(id).reached;
        match self.rules.walk_durable.holds() {
            true => reached.durable(),
            false => reached.written(),
        }
    }

    fn target(&self, mark: Mark, candidates: &mut Vec<Candidate>) -> Target {
        let (id, number) = (mark.journal(), mark.number());
        if self.is_valid(mark) {
            return Target::Valid;
        }
        let is_it = |one: &Candidate| one.journal == id && (one.first..=one.last).contains(&number);
        if let Some(at) = candidates.iter().position(is_it) {
            return Target::Candidate(at);
        }
        let durable = self.done(id);
        let joined = self.log(id).joined.lock();
        match link_of(&joined, number) {
            // Valid meanwhile, or it runs.
            None if number < joined.pending.first => Target::Valid,
            None => Target::Missing,
            Some(link) if link.last > durable => Target::Missing,
            Some(link) => {
                candidates.push(of_link(id, link));
                Target::Candidate(candidates.len() - 1)
            }
        }
    }

    fn note_valid(&self, candidates: &[Candidate]) {
        let ns = clock::monotonic_ns();
        let mut raised: Vec<JournalId> = Vec::new();
        for one in candidates.iter().filter(|one| !one.falls) {
            let mut joined = self.log(one.journal).joined.lock();
            let at = joined.links.partition_point(|link| link.last < one.first);
            if let Some(link) = joined.links.get_mut(at)
                && link.first == one.first
            {
                link.marks = Vec::new();
                raised.push(one.journal);
            }
        }
        raised.sort_unstable();
        raised.dedup();
        for id in raised {
            self.raise_over_valid(id, ns);
        }
    }

    /// Raises the number of a journal over the transactions that are found to be valid.
    fn raise_over_valid(&self, id: JournalId, ns: u64) {
        let log = self.log(id);
        let durable = self.done(id);
        let mut joined = log.joined.lock();
        let is_valid = |link: &Link| link.last <= durable && link.marks.is_empty();
        if let Some(upto) = joined.pop_valid(&log.tallies, ns, is_valid) {
            self.raise_valid(log, joined, upto);
            self.settle_journal(log);
        }
    }
}

fn of_link(journal: JournalId, link: &Link) -> Candidate {
    Candidate {
        journal,
        first: link.first,
        last: link.last,
        marks: link.marks.clone(),
        marked_by: Vec::new(),
        falls: false,
    }
}

fn link_of<E>(joined: &Joined<E>, number: u64) -> Option<&Link> {
    let at = joined.links.partition_point(|link| link.last < number);
    joined.links.get(at).filter(|link| link.first <= number)
}
