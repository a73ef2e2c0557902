//! Background work: commits and write-back every `commit_interval`, checkpoints and cleaning before
//! they become urgent.
//!
//! **Problem.** One thread for all cores bounds what they write together, and what it writes lands
//! in its own partition, whoever made it. **Structure.** A [`Worker`] for each NUMA node and eight
//! of its cores, bound to them, serves the partitions of these cores: it writes their inodes back
//! and commits their journals, in their partitions ([`dure_store::serve`]). The first one, the
//! leader, also does what there is once for the volume ([`round`]). A worker sleeps while there is
//! nothing to do. An operation that leaves a log half full wakes the worker of that log, and one that
//! finds half of the nodes dirty that may be, so that a checkpoint makes room before an operation
//! has to wait for one; and so does a writer that has left many dirty pages ([`crate::file`]).
//!
//! **Invariants.** Each partition has one worker. Workers wait for each other only where callers
//! do: for locks of journals, and for a checkpoint. A failure stops what it concerns (a file whose
//! fsync reports it, or the volume) and no worker; a worker that panics ends the process. **On a
//! crash** nothing of this remains.

mod round;
mod worker;

use dure_journal::JournalId;
use dure_store::units::{nth_core, to_usize};
use dure_sync::atomic::AtomicU64;
use dure_sync::{Arc, CoreId, OnceLock, core_count, core_groups};

use super::{Background, Volume};
use worker::Worker;

pub use worker::WorkerActivity;

/// Cores of a NUMA node that share a worker.
const CORES_PER_WORKER: usize = 8;

/// The workers of a mounted volume; none if the mount options want none.
#[derive(Debug, Default)]
pub(super) struct Workers {
    crew: OnceLock<Vec<Arc<Worker>>>,
    /// Number of handles at the end of the leader's last round. Used by rounds only: Relaxed.
    handles: AtomicU64,
}

impl Workers {
    /// Ends the threads and waits for them: each completes the round it is in.
    pub(super) fn stop(&self) {
        let threads: Vec<_> = self.crew().iter().map(|worker| worker.end()).collect();
        for thread in threads.into_iter().flatten() {
            thread
                .join()
                .expect("background work reports its errors, it does not panic");
        }
    }

    fn crew(&self) -> &[Arc<Worker>] {
        self.crew.get().map_or(&[], Vec::as_slice)
    }
}

/// Starts the workers if the mount options want some.
pub(super) fn start(volume: &Arc<Volume>) {
    if volume.options.background == Background::None {
        return;
    }
    let groups = groups(volume.options.workers);
    let partitions = partitions_of(&groups, to_usize(volume.layout.journals.into()));
    let workers = partitions.into_iter().map(Worker::new).map(Arc::new);
    let crew = volume.background.crew.get_or_init(|| workers.collect());
    for (number, (worker, cores)) in crew.iter().zip(&groups).enumerate() {
        Worker::start(worker, number, cores, volume);
    }
}

/// The cores of each worker: as many workers as asked for, if there are so many cores.
fn groups(workers: Option<usize>) -> Vec<Vec<CoreId>> {
    let most = workers.map_or(CORES_PER_WORKER, |workers| {
        core_count().div_ceil(workers.max(1))
    });
    core_groups(most)
}

/// The partitions of the cores of each group. One without a core of its own, on a volume made for
/// more cores, goes to the group that its number would reach by going round.
fn partitions_of(groups: &[Vec<CoreId>], count: usize) -> Vec<Vec<CoreId>> {
    let cores: usize = groups.iter().map(Vec::len).sum();
    let mut partitions = vec![Vec::new(); groups.len()];
    for partition in 0..count {
        let core = nth_core(partition, cores);
        let group = groups.iter().position(|group| group.contains(&core));
        partitions[group.expect("each core is in a group")].push(nth_core(partition, count));
    }
    partitions
}

impl Volume {
    /// The log of `journal` has become half full: wakes its worker.
    pub(super) fn want_log_room(&self, journal: JournalId) {
        if let Some(worker) = self.worker_of(journal.index()) {
            worker.want_log_room(journal, self.store.counters.checkpoints.sum());
        }
    }

    /// Half of the nodes that may be dirty are: wakes the worker of the partition that has seen it.
    pub(super) fn want_memory_room(&self, partition: CoreId) {
        if let Some(worker) = self.worker_of(partition.index()) {
            worker.want_memory_room(self.store.counters.checkpoints.sum());
        }
    }

    /// The worker of the partition of this number, if there are workers.
    fn worker_of(&self, partition: usize) -> Option<&Arc<Worker>> {
        let mut crew = self.background.crew().iter();
        crew.find(|worker| worker.serves(partition))
    }

    /// What the workers have done, and what waits for them.
    pub(super) fn worker_activity(&self) -> Vec<WorkerActivity> {
        let crew = self.background.crew().iter();
        crew.map(|worker| worker.activity(self)).collect()
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
    pub(super) fn want_checkpoint_help(&self) {
        let crew = self.background.crew().iter();
        crew.for_each(|worker| worker.want_checkpoint_help());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: impl IntoIterator<Item = u16>) -> Vec<CoreId> {
        numbers.into_iter().map(CoreId::new).collect()
    }

    #[test]
    fn each_partition_has_one_worker() {
        let groups = [ids(0..8), ids(8..12)];
        assert_eq!(partitions_of(&groups, 12), groups, "as many as cores");
        let more = [ids((0..8).chain(12..16)), ids(8..12)];
        assert_eq!(partitions_of(&groups, 16), more, "made for more cores");
        let fewer = [ids(0..5), ids([])];
        assert_eq!(partitions_of(&groups, 5), fewer, "made for fewer");
    }
}
