//! The measurements of an analysis.
//!
//! **Structure.** One device serves all points of an engine; each point has a queue of its own
//! settings. **Invariants.** The rate is that of a run without stamps. **On a crash** nothing is
//! kept.

use std::path::Path;

use anyhow::{Result, bail};
use dure_block::{Device, Phases};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, core_count, thread};
use serde::Serialize;

use super::{Analyze, fio, sysfs};
use crate::blk::choices::Engine;
use crate::blk::load::{self, Load, Stamping, Work};
use crate::blk::phases::{self, PhaseRow};
use crate::blk::{device, report, trace};
use crate::interrupt;
use crate::measure::{self, f64_of};

/// The share of a measurement's time that goes to the run with stamps.
const STAMPED_PART: f64 = 0.5;

/// What all points have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct FixedLoad {
    pub(super) iodepth: u32,
    pub(super) cores: usize,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    #[serde(skip)]
    pub(super) engine: &'static str,
    #[serde(skip)]
    pub(super) hw_queues: u32,
    #[serde(skip)]
    pub(super) nr_requests: u32,
    pub(super) jobs: u16,
    pub(super) iops: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    /// CPU time of the jobs for each request.
    pub(super) cpu_ns_per_request: f64,
    /// The share of the jobs' time in which they used or wanted a core.
    pub(super) cpu_share: f64,
    /// The share of all requests that waited for a tag.
    pub(super) tag_waits_share: f64,
    pub(super) phases: Vec<PhaseRow>,
}

impl Point {
    /// The share of a phase, in percent.
    pub(super) fn share(&self, phase: &str) -> f64 {
        let row = self.phases.iter().find(|row| row.phase == phase);
        row.and_then(|row| row.share).unwrap_or(0.0)
    }
}

