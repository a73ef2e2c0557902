//! The threads that commit journals, with compound transactions: kjournald.
//!
//! **Problem.** As published, each journal has a thread that commits it, bound to the journal's core,
//! and these commit at the same time; workers serve eight cores each. **Structure.** A thread for
//! each journal in use, as many as there are journals even with fewer cores; that of the one journal
//! of JBD2 may run anywhere. It sleeps until a task asks for a commit
//! ([`dure_store::Store::serve_commits`]): an fsync, or each interval a worker that has written back
//! what waits. **Invariants.** The threads hold the store. They are started once, and end after the
//! workers, which ask them, and before the volume is dropped. **On a crash** nothing of this remains.

use dure_journal::Order;
use dure_store::Store;
use dure_store::units::{journal_id, nth_core, to_usize};
use dure_sync::{Arc, CoreId, Mutex, core_count, thread};

use crate::ranks::WORKER;

/// The threads of a volume; none before they are started.
#[derive(Debug, Default)]
pub(crate) struct CommitThreads(Mutex<WORKER, Vec<thread::JoinHandle<()>>>);

impl CommitThreads {
    pub(super) fn start(&self, store: &Arc<Store>, order: Order) {
        let cores = core_count();
        let all = (0..cores).map(|core| nth_core(core, cores));
        let of: Vec<Vec<CoreId>> = match order {
            Order::Single => vec![all.collect()],
            Order::PerCore => {
                let journals = 0..to_usize(store.layout.journals.into());
                journals.map(|index| vec![nth_core(index, cores)]).collect()
            }
        };
        let mut threads = Vec::new();
        for (index, cores) in (0_u32..).zip(of) {
            let (store, journal) = (Arc::clone(store), journal_id(index));
            let name = format!("dure-commit-{index}");
            let body = move || store.serve_commits(journal);
            threads.push(thread::spawn_vital(&name, &cores, body));
        }
        let before = std::mem::replace(&mut *self.0.lock(), threads);
        assert!(before.is_empty(), "they are started once");
    }

    /// Ends the threads, and waits for them. From then on a task that needs a commit makes it.
    pub(super) fn stop(&self, store: &Store) {
        let threads = std::mem::take(&mut *self.0.lock());
        if threads.is_empty() {
            return;
        }
        store.end_commits();
        for thread in threads {
            thread
                .join()
                .expect("a commit reports its errors, it does not panic");
        }
    }
}
