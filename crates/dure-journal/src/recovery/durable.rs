//! Handles that were durable and are missing.
//!
//! **Problem.** The end of a log after a crash looks the same as the loss of what followed:
//! something must tell how far the log went. **Structure.** Headers and transactions carry
//! `durable_upto`: handles up to it were durable *with all they depend on* when that was written.
//! So the handles that a transaction at or below it marks were durable too, in other journals, and
//! so on along the marks ([`follow_marks`]). A journal that lacks such a handle has a [`Hole`].
//!
//! **Invariants.** Nothing is concluded from a transaction above its journal's `durable_upto`: it
//! may be on the medium without what it depends on. No crash leaves a hole on a medium that keeps
//! what it has flushed. **Crash.** Nothing is written.

use std::fmt;

use dure_block::Lba;

use super::scan::{LoggedTransaction, Scan, ScannedRing};
use crate::ids::JournalId;

/// Durable handles that a log has lost.
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

/// Raises `durable_upto` of the rings along the marks of durable transactions; `transactions` are
/// sorted by journal and then by sequence.
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
    /// Durable handles that are missing, by journal. If there are any, the logs must not be
    /// replayed as if they were whole.
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

    /// Skips holes: transactions after them may survive too; the caller discards those that turn
    /// out to depend on something missing. For reading what is left; nothing may be written.
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
