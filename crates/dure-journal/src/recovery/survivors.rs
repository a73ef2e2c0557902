//! Survivors: the greatest set of complete transactions that is closed under marks.
//!
//! **Problem.** Marks form cycles, so "valid if all that its marks name is valid" has several
//! solutions, and starting from the empty set finds the smallest. **Structure.** Start with all of
//! them and remove each transaction with a mark to a missing or removed handle, to the fixpoint:
//! each transaction is removed once, and then those with marks to it are.
//!
//! **Invariants.** A mark below its journal's tail is satisfied: the tail passes only handles that
//! are valid and whose changes are durable elsewhere. A mark into a transaction counts for the
//! whole of it. A transaction after an invalid one of its journal may survive. **Crash.** The set
//! depends on nothing but the medium.

use super::scan::Scan;
use crate::ids::Mark;

/// What a mark leads to.
enum Target {
    /// A handle that was checkpointed.
    Satisfied,
    /// A complete transaction.
    Transaction(usize),
    /// Nothing on the medium.
    Missing,
}

impl Scan {
    /// For each transaction whether it survives.
    #[must_use]
    pub fn survivors(&self) -> Vec<bool> {
        let count = self.transactions.len();
        let mut alive: Vec<bool> = self.discarded.iter().map(|discarded| !discarded).collect();
        let mut named_by: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut gone: Vec<usize> = (0..count).filter(|index| !alive[*index]).collect();
        for (index, transaction) in self.transactions.iter().enumerate() {
            let looked_at = if self.rules.recover_marks.holds() {
                &transaction.marks[..]
            } else {
                &[]
            };
            for mark in looked_at {
                match self.target(*mark) {
                    Target::Satisfied => {}
                    Target::Transaction(_) if !self.rules.transitive.holds() => {}
                    Target::Transaction(target) => named_by[target].push(index),
                    Target::Missing => {
                        if std::mem::replace(&mut alive[index], false) {
                            gone.push(index);
                        }
                    }
                }
            }
            if !self.rules.skip_invalid.holds() && self.follows_in_journal(index) {
                named_by[index - 1].push(index);
            }
        }
        while let Some(index) = gone.pop() {
            for follower in std::mem::take(&mut named_by[index]) {
                if std::mem::replace(&mut alive[follower], false) {
                    gone.push(follower);
                }
            }
        }
        alive
    }

    fn follows_in_journal(&self, index: usize) -> bool {
        index > 0 && self.transactions[index - 1].journal == self.transactions[index].journal
    }

    fn target(&self, mark: Mark) -> Target {
        let Some(ring) = self.rings.get(mark.journal().index()) else {
            return Target::Missing;
        };
        if mark.is_none() {
            return Target::Missing;
        }
        if mark.number() < ring.tail.number {
            return Target::Satisfied;
        }
        let key = (mark.journal(), mark.number());
        let index = self
            .transactions
            .partition_point(|transaction| (transaction.journal, transaction.last) < key);
        match self.transactions.get(index) {
            Some(found) if found.journal == mark.journal() && found.first <= mark.number() => {
                Target::Transaction(index)
            }
            // After the end of its log, or in a hole.
            _ => Target::Missing,
        }
    }
}
