//! What a round of background work does.

use dure_journal::Order;
use dure_store::error::Result;
use dure_store::serve;
use dure_store::units::{journal_id, nth_core, to_usize};
use dure_sync::CoreId;
use dure_sync::atomic::Ordering;

use super::BackgroundWork;

impl BackgroundWork {
    /// One round for all partitions, by the caller.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn round_of_all(&self) -> Result<()> {
        let count = to_usize(self.store.layout.journals.into());
        let all: Vec<CoreId> = (0..count).map(|core| nth_core(core, count)).collect();
        self.round_of(&all, true, &mut 0)
    }

    /// One round for these partitions: writes their inodes back and commits their journals. A
    /// leader also does what there is once for the volume. Adds the pages written to `pages`.
    ///
    /// # Errors
    /// The first failure. That of a file keeps nothing else from being done.
    pub(super) fn round_of(
        &self,
        partitions: &[CoreId],
        leads: bool,
        pages: &mut u64,
    ) -> Result<()> {
        self.store.check_writable()?;
        if leads {
            self.inodes.write_access_times();
        }
        let mut written = Ok(());
        for &partition in partitions {
            let list = || {
                self.files
                    .body
                    .write_back_list(&self.files, partition, pages)
            };
            written = written.and(serve(partition, list));
        }
        // The rest of them, if a round of moves found files busy. A disk that takes nothing keeps no
        // operation from being committed.
        written = written.and(self.cleaner.move_absorbed(partitions).map(drop));
        // Where journals have threads that commit, it asks them.
        match (self.order, leads) {
            (Order::PerCore, _) => self.store.commit_partitions(partitions)?,
            // The one journal is committed by one thread.
            (Order::Single, true) => self.store.commit_all()?,
            (Order::Single, false) => {}
        }
        if leads {
            self.volume_round()?;
        }
        written
    }

    /// Writes back what some of these partitions have too much of. Returns whether there is more,
    /// and adds the pages written to `pages`.
    pub(super) fn write_back_many(&self, partitions: &[CoreId], pages: &mut u64) -> bool {
        let mut more = false;
        for &partition in partitions {
            let over = || {
                self.files
                    .body
                    .write_back_over(&self.files, partition, pages)
            };
            more |= serve(partition, over);
        }
        more
    }

    /// Checkpoints when logs or dirty nodes require it, and cleans. A volume at rest shrinks the
    /// logs that have grown.
    fn volume_round(&self) -> Result<()> {
        if self.is_at_rest() {
            self.store.give_logs_back()?;
        }
        if self.wants_checkpoint() {
            self.store.checkpoint()?;
        }
        self.files.pages.trim();
        if self.cleaner.wants_cleaning() {
            self.cleaner.clean(self.cleaner.cleaning_goal())?;
        }
        Ok(())
    }

    /// Whether nothing has joined a log since the last round.
    fn is_at_rest(&self) -> bool {
        let handles = self.store.journal().counters().handles;
        let before = self.handles.swap(handles, Ordering::Relaxed);
        before == handles
    }

    /// Whether some log is over half full, or over a quarter of the node cache is dirty: a
    /// checkpoint then comes before operations have to make room.
    fn wants_checkpoint(&self) -> bool {
        let journal = self.store.journal();
        let half_full = (0..self.store.layout.journals).any(|index| {
            let usage = journal.usage(journal_id(index));
            usage.used * 2 > usage.capacity
        });
        half_full || self.store.nodes.dirty_count() * 4 > self.store.nodes.nodes_max()
    }
}
