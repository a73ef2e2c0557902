//! A run of a workload, on virtual cores or on those of this machine.
//!
//! **Structure.** The volume is made on the first core, each worker on its own; then all work at once,
//! each from a moment of its own, since cores in step meet in an order that real ones do not keep.
//! Operations count that end within one window of time, the same for all; a worker that has nothing
//! left to work on ends its own.

use anyhow::{Context, Result};
use dure::Volume;
use dure_bench::fxmark::{Field, Sizes};
use dure_bench::measure::Worker;
use dure_block::delay::{DelayDevice, Model, Spread};
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_fs::FormatOptions;
use dure_pmem::Region;
use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::random::Seeded;
use dure_sync::{Arc, CoreId, clock, thread};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::{Plan, Workload, probe};

/// Blocks of the volume for each core.
const BLOCKS_PER_CORE: u64 = 8192;
/// The volume has room for so many cores at least: MRPM makes 37,000 files whatever their number.
const CORES_MIN: u16 = 64;
/// A device that serves more requests at once is not bounded by that.
const PARALLEL_MAX: u64 = 65_536;
/// Hardware queues of a volume at most.
const QUEUES_MAX: u64 = 1024;

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

fn device(plan: &Plan, cores: u16) -> Result<Arc<dyn Device>> {
    let blocks = u64::from(cores.max(CORES_MIN)) * BLOCKS_PER_CORE;
    if plan.policy.is_nvm() {
        let bytes = usize::try_from(blocks)? * BLOCK_BYTES;
        return Ok(share(NvmDevice::in_memory(
            "room",
            Region::anonymous(bytes)?,
        )));
    }
    let memory = share(RamDevice::new("room", blocks));
    let Some(drive) = &plan.machine.device else {
        return Ok(memory);
    };
    let parallel = u32::try_from(drive.parallel.min(PARALLEL_MAX))?;
    let model = Model {
        read: Duration::from_nanos(drive.read_ns),
        write: Duration::from_nanos(drive.write_ns),
        write_block: Duration::ZERO,
        flush: Duration::from_nanos(drive.flush_ns),
        spread: Spread::Fixed,
        channels: NonZeroU32::new(parallel).filter(|_| drive.parallel < PARALLEL_MAX),
        bytes_per_second: NonZeroU64::new(drive.mb_s * 1_000_000),
    };
    Ok(share(DelayDevice::with_model(memory, model)))
}

fn volume(plan: &Plan, cores: u16) -> Result<Volume> {
    let format = FormatOptions {
        journals: Some(u32::from(cores)),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let queues = plan.machine.device.as_ref().map(|drive| drive.queues);
    let queues = queues.map(|queues| u32::try_from(queues.min(QUEUES_MAX)).expect("few"));
    let mount = plan.policy.mount(cores, queues);
    Ok(Volume::create_on(device(plan, cores)?, &format, mount)?)
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

/// Runs the point on this machine, which has as many cores as it needs.
pub(super) fn play(plan: &Plan, cores: usize, window: Window, pace_ps: u64) -> Result<Done> {
    let all = cores + usize::from(plan.workload.has_background());
    let volume = volume(plan, u16::try_from(all)?)?;
    let sizes = Sizes {
        fill: fill(plan.workload, window),
        region_bytes: 512 << 10,
    };
    let field = Field::new(volume.root(), plan.workload, cores, sizes)?;
    let mut workers = Vec::new();
    for number in 0..all {
        let made = thread::scope(|scope| {
            let made = scope.spawn_on(core(number), || field.worker(number));
            made.join().expect("workers return errors")
        });
        workers.push(made?);
    }
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
