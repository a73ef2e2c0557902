//! No log at all: what all others pay for theirs is measured against this.
//!
//! **Problem.** How much does a journal cost? Only a file system that is the same but for its log
//! can say. **Structure.** A handle makes no record and carries no mark. With the join that ends it
//! it counts as written, so a commit finds nothing to write: it flushes, and settles.
//!
//! **Invariants.** Nothing is pending or linked; numbers rise all the same, since marks tell one
//! change from the next. **Crash.** What a commit has flushed is data in blocks that nothing names.
//! What the last checkpoint names may have been used again, and a checkpoint that copied nodes
//! while an operation changed two of them has one of the changes. So a volume that uses this must
//! mark the medium before the first change, and refuse it after a crash.

use super::Records;
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined};

impl<S: Settle> Journal<S> {
    /// Whether handles make no records.
    pub(crate) fn is_unlogged(&self) -> bool {
        self.records == Records::None
    }

    /// A handle of `log` joins without a record.
    pub(crate) fn join_unlogged(&self, log: &CoreLog<S::Effect>, joined: &mut Joined<S::Effect>) {
        assert!(
            joined.pending.ends.is_empty() && joined.links.is_empty(),
            "journal {}: nothing waits for a log",
            log.id
        );
        log.reached.set_written(joined.pending.first);
        joined.pending.first += 1;
    }
}