/// Measures all points, series after series.
pub(super) fn measure(args: &Analyze) -> Result<Vec<Point>> {
    let most = args.cores.unwrap_or(u16::try_from(core_count())?);
    let jobs = doubled(most);
    let by_fio = !args.own && sysfs::is_block_device(&args.work.device) && fio::is_installed();
    if by_fio {
        return measure_by_fio(args, &jobs);
    }
    let or = |named: &[u32], usual: Vec<u32>| match named {
        [] => usual,
        named => named.to_vec(),
    };
    let mut queues = or(&args.hw_queues, vec![1, u32::from(most)]);
    queues.dedup();
    let tags = or(&args.nr_requests, vec![64, 1024]);
    let engines = engines(&args.work);
    let bar = measure::bar(engines.len() * queues.len() * tags.len() * jobs.len(), 1);
    let mut points = Vec::new();
    for (name, engine) in engines {
        let work = with_engine(args, engine);
        let device = device::open(&work, most)?;
        for hw_queues in &queues {
            for nr_requests in &tags {
                for jobs in &jobs {
                    interrupt::check()?;
                    bar.set_message(format!(
                        "{name}, {hw_queues} queues, {nr_requests} tags, {jobs} jobs"
                    ));
                    let load = Load {
                        hw_queues: *hw_queues,
                        nr_requests: *nr_requests,
                        jobs: *jobs,
                        work: work.clone(),
                    };
                    points.push(point(name, &load, &device)?);
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(points)
}

fn with_engine(args: &Analyze, engine: Engine) -> Work {
    Work {
        engine,
        ..args.work.clone()
    }
}

/// Tags of a queue of our own in front of a device whose kernel has the tags that are measured.
const NO_BOUND: u32 = 4096;

/// Measures a block device by fio, with each number of the kernel's tags that the driver takes.
fn measure_by_fio(args: &Analyze, jobs: &[u16]) -> Result<Vec<Point>> {
    let tags = sysfs::Tags::of(&args.work.device);
    if !args.hw_queues.is_empty() {
        bail!(
            "--hw-queues: those of {} are set when its driver is loaded; --own measures with queues of \
             dure in front of it",
            args.work.device
        );
    }
    let (before, hw_queues) = tags.as_ref().map_or((0, 1), |t| (t.before, t.hw_queues));
    let mut wanted = match args.nr_requests.as_slice() {
        [] => vec![(before / 4).max(4), before],
        named => named.to_vec(),
    };
    wanted.retain(|nr_requests| {
        let is_set = tags.as_ref().is_some_and(|tags| tags.set(*nr_requests));
        if !is_set && *nr_requests != before {
            let device = &args.work.device;
            crate::note!("dure: {device}: its driver does not take nr_requests = {nr_requests}");
        }
        is_set || *nr_requests == before
    });
    if wanted.is_empty() {
        wanted.push(before);
    }
    let engines = engines(&args.work);
    let bar = measure::bar(engines.len() * wanted.len() * jobs.len(), 1);
    let (mut points, mut untraced) = (Vec::new(), None);
    for (_, engine) in engines {
        let (work, name) = (with_engine(args, engine), fio_name(engine));
        for nr_requests in &wanted {
            if let Some(tags) = &tags {
                tags.set(*nr_requests);
            }
            for jobs in jobs {
                interrupt::check()?;
                bar.set_message(format!("{name}, {nr_requests} tags, {jobs} jobs"));
                let load = Load {
                    hw_queues: 1,
                    nr_requests: NO_BOUND,
                    jobs: *jobs,
                    work: work.clone(),
                };
                let point = point_by_fio(name, &load, &mut untraced)?;
                points.push(Point {
                    hw_queues,
                    nr_requests: *nr_requests,
                    ..point
                });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    if let Some(why) = untraced {
        crate::note!("dure: the phases are those of requests of dure, not the kernel's: {why}");
    }
    Ok(points)
}

fn fio_name(engine: Engine) -> &'static str {
    match engine {
        Engine::Auto | Engine::Uring => "fio io_uring",
        Engine::Psync => "fio psync",
        Engine::Pvsync2 => "fio pvsync2",
        Engine::Libaio => "fio libaio",
    }
}

/// The rate by fio; the phases of the kernel in a second run, or else those of a run of our own.
fn point_by_fio(engine: &'static str, load: &Load, untraced: &mut Option<String>) -> Result<Point> {
    let measured = fio::measure(load)?;
    let told = match untraced {
        None => told_by_kernel(load)?,
        Some(_) => Err(String::new()),
    };
    let (phases, tag_waits_share) = match told {
        Ok(told) => told,
        Err(why) => {
            untraced.get_or_insert(why);
            // Opened only now: while this process has the device open exclusively, fio cannot
            // open it.
            let device = device::open(&load.work, load.jobs)?;
            (stamped(load, &device)?, 0.0)
        }
    };
    let cpu_ns = 1e9 * measured.cpu_share * f64::from(load.jobs);
    Ok(Point {
        engine,
        hw_queues: load.hw_queues,
        nr_requests: load.nr_requests,
        jobs: load.jobs,
        iops: measured.iops,
        p50_ns: measured.p50_ns,
        p99_ns: measured.p99_ns,
        cpu_ns_per_request: cpu_ns / measured.iops.max(1.0),
        cpu_share: measured.cpu_share,
        tag_waits_share,
        phases,
    })
}

/// A request that finds a free tag has it sooner.
const TAG_NS: u64 = 10_000;

/// Phases, and the share of requests that waited for a tag, as the kernel traces them while fio
/// runs; why not, where it does not.
fn told_by_kernel(load: &Load) -> Result<std::result::Result<(Vec<PhaseRow>, f64), String>> {
    let mut shorter = load.clone();
    shorter.work.seconds = (load.work.seconds * STAMPED_PART).max(0.01);
    let ended = AtomicBool::new(false);
    let (run, stamps) = thread::scope(|scope| {
        let run = scope.spawn(|| {
            let measured = fio::measure(&shorter);
            // Relaxed: it only ends the trace.
            ended.store(true, Ordering::Relaxed);
            measured
        });
        let disk = Path::new(&load.work.device);
        let stamps = trace::stamps_of_kernel(disk, || ended.load(Ordering::Relaxed));
        (run.join(), stamps)
    });
    run.unwrap_or_else(|_| bail!("the run of fio panicked"))?;
    interrupt::check()?;
    let stamps = match stamps {
        Ok(stamps) => stamps,
        Err(error) => return Ok(Err(format!("{error:#}"))),
    };
    let phases = Phases::of_stamps(&stamps);
    if phases.d2c.n == 0 {
        return Ok(Err("its driver has no requests".to_owned()));
    }
    let waited = stamps.iter().filter(|s| s.tagged_ns > s.queued_ns + TAG_NS);
    let count = |requests: usize| f64_of(u64::try_from(requests).expect("64 bits"));
    let share = count(waited.count()) / count(stamps.len());
    Ok(Ok((phases::rows(&phases), share)))
}

/// 1, 2, 4 and so on, and `most`.
fn doubled(most: u16) -> Vec<u16> {
    let mut jobs: Vec<_> = std::iter::successors(Some(1_u16), |jobs| jobs.checked_mul(2))
        .take_while(|jobs| *jobs < most)
        .collect();
    jobs.push(most);
    jobs
}

/// The interfaces of a device, with their names.
fn engines(work: &Work) -> Vec<(&'static str, Engine)> {
    match (device::is_in_memory(&work.device), work.engine) {
        (true, _) => vec![("in process", Engine::Auto)],
        (false, Engine::Auto) => vec![("psync", Engine::Psync), ("io_uring", Engine::Uring)],
        (false, Engine::Psync) => vec![("psync", Engine::Psync)],
        (false, Engine::Pvsync2) => vec![("pvsync2", Engine::Pvsync2)],
        (false, Engine::Libaio) => vec![("libaio", Engine::Libaio)],
        (false, Engine::Uring) => vec![("io_uring", Engine::Uring)],
    }
}

fn point(engine: &'static str, load: &Load, device: &Arc<dyn Device>) -> Result<Point> {
    let queue = load.queue_on(Arc::clone(device), Stamping::Off);
    let done = load::run_quietly(load, &queue)?;
    let cpu_ns: u64 = done.tallies.iter().map(|tally| tally.cpu.used_ns).sum();
    let waited_ns: u64 = done.tallies.iter().map(|tally| tally.cpu.waited_ns).sum();
    let (ns, waits) = (done.ns, queue.counters().tag_waits);
    let all = report::all_latencies(done.tallies)?;
    let phases = stamped(load, device)?;
    let requests = f64_of(all.len().max(1));
    let all_ns = f64_of(ns) * f64::from(load.jobs);
    Ok(Point {
        engine,
        hw_queues: load.hw_queues,
        nr_requests: load.nr_requests,
        jobs: load.jobs,
        iops: requests * 1e9 / f64_of(ns),
        p50_ns: all.value_at_quantile(0.5),
        p99_ns: all.value_at_quantile(0.99),
        cpu_ns_per_request: f64_of(cpu_ns) / requests,
        cpu_share: f64_of(cpu_ns + waited_ns) / all_ns,
        tag_waits_share: f64_of(waits) / requests,
        phases,
    })
}

/// The phases of a run with stamps.
fn stamped(load: &Load, device: &Arc<dyn Device>) -> Result<Vec<PhaseRow>> {
    let mut stamped = load.clone();
    stamped.work.seconds = (load.work.seconds * STAMPED_PART).max(0.01);
    let queue = load.queue_on(Arc::clone(device), Stamping::On);
    load::run_quietly(&stamped, &queue)?;
    Ok(phases::rows(&Phases::of(&queue.take_trace())))
}
