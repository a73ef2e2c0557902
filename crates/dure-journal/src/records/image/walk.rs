//! Finds out later what is valid: the walk over marks.
//!
//! **Problem.** Each core commits its transaction when it wants; so what one depends
//! on may become durable after it. **Structure.** Whoever has committed a transaction, and whoever
//! waits for one, walks from the transactions of some journals over their marks, and takes the
//! greatest set of durable ones that is closed under them. It locks one journal at a time. A
//! transaction found valid loses its marks, so no later walk goes through it; the number of its
//! journal rises when all before it are valid, too.
//!
//! **Invariants.** The marks of a closed transaction do not change, and durable stays durable: so a
//! closed set stays one, whatever happens while it is searched. What is not closed or not durable
//! yet is not valid. **Crash.** Nothing is written. Recovery finds at least these.

use dure_sync::clock;

use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{Joined, Link};
use crate::trace::TraceEvent;

/// A transaction that is durable, and not known to be valid.
struct Seen {
    journal: JournalId,
    first: u64,
    last: u64,
    marks: Vec<Mark>,
    /// It depends on something that is not durable, as far as is known.
    falls: bool,
}

/// What a mark leads to.
enum Target {
    Valid,
    /// It runs, or is on its way to the medium.
    Missing,
    Seen(usize),
}

impl<S: Settle> Journal<S> {
    /// Finds what is valid in these journals, and in what it depends on; settles it.
    pub(crate) fn find_valid(&self, journals: &mut dyn Iterator<Item = JournalId>) {
        let mut seen = Vec::new();
        for id in journals {
            let log = self.log(id);
            let durable = self.done(id);
            let joined = log.joined.lock();
            let open = joined.links.iter().filter(|link| link.last <= durable);
            seen.extend(open.map(|link| of_link(id, link)));
        }
        // Edges from a transaction to those that mark it.
        let mut marked_by: Vec<Vec<usize>> = vec![Vec::new(); seen.len()];
        let mut at = 0;
        while at < seen.len() {
            for mark in std::mem::take(&mut seen[at].marks) {
                match self.target(mark, &mut seen) {
                    Target::Valid => {}
                    Target::Missing => seen[at].falls = true,
                    Target::Seen(target) => {
                        marked_by.resize(seen.len(), Vec::new());
                        marked_by[target].push(at);
                    }
                }
            }
            at += 1;
        }
        marked_by.resize(seen.len(), Vec::new());
        let mut falling: Vec<usize> = (0..seen.len()).filter(|at| seen[*at].falls).collect();
        while let Some(at) = falling.pop() {
            for by in &marked_by[at] {
                if !std::mem::replace(&mut seen[*by].falls, true) {
                    falling.push(*by);
                }
            }
        }
        self.note_valid(&seen);
    }

    /// How far a journal's transactions are on the medium for good.
    fn done(&self, id: JournalId) -> u64 {
        let reached = &self.log(id).reached;
        match self.rules.walk_durable.holds() {
            true => reached.durable(),
            false => reached.written(),
        }
    }

    fn target(&self, mark: Mark, seen: &mut Vec<Seen>) -> Target {
        let (id, number) = (mark.journal(), mark.number());
        if self.is_valid(mark) {
            return Target::Valid;
        }
        let is_it = |seen: &Seen| seen.journal == id && (seen.first..=seen.last).contains(&number);
        if let Some(at) = seen.iter().position(is_it) {
            return Target::Seen(at);
        }
        let durable = self.done(id);
        let joined = self.log(id).joined.lock();
        match link_of(&joined, number) {
            // Valid meanwhile, or it runs.
            None if number < joined.pending.first => Target::Valid,
            None => Target::Missing,
            Some(link) if link.last > durable => Target::Missing,
            Some(link) => {
                seen.push(of_link(id, link));
                Target::Seen(seen.len() - 1)
            }
        }
    }

    fn note_valid(&self, seen: &[Seen]) {
        let ns = clock::monotonic_ns();
        let mut raised: Vec<JournalId> = Vec::new();
        for one in seen.iter().filter(|one| !one.falls) {
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
            self.raise_valid(id, ns);
        }
    }

    /// Raises the number of a journal over the transactions that are found to be valid.
    fn raise_valid(&self, id: JournalId, ns: u64) {
        let log = self.log(id);
        let durable = self.done(id);
        let mut joined = log.joined.lock();
        let mut upto = None;
        let is_valid = |link: &mut Link| link.last <= durable && link.marks.is_empty();
        while let Some(link) = joined.links.pop_front_if(is_valid) {
            upto = Some(link.last);
            log.tallies.became_valid(&link, ns);
            joined.valid_ns.push_back(ns);
        }
        let Some(upto) = upto else { return };
        log.reached.raise_valid(upto);
        drop(joined);
        self.trace.record(Some(id), || TraceEvent::Valid { upto });
        self.settle_journal(log);
    }
}

fn of_link(journal: JournalId, link: &Link) -> Seen {
    Seen {
        journal,
        first: link.first,
        last: link.last,
        marks: link.marks.clone(),
        falls: false,
    }
}

fn link_of<E>(joined: &Joined<E>, number: u64) -> Option<&Link> {
    let at = joined.links.partition_point(|link| link.last < number);
    joined.links.get(at).filter(|link| link.first <= number)
}
