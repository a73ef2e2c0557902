//! Cores at work: the same on real threads and in the simulation.

use dure_journal::{CommitError, JournalId};
use dure_sync::{Arc, CoreId, Mutex, thread};

use super::buffers::{Buffers, Change};
use super::disk::GRANULES;
use dure_sync::random::Seeded;

/// What each core does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) cores: u16,
    pub(crate) changes: u32,
    /// Of a hundred changes so many are followed by an fsync.
    pub(crate) commit_percent: u64,
    /// And so many by a checkpoint.
    pub(crate) checkpoint_percent: u64,
    pub(crate) note_max: u16,
    /// Each journal has a thread that commits it.
    pub(crate) threads: bool,
}

/// Runs the work of `seed` on `buffers` and waits for its end.
pub(crate) fn run(buffers: &Buffers, work: Work, seed: u64) {
    let checkpoint: Arc<Mutex<40, ()>> = Arc::new(Mutex::new(()));
    if !work.threads {
        return work_of_cores(buffers, work, seed, &checkpoint);
    }
    thread::scope(|scope| {
        for index in 0..buffers.journal.journal_count() {
            let number = u16::try_from(index).unwrap();
            let task = buffers.journal.commit_task(JournalId::new(number).unwrap());
            let checkpoint = Arc::clone(&checkpoint);
            scope.spawn_on(CoreId::new(number), move || {
                while task.wait() {
                    while let Err(error) = task.commit() {
                        assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                        let _one_at_a_time = checkpoint.lock();
                        buffers.checkpoint();
                    }
                }
            });
        }
        work_of_cores(buffers, work, seed, &checkpoint);
        buffers.journal.end_commit_tasks();
    });
}

fn work_of_cores(buffers: &Buffers, work: Work, seed: u64, checkpoint: &Arc<Mutex<40, ()>>) {
    thread::scope(|scope| {
        for core in 0..work.cores {
            let checkpoint = Arc::clone(checkpoint);
            scope.spawn_on(CoreId::new(core), move || {
                one_core(buffers, work, core, seed, &checkpoint);
            });
        }
    });
}

fn one_core(buffers: &Buffers, work: Work, core: u16, seed: u64, checkpoint: &Mutex<40, ()>) {
    let mut random = Seeded::new(seed.wrapping_mul(1009) + u64::from(core) + 1);
    let make_room = || {
        let _one_at_a_time = checkpoint.lock();
        buffers.checkpoint();
    };
    for _ in 0..work.changes {
        // Mostly the core's own granule, sometimes others'.
        let own = 1 << (usize::from(core) % GRANULES);
        let other = 1 << random.index(GRANULES);
        let writes = if random.below(3) == 0 {
            own | other
        } else {
            own
        };
        let reads = if random.below(4) == 0 {
            (1 << random.index(GRANULES)) & !writes
        } else {
            0
        };
        let long = work.note_max > 5 && random.below(4) == 0;
        let note = if long {
            5 + u16::try_from(random.below(work.note_max.into())).unwrap()
        } else {
            0
        };
        let change = Change {
            core,
            writes,
            reads,
            note,
        };
        while buffers.change(change).is_none() {
            make_room();
        }
        if random.below(100) < work.commit_percent {
            while let Err(error) = buffers.commit(writes) {
                assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                make_room();
            }
        }
        // The timer of the file system, which promises nothing.
        if work.threads && random.below(4) == 0 {
            let own = [buffers.journal.journal_of(CoreId::new(core))];
            while let Err(error) = buffers.journal.commit_joined(&own) {
                assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                make_room();
            }
        }
        if random.below(100) < work.checkpoint_percent {
            make_room();
        }
    }
}
