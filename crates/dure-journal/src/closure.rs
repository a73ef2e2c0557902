//! The closure of a commit: which prefix of which journal must become durable together.
//!
//! **Problem.** A handle is valid only with all that its marks name, and with everything joined
//! before it in its journal. **Structure.** `need[journal]` starts with the roots; whenever it
//! rises, the marks of the handles it now covers raise others, to the fixpoint.
//!
//! **Invariants.** The closure ends: marks name handles that joined before the one that carries
//! them, so every number in the closure joined before the newest root (or, where another committer
//! has meanwhile written a longer prefix, before the newest handle of that transaction). **Crash.**
//! If a crash leaves a closure half written, recovery cuts it back to a set that is closed again.

use smallvec::{SmallVec, smallvec};

use crate::ids::{JournalId, Mark};

/// Journals of which most closures have no more, and volumes of few cores neither: these take no
/// memory from the heap.
const FEW: usize = 4;

/// What the closure queries of the journals. A trait, so that tests can stand in for many cores.
pub(crate) trait MarkSource {
    /// Whether the handle is valid.
    fn is_valid(&self, mark: Mark) -> bool;

    /// Passes to `sink` the marks of the handles of `journal` in `(above, upto]` that are not
    /// valid. If `upto` lies inside a transaction that is written already, the whole transaction
    /// counts. Returns the last number covered.
    fn marks_of(
        &self,
        journal: JournalId,
        above: u64,
        upto: u64,
        sink: &mut dyn FnMut(Mark),
    ) -> u64;
}

#[derive(Debug, Clone, Copy, Default)]
struct Need {
    /// The prefix of the journal that must be durable.
    upto: u64,
    /// The prefix whose marks were followed.
    followed: u64,
}

/// Prefixes that must become durable together.
#[derive(Debug)]
pub(crate) struct Closure {
    /// By journal; `upto` 0 where nothing is needed.
    needs: SmallVec<[Need; FEW]>,
    /// Journals with a need, ascending once [`Closure::extend`] is done.
    touched: SmallVec<[JournalId; FEW]>,
    /// Journals whose need rose above what was followed.
    work: SmallVec<[JournalId; FEW]>,
}

impl Closure {
    pub(crate) fn new(journals: usize) -> Self {
        Self {
            needs: smallvec![Need::default(); journals],
            touched: SmallVec::new(),
            work: SmallVec::new(),
        }
    }

    /// Requires `mark`, unless it is valid already.
    pub(crate) fn require(&mut self, source: &impl MarkSource, mark: Mark) {
        if mark.is_none() || source.is_valid(mark) {
            return;
        }
        let need = &mut self.needs[mark.journal().index()];
        if mark.number() <= need.upto {
            return;
        }
        if need.upto == 0 {
            self.touched.push(mark.journal());
        }
        // A journal is in the work list exactly while its need is above what was followed.
        if need.upto == need.followed {
            self.work.push(mark.journal());
        }
        need.upto = mark.number();
    }

    /// Follows marks to the fixpoint.
    pub(crate) fn extend(&mut self, source: &impl MarkSource) {
        let mut found: SmallVec<[Mark; 2 * FEW]> = SmallVec::new();
        while let Some(journal) = self.work.pop() {
            let need = self.needs[journal.index()];
            found.clear();
            let covered = source.marks_of(journal, need.followed, need.upto, &mut |mark| {
                found.push(mark)
            });
            assert!(covered >= need.upto, "the journal covers what was asked");
            self.needs[journal.index()] = Need {
                upto: covered,
                followed: covered,
            };
            for mark in &found {
                self.require(source, *mark);
            }
        }
        self.touched.sort_unstable();
    }

    /// Follows the marks of every journal again, since other committers may have written longer
    /// prefixes. Returns whether more is needed now.
    pub(crate) fn recheck(&mut self, source: &impl MarkSource) -> bool {
        let before: u64 = self.sum();
        self.work.clone_from(&self.touched);
        self.extend(source);
        self.sum() != before
    }

    fn sum(&self) -> u64 {
        self.touched
            .iter()
            .map(|journal| self.needs[journal.index()].upto)
            .sum()
    }

    /// Journals with a need, ascending.
    pub(crate) fn journals(&self) -> &[JournalId] {
        &self.touched
    }

    /// The prefix of `journal` that must be durable.
    pub(crate) fn upto(&self, journal: JournalId) -> u64 {
        self.needs[journal.index()].upto
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }
}

#[cfg(test)]
mod tests;
