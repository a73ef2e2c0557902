//! Background work: commits and write-back every `commit_interval`, checkpoints and cleaning before
//! they become urgent.
//!
//! **Problem.** One thread for all cores bounds what they write together, and what it writes lands
//! in its own partition, whichever task made it. **Structure.** A [`Worker`] for each NUMA node and
//! eight of its cores, bound to them, serves the partitions of these cores: it writes their inodes
//! back and commits their journals, in their partitions ([`dure_store::serve`]). The first one, the
//! leader, also does what there is once for the volume ([`round`]). A worker sleeps while there is
//! nothing to do. An operation that leaves a log half full wakes the worker of that log, and one that
//! finds half of the nodes dirty that may be, so that a checkpoint makes room before an operation
//! has to wait for one; and so does a writer that has left many dirty pages ([`crate::file`]).
//!
//! **Invariants.** Each partition has one worker. Workers wait for each other only where callers
//! do: for locks of journals, and for a checkpoint. A failure stops what it concerns (a file whose
//! fsync reports it, or the volume) and no worker; a worker that panics ends the process. **On a
//! crash** nothing of this remains.

pub(crate) mod commits;
mod round;
mod thread;
mod worker;
pub(crate) mod workers;

use std::time::Duration;

use dure_journal::Order;
use dure_store::units::{nth_core, to_usize};
use dure_store::{RecordPolicy, Store};
use dure_sync::atomic::AtomicU64;
use dure_sync::{Arc, CoreId, core_count, core_groups};

use crate::cleaner::Cleaner;
use crate::file::Files;
use crate::inode::Inodes;
use commits::CommitThreads;
use worker::Worker;
use workers::Workers;

pub use worker::WorkerActivity;

/// Cores of a NUMA node that share a worker.
const CORES_PER_WORKER: usize = 8;

/// What works for a mounted volume without a caller.
#[derive(Debug)]
pub(crate) struct BackgroundWork {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Arc<Files>,
    pub(crate) cleaner: Arc<Cleaner>,
    pub(crate) workers: Arc<Workers>,
    /// How operations of several journals are ordered.
    pub(crate) order: Order,
    /// Between two rounds.
    pub(crate) commit_interval: Duration,
    /// Number of handles at the end of the leader's last round. Used by rounds only: Relaxed.
    pub(crate) handles: AtomicU64,
    /// What the log holds of a change.
    pub(crate) records: RecordPolicy,
    pub(crate) commits: CommitThreads,
}

impl Drop for BackgroundWork {
    fn drop(&mut self) {
        self.commits.stop(&self.store);
    }
}

impl BackgroundWork {
    /// Starts the workers, `workers` of them if there are so many cores.
    pub(crate) fn start(this: &Arc<BackgroundWork>, workers: Option<usize>) {
        let groups = groups(workers);
        let partitions = partitions_of(&groups, to_usize(this.store.layout.journals.into()));
        let crew = partitions.into_iter().map(Worker::new).map(Arc::new);
        let crew = this.workers.set(crew.collect());
        for (number, (worker, cores)) in crew.iter().zip(&groups).enumerate() {
            thread::start(worker, number, cores, this);
        }
        if this.records == RecordPolicy::Image {
            this.commits.start(&this.store, this.order);
        }
    }

    /// Ends the workers, then the threads that commit, and waits for them: each completes what it
    /// is at.
    pub(crate) fn stop(&self) {
        self.workers.stop();
        self.commits.stop(&self.store);
    }

    /// What the workers have done, and what waits for them.
    pub(crate) fn activity(&self) -> Vec<WorkerActivity> {
        let crew = self.workers.crew().iter();
        crew.map(|worker| worker.activity(|core| self.files.dirty_pages(core)))
            .collect()
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
