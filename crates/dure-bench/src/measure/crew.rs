//! The workers of one point: threads, or processes.
//!
//! **Structure.** Every measurement: all workers prepare, each on its core; when the last one is
//! ready, all are told when the window opens and closes. In between no worker is woken and nothing
//! is shared.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dure_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use dure_sync::{clock, thread};

use super::process::Process;
use super::work::{self, Share, Worker};
use super::{Plan, WorkerKind};
use crate::Assignment;
use crate::options::core_of;
use crate::target::Tree;

/// The workers of a point, and what they work in.
pub(crate) struct Crew {
    staff: Staff,
    cores: usize,
    /// The last ones, whose works do not count.
    background: usize,
    /// Removed at the end.
    tree: Option<Tree>,
}

/// What a crew consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hiring {
    pub(crate) kind: WorkerKind,
    /// Workers.
    pub(crate) count: usize,
    /// How many of the workers, the last ones, only disturb the others and are not counted.
    pub(crate) background: usize,
    /// Cores they share.
    pub(crate) cores: usize,
}

enum Staff {
    Threads(Vec<Box<dyn Worker>>),
    Processes(Vec<Process>),
}

impl Crew {
    /// Threads on the first `cores` cores; each worker is made on its core, one after the other.
    pub(crate) fn threads(
        count: usize,
        cores: usize,
        tree: Option<Tree>,
        make: impl Fn(usize) -> Result<Box<dyn Worker>> + Sync,
    ) -> Result<Crew> {
        let make_on_core = |number| {
            thread::scope(|scope| {
                let made = scope.spawn_on(core_of(number, cores), || make(number));
                made.join().expect("workers return errors")
            })
        };
        let workers = (0..count).map(make_on_core).collect::<Result<_>>()?;
        Ok(Crew {
            staff: Staff::Threads(workers),
            cores,
            background: 0,
            tree,
        })
    }

    /// Makes workers in `tree`, one after the other: threads, each with what `make` returns; or, if
    /// processes are wanted and another process can reach `tree`, processes, each with what
    /// `assign` returns.
    pub(crate) fn hire(
        tree: Tree,
        hiring: Hiring,
        assign: impl Fn(&Path, usize) -> Assignment,
        make: impl Fn(&Tree, usize) -> Result<Box<dyn Worker>> + Sync,
    ) -> Result<Crew> {
        let Hiring {
            kind,
            count,
            background,
            cores,
        } = hiring;
        assert!(background < count, "somebody is counted");
        match tree.host_path() {
            Some(place) if kind == WorkerKind::Processes => {
                let start = |number| Process::start(&assign(place, number), core_of(number, cores));
                let workers = (0..count).map(start).collect::<Result<_>>()?;
                Ok(Crew {
                    staff: Staff::Processes(workers),
                    cores,
                    background,
                    tree: Some(tree),
                })
            }
            _ => {
                let own = tree.clone();
                let crew = Crew::threads(count, cores, Some(tree), |number| make(&own, number))?;
                Ok(Crew { background, ..crew })
            }
        }
    }

    /// Workers that count.
    pub(crate) fn size(&self) -> usize {
        let all = match &self.staff {
            Staff::Threads(workers) => workers.len(),
            Staff::Processes(workers) => workers.len(),
        };
        all - self.background
    }

    pub(crate) fn kind(&self) -> WorkerKind {
        match &self.staff {
            Staff::Threads(_) => WorkerKind::Threads,
            Staff::Processes(_) => WorkerKind::Processes,
        }
    }

    /// One measurement; `at_start` is called when all are ready, just before the warm-up.
    pub(crate) fn measure(&mut self, plan: &Plan, at_start: impl FnOnce()) -> Result<Vec<Share>> {
        let counted = self.size();
        let mut shares: Vec<Share> = match &mut self.staff {
            Staff::Threads(workers) => measure_threads(workers, self.cores, plan, at_start)?,
            Staff::Processes(workers) => {
                for worker in workers.iter_mut() {
                    worker.order_prepare()?;
                }
                for worker in workers.iter_mut() {
                    worker.wait_ready()?;
                }
                at_start();
                let window = plan.window_from(clock::monotonic_ns());
                for worker in workers.iter_mut() {
                    worker.order_run(window)?;
                }
                let shares = workers.iter_mut().map(Process::share);
                shares.collect::<Result<_>>()?
            }
        };
        shares.truncate(counted);
        Ok(shares)
    }

    /// Checks what the workers did, and removes it.
    pub(crate) fn end(self) -> Result<()> {
        match self.staff {
            Staff::Threads(mut workers) => {
                workers.iter_mut().try_for_each(|worker| worker.check())?;
            }
            Staff::Processes(workers) => workers.into_iter().try_for_each(Process::end)?,
        }
        self.tree.map_or(Ok(()), |tree| tree.remove())
    }
}

fn measure_threads(
    workers: &mut [Box<dyn Worker>],
    cores: usize,
    plan: &Plan,
    at_start: impl FnOnce(),
) -> Result<Vec<Share>> {
    let count = workers.len();
    let ready = AtomicUsize::new(0);
    // Written by this thread once, 0 before; read by all workers.
    let start = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(number, worker)| {
                let (ready, start) = (&ready, &start);
                scope.spawn_on(core_of(number, cores), move || {
                    let prepared = worker.prepare();
                    // Release: pairs with the Acquire below; publishes what this worker prepared.
                    ready.fetch_add(1, Ordering::Release);
                    prepared?;
                    let now = wait_for(start);
                    work::work(worker.as_mut(), plan.window_from(now))
                })
            })
            .collect();
        // Acquire: pairs with the Release of the workers.
        while ready.load(Ordering::Acquire) < count {
            thread::sleep(Duration::from_micros(200));
        }
        at_start();
        // Release: pairs with the Acquire in `wait_for`.
        start.store(clock::monotonic_ns(), Ordering::Release);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("workers return errors"))
            .collect()
    })
}

/// Waits until the start time is set. Sleeping would cost a wake-up on every core just before the
/// start.
fn wait_for(start: &AtomicU64) -> u64 {
    loop {
        // Acquire: pairs with the Release in `measure_threads`.
        match start.load(Ordering::Acquire) {
            0 => thread::yield_now(),
            ns => return ns,
        }
    }
}
