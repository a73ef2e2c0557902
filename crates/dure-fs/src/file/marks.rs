//! What an fsync of an inode must make durable.
//!
//! **Problem.** The handles that changed an inode, its map or its attributes may be in any journal,
//! and a new leaf may have changed without the inode's own granule. **Structure.** Per journal the
//! last handle that concerned the inode; earlier ones of the journal are a prefix of it.
//! **Invariants.** A mark stays until its handle is valid. Owner: [inode.state]. **On a crash**
//! what was not valid is what was not promised.

use dure_store::units::Mark;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CoreId, OnceLock, PerCore};
use smallvec::SmallVec;

/// The marks of one inode that are not known to be valid: one per journal at most. Two are stored
/// in place: enough for an inode that one core uses and another core has given a name.
#[derive(Debug, Default, Clone)]
pub(crate) struct PendingMarks(SmallVec<[Mark; 2]>);

impl PendingMarks {
    /// Remembers that the handle of `mark` concerned the inode.
    pub(crate) fn note(&mut self, mark: Mark) {
        if mark.is_none() {
            return;
        }
        match self
            .0
            .iter_mut()
            .find(|known| known.journal() == mark.journal())
        {
            Some(known) => *known = (*known).max(mark),
            None => self.0.push(mark),
        }
    }

    /// The marks that are not valid yet; the others are forgotten.
    pub(crate) fn pending(&mut self, is_valid: impl Fn(Mark) -> bool) -> &[Mark] {
        self.0.retain(|mark| !is_valid(*mark));
        &self.0
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Mark] {
        &self.0
    }
}

/// The last operation of each journal that overwrote pages of an inode under its shared lock. Most
/// files have none.
#[derive(Debug, Default)]
pub(crate) struct OverwriteMarks(
    /// As words; 0: none. Written by a holder of the shared inode lock after its operation has
    /// joined. Relaxed: a task that must depend on an operation was told that the call has returned,
    /// or holds the inode exclusively.
    OnceLock<PerCore<AtomicU64>>,
);

impl OverwriteMarks {
    /// Remembers an operation of one of so many journals.
    pub(super) fn note(&self, journals: usize, mark: Mark) {
        let all = self
            .0
            .get_or_init(|| PerCore::new(journals, |_| AtomicU64::new(0)));
        let own = all.get(CoreId::new(mark.journal().number()));
        own.fetch_max(mark.as_u64(), Ordering::Relaxed);
    }

    /// Those noted, one per journal at most.
    pub(super) fn all(&self) -> impl Iterator<Item = Mark> {
        let all = self.0.get().into_iter().flat_map(PerCore::iter);
        let marks = all.map(|own| Mark::from_u64(own.load(Ordering::Relaxed)));
        marks.filter(|mark| !mark.is_none())
    }
}

#[cfg(test)]
mod tests {
    use dure_store::units::JournalId;

    use super::*;

    fn mark(journal: u16, number: u64) -> Mark {
        Mark::new(JournalId::new(journal).expect("small"), number)
    }

    #[test]
    fn the_last_mark_of_each_journal_is_kept_until_valid() {
        let mut marks = PendingMarks::default();
        for (journal, number) in [(0, 5), (1, 3), (0, 9), (0, 7), (2, 1)] {
            marks.note(mark(journal, number));
        }
        marks.note(Mark::NONE);
        let valid_upto_8_in_0 = |m: Mark| m.journal().number() == 0 && m.number() <= 8;
        assert_eq!(
            marks.pending(valid_upto_8_in_0),
            [mark(0, 9), mark(1, 3), mark(2, 1)]
        );
        assert_eq!(marks.pending(|m| m.journal().number() != 1), [mark(1, 3)]);
        assert_eq!(
            marks.pending(|_| false),
            [mark(1, 3)],
            "the valid ones were forgotten"
        );
    }
}
