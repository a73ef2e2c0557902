//! A run of a workload, on virtual cores or on those of this machine.
//!
//! **Structure.** The volume is made on the first core, each worker on its own; then all work at once,
//! each from a moment of its own, since cores in step meet in an order that real ones do not keep.
//! Operations count that end within one window of time, the same for all; a worker that has nothing
//! left to work on ends its own.

use anyhow::{Context, Result};
use dure_bench::blk::Requester;
use dure_bench::fxmark::{Field, Sizes};
use dure_bench::measure::Worker;
use dure_block::null::{Irq, NullDevice};
use dure_block::{Queue, QueueConfig, share};
use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::random::Seeded;
use dure_sync::{Arc, CoreId, clock, thread};

use super::media::volume;
use super::{Plan, Work, Workload, probe};

/// Blocks of the null device.
const NULL_BLOCKS: u64 = 1 << 20;
/// Requests that each core has under way, where requests are the work.
const DEPTH: usize = 32;

/// How long the cores work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Until the window opens, at least.
    pub(super) warm_ns: u64,
    /// The window.
    pub(super) run_ns: u64,
    /// Files that workers make before, to use them up.
    pub(super) fill: u64,
}

/// What the workers did together.
#[derive(Debug)]
pub(super) struct Done {
    /// Works of those that count.
    pub(super) works: u64,
    /// Mean time of a worker in the window.
    pub(super) mean_ns: f64,
    #[cfg_attr(
        not(dure_backend = "sim"),
        expect(dead_code, reason = "real cores count nothing")
    )]
    pub(super) counts: probe::Counts,
}

/// What the workers share.
struct Common {
    ready: AtomicU32,
    /// The moment at which all are ready; 0 before.
    begin_ns: AtomicU64,
    plan: Plan,
    window: Window,
    pace_ps: u64,
}

impl Common {
    /// Waits until all are ready; returns when that was.
    fn meet(&self, count: u32) -> u64 {
        // AcqRel: who comes last has seen what the others prepared.
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == count {
            self.begin_ns
                .store(clock::monotonic_ns(), Ordering::Release);
        }
        loop {
            match self.begin_ns.load(Ordering::Acquire) {
                0 => thread::yield_now(),
                ns => return ns,
            }
        }
    }

    fn operate(&self, worker: &mut dyn Worker) -> Result<Option<u64>> {
        if let Some(planted) = self.plan.planted {
            (planted.act)();
        }
        worker.operate()
    }

    /// Works of one worker in the window, and how long that was for it.
    fn work(&self, worker: &mut dyn Worker, number: usize, count: u32) -> Result<(u64, u64)> {
        worker.prepare()?;
        let begin_ns = self.meet(count);
        probe::set_pace(self.pace_ps);
        let id = u64::try_from(number)?;
        let mut random = Seeded::new(self.plan.seed.wrapping_mul(7919).wrapping_add(id));
        probe::delay(random.below(self.window.warm_ns / 4 + 1));
        let start_ns = begin_ns + self.window.warm_ns;
        let stop_ns = start_ns + self.window.run_ns;
        probe::measure_within(start_ns, stop_ns);
        let (mut works, mut now) = (0, clock::monotonic_ns());
        loop {
            let done = if now < start_ns {
                Some(worker.warm()?.context("nothing is left to warm up with")?)
            } else {
                self.operate(worker)?
            };
            let Some(done) = done else {
                return Ok((works, now - start_ns));
            };
            now = clock::monotonic_ns();
            // What ends in the window counts, whenever it began.
            if now >= stop_ns {
                return Ok((works, self.window.run_ns));
            }
            if now >= start_ns {
                works += done;
            }
        }
    }
}

fn core(number: usize) -> CoreId {
    CoreId::new(u16::try_from(number).expect("a thousand at most"))
}

/// Files that a worker makes before the window. Directories that are only read need no more the longer
/// the window is.
fn fill(workload: Workload, window: Window) -> u64 {
    match workload {
        Workload::Mrdl | Workload::MrdlBg => 500,
        Workload::Mrdm | Workload::MrdmBg => 50,
        _ => window.fill,
    }
}

/// Makes `count` workers, each on its core.
fn hire(
    count: usize,
    make: impl Fn(usize) -> Result<Box<dyn Worker>> + Sync,
) -> Result<Vec<Box<dyn Worker>>> {
    let mut workers = Vec::new();
    for number in 0..count {
        let made = thread::scope(|scope| {
            let made = scope.spawn_on(core(number), || make(number));
            made.join().expect("workers return errors")
        });
        workers.push(made?);
    }
    Ok(workers)
}

/// The workers of `cores` cores, and one more if it disturbs them.
fn workers(plan: &Plan, cores: usize, window: Window) -> Result<Vec<Box<dyn Worker>>> {
    let all = cores + usize::from(plan.work.has_background());
    match &plan.work {
        Work::Calls(workload, policy) => {
            let volume = volume(plan, policy, u16::try_from(all)?)?;
            let sizes = Sizes {
                fill: fill(*workload, window),
                region_bytes: 512 << 10,
            };
            let field = Field::new(volume.root(), *workload, cores, sizes)?;
            hire(all, |number| field.worker(number))
        }
        Work::Requests(own) => {
            let device = share(NullDevice::with_irq("null", NULL_BLOCKS, Irq::Softirq));
            let config = QueueConfig {
                hw_queues: own.hw_queues,
                nr_requests: own.nr_requests,
                ..QueueConfig::default()
            };
            let queue = Queue::new(device, config);
            hire(all, |number| {
                let job = Requester::new(Arc::clone(&queue), u64::try_from(number)?, DEPTH);
                Ok(Box::new(job))
            })
        }
    }
}

/// Runs the point on this machine, which has as many cores as it needs.
pub(super) fn play(plan: &Plan, cores: usize, window: Window, pace_ps: u64) -> Result<Done> {
    let mut workers = workers(plan, cores, window)?;
    let all = workers.len();
    let common = Common {
        ready: AtomicU32::new(0),
        begin_ns: AtomicU64::new(0),
        plan: plan.clone(),
        window,
        pace_ps,
    };
    let count = u32::try_from(all)?;
    let done: Vec<Result<(u64, u64)>> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, worker) in workers.iter_mut().enumerate() {
            let common = &common;
            threads.push(scope.spawn_on(core(number), move || {
                common.work(worker.as_mut(), number, count)
            }));
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|done| done.expect("workers return errors"))
            .collect()
    });
    probe::set_pace(0);
    let counts = probe::counts();
    let done: Vec<(u64, u64)> = done.into_iter().collect::<Result<_>>()?;
    let counted = &done[..cores];
    let works: u64 = counted.iter().map(|(works, _)| works).sum();
    let ns: u64 = counted.iter().map(|(_, ns)| ns).sum();
    // The first and the last one are enough: to look through a shared directory takes long. One that
    // was kept from working has nothing to show.
    for number in [0, cores - 1] {
        if done[number].0 > 0 {
            workers[number].check()?;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mean_ns = ns as f64 / cores as f64;
    Ok(Done {
        works,
        mean_ns,
        counts,
    })
}
