//! The thread of a worker: it sleeps until there is work for its partitions.

use std::time::Duration;

use dure_sync::{Arc, CoreId, Weak, clock, thread};

use super::BackgroundWork;
use super::worker::{Work, Worker};

/// Starts the thread, bound to `cores`. Number 0 leads.
pub(super) fn start(
    worker: &Arc<Worker>,
    number: usize,
    cores: &[CoreId],
    background: &Arc<BackgroundWork>,
) {
    let (own, weak) = (Arc::clone(worker), Arc::downgrade(background));
    let interval = background.commit_interval;
    let name = format!("dure-worker-{number}");
    let thread = thread::spawn_vital(&name, cores, move || {
        run(&own, number == 0, &weak, interval);
    });
    worker.started(thread);
}

/// Ends when told to, or when the volume is gone.
fn run(worker: &Worker, leads: bool, background: &Weak<BackgroundWork>, interval: Duration) {
    let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let mut next_round = clock::monotonic_ns().saturating_add(interval);
    loop {
        let work = worker.wait(next_round);
        let Some(background) = background.upgrade() else {
            return;
        };
        // A failure has stopped the volume, and the next fsync reports it; this thread has no
        // caller to report to.
        match work {
            Work::Stop => return,
            Work::Round => {
                let mut pages = 0;
                let _ = background.round_of(&worker.partitions, leads, &mut pages);
                worker.rounds.add(1);
                worker.pages.add(pages);
                next_round = clock::monotonic_ns().saturating_add(interval);
            }
            Work::Checkpoint => worker
                .images
                .add(background.store.help_checkpoint(&worker.partitions)),
            Work::WriteBack => {
                let mut pages = 0;
                if background.write_back_many(&worker.partitions, &mut pages) {
                    worker.want_write_back();
                }
                worker.pages.add(pages);
            }
            Work::Moves => {
                if background
                    .cleaner
                    .move_absorbed(&worker.partitions)
                    .unwrap_or(false)
                {
                    worker.want_moves();
                }
            }
            Work::Memory(checkpoints) => drop(background.store.checkpoint_since(checkpoints)),
            Work::Room(logs) => {
                for (journal, checkpoints) in logs {
                    let _ = background.store.make_log_room_since(journal, checkpoints);
                }
            }
        }
    }
}
