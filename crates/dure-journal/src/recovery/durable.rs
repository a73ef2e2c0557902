//! What is known to have been durable, and is not there.
//!
//! **Problem.** The end of a log after a crash is the same picture as the loss of what followed:
//! something must say how far the log went. **Structure.** Headers and transactions carry
//! `durable_upto`: handles up to it were durable *with all they depend on* when that was written.
//! So the marks of a transaction at or below it say the same of handles of other journals, whose
//! transactions say it of others ([`follow_marks`]). A journal that lacks such a handle has a
//! [`Hole`].
//!
//! **Invariants.** Nothing is concluded from a transaction above its journal's `durable_upto`: it
//! may be on the medium without what it depends on. No crash leaves a hole on a medium that keeps
//! what it has flushed. **Crash.** Nothing is written.

use std::fmt;

use dure_block::Lba;

use super::scan::{LoggedTransaction, Scan, ScannedRing};
use crate::ids::JournalId;

/// Something durable that a log has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// Its journal.
    pub journal: JournalId,
    /// The first transaction that is missing or damaged.
    pub sequence: u64,
    /// Its first handle.
    pub number: u64,
    /// Where it should be, if not at the start of another segment of the ring.
    pub at: Lba,
    /// Handles up to this one were durable.
    pub durable_upto: u64,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hole {
            journal,
            sequence,
            number,
            at,
            durable_upto,
        } = self;
        write!(
            f,
            "the log of journal {journal} has a hole: transaction {sequence} (from handle {number} \
             on), expected at block {at}, is damaged or missing, though handles up to \
             {durable_upto} were durable"
        )
    }
}

/// Raises what is known to be durable by the marks of durable transactions; `transactions` by
/// journal and then by sequence.
pub(super) fn follow_marks(transactions: &[LoggedTransaction], rings: &mut [ScannedRing]) {
    let start_of = |journal: usize| {
        transactions.partition_point(|transaction| transaction.journal.index() < journal)
    };
    // By journal: the first of its transactions whose marks were not followed.
    let mut next: Vec<usize> = (0..rings.len()).map(start_of).collect();
    let mut work: Vec<usize> = (0..rings.len()).collect();
    // Bounded: each transaction is followed once, and each of its marks adds work at most once.
    while let Some(journal) = work.pop() {
        while let Some(transaction) = transactions.get(next[journal])
            && transaction.journal.index() == journal
            && transaction.last <= rings[journal].durable_upto
        {
            next[journal] += 1;
            for mark in transaction.marks.iter().filter(|mark| !mark.is_none()) {
                let target = mark.journal().index();
                let Some(ring) = rings.get_mut(target) else {
                    continue;
                };
                if ring.durable_upto < mark.number() {
                    ring.durable_upto = mark.number();
                    work.push(target);
                }
            }
        }
    }
}

impl Scan {
    /// What was durable and is missing, by journal. With any, the logs must not be replayed as if
    /// they were whole.
    #[must_use]
    pub fn holes(&self) -> Vec<Hole> {
        let lost = |ring: &&ScannedRing| ring.durable_upto >= ring.next_number;
        let rings = (0..).zip(&self.rings).filter(|(_, ring)| lost(ring));
        let holes = rings.map(|(index, ring)| Hole {
            journal: JournalId::from_index(index),
            sequence: ring.next_sequence,
            number: ring.next_number,
            at: ring.end,
            durable_upto: ring.durable_upto,
        });
        holes.collect()
    }

    /// Passes over holes: what stands behind them may survive, too, and what turns out to depend on
    /// something that is missing is to be discarded by the caller. For reading what is left; nothing
    /// may be written.
    pub fn tolerate_holes(&mut self) {
        self.tolerant = true;
        self.transactions.append(&mut self.beyond);
        self.transactions
            .sort_by_key(|transaction| (transaction.journal, transaction.sequence));
        self.discarded = vec![false; self.transactions.len()];
    }

    /// Whether [`Scan::tolerate_holes`] was called.
    #[must_use]
    pub fn tolerates_holes(&self) -> bool {
        self.tolerant
    }
}
