//! The workers as others see them: what wakes them.

use dure_journal::JournalId;
use dure_sync::{Arc, CoreId, OnceLock};

use super::worker::Worker;

/// The workers of a mounted volume; none if the mount options want none.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    crew: OnceLock<Vec<Arc<Worker>>>,
}

impl Workers {
    /// Those of a crew, each with its partitions.
    pub(super) fn set(&self, crew: Vec<Arc<Worker>>) -> &[Arc<Worker>] {
        self.crew.get_or_init(|| crew)
    }

    /// Ends the threads and waits for them: each completes the round it is in.
    pub(super) fn stop(&self) {
        let threads: Vec<_> = self.crew().iter().map(|worker| worker.end()).collect();
        for thread in threads.into_iter().flatten() {
            thread
                .join()
                .expect("background work reports its errors, it does not panic");
        }
    }

    /// All of them.
    pub(super) fn crew(&self) -> &[Arc<Worker>] {
        self.crew.get().map_or(&[], Vec::as_slice)
    }

    /// The log of `journal` has become half full; `checkpoints` were made by now. Wakes its worker.
    pub(crate) fn want_log_room(&self, journal: JournalId, checkpoints: i64) {
        if let Some(worker) = self.worker_of(journal.index()) {
            worker.want_log_room(journal, checkpoints);
        }
    }

    /// Half of the nodes that may be dirty are; `checkpoints` were made by now. Wakes the worker of
    /// the partition that has seen it.
    pub(crate) fn want_memory_room(&self, partition: CoreId, checkpoints: i64) {
        if let Some(worker) = self.worker_of(partition.index()) {
            worker.want_memory_room(checkpoints);
        }
    }

    /// The worker of the partition of this number, if there are workers.
    fn worker_of(&self, partition: usize) -> Option<&Arc<Worker>> {
        let mut crew = self.crew().iter();
        crew.find(|worker| worker.serves(partition))
    }

    /// A partition has many dirty pages: wakes its worker.
    pub(crate) fn want_write_back(&self, partition: CoreId) {
        if let Some(worker) = self.worker_of(partition.index()) {
            worker.want_write_back();
        }
    }

    /// A partition has much data in persistent memory: wakes its worker.
    pub(crate) fn want_moves(&self, partition: CoreId) {
        if let Some(worker) = self.worker_of(partition.index()) {
            worker.want_moves();
        }
    }

    /// A checkpoint begins: wakes all workers.
    pub(crate) fn want_checkpoint_help(&self) {
        let crew = self.crew().iter();
        crew.for_each(|worker| worker.want_checkpoint_help());
    }
}
