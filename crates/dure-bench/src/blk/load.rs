//! The load: what is read and written, by how many, for how long.
//!
//! **Structure.** [`Load`] has the options, which `dure bench blk` and `dure blk` share; `run`
//! starts a `Job` on a core of its own for each `--jobs`, shows how far they are, and gathers what
//! they did. **Invariants.** Every request is accounted for: one that fails ends the run with its
//! error. **On a crash** an image file that was made for the run stays behind.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Result, bail};
use dure_block::delay::Model;
use dure_block::{BLOCK_BYTES, Device, HW_QUEUES_MAX, LateWatch, Merge, Queue, QueueConfig, Trace};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, clock, core_count, thread};
use indicatif::{ProgressBar, ProgressStyle};

use super::choices::{Engine, IrqArgs, MergeKind, Pattern, RingArgs, WaitArgs};
use super::device;
use super::job::{Access, Job, Tally};
use crate::interrupt;
use crate::options::core_of;
use dure_block::count::Count;

/// Requests of each core that are kept for the table of phases.
const RECORDS_PER_CORE: usize = 1 << 16;
/// Between two looks at the clock of the bar.
const TICK: Duration = Duration::from_millis(50);
/// A request that has not returned for so long is told.
const LATE: Duration = Duration::from_secs(5);

/// What is done, and on what.
#[derive(Debug, Clone, clap::Args)]
pub struct Work {
    /// null (completes at once, see --irqmode), ram, or a block device or file; a file that is not
    /// there is made (see --size).
    #[arg(long, value_name = "DEVICE", default_value = "null")]
    pub device: String,
    /// Which blocks, and what is done with them.
    #[arg(long, value_enum, default_value_t = Pattern::RandRead)]
    pub rw: Pattern,
    /// Bytes of a request, as in 4K: whole blocks of 4096.
    #[arg(long, default_value = "4K", value_parser = bytes, value_name = "SIZE")]
    pub bs: u64,
    /// Requests that each job has under way; with 1 it makes synchronous calls.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// How submitted requests reach the kernel.
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,
    /// The options of io_uring.
    #[command(flatten)]
    pub ring: RingArgs,
    /// How jobs wait for completions.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Bytes that are used, as in 64M or 1G [default: 256M of null and ram, all of a file].
    #[arg(long, value_parser = bytes, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
    /// Merge requests submitted together that continue one another.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t = MergeKind::None, default_missing_value = "both")]
    pub merge: MergeKind,
    /// Give requests submitted together to the device in the order of their blocks.
    #[arg(long)]
    pub sort: bool,
    /// Requests of null and ram take this many microseconds at least.
    #[arg(long, value_name = "US", conflicts_with = "drive", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub delay: Option<u64>,
    /// null and ram have the times, channels and bandwidth of this drive (a model of its data
    /// sheet): 960-pro, 970-evo, 983-zet, sz985 or intel-750.
    #[arg(long, value_name = "DRIVE", value_parser = drive)]
    pub drive: Option<Model>,
    /// Who completes requests of null.
    #[command(flatten)]
    pub irq: IrqArgs,
    /// Write to the file or block device although it is there; its content is lost.
    #[arg(long)]
    pub overwrite: bool,
}

/// A load on a device.
#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// What is done, and on what.
    #[command(flatten)]
    pub work: Work,
    /// Jobs; each is bound to a core, and has a part of the device to itself for sequential
    /// requests.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub jobs: u16,
    /// Hardware queues. If there are more than cores, each core has several, which it uses in turn.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(HW_QUEUES_MAX)))]
    pub hw_queues: u32,
    /// Tags of each hardware queue: how many of its requests may be in the device.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub nr_requests: u32,
}

/// Whether requests are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamping {
    Off,
    On,
}

/// What the jobs did.
#[derive(Debug)]
pub(super) struct Done {
    /// One for each job.
    pub(super) tallies: Vec<Tally>,
    /// From the start of the first to the end of the last.
    pub(super) ns: u64,
}

impl Load {
    /// A queue with these settings for the device, which is opened.
    pub(super) fn queue(&self, stamping: Stamping) -> Result<Arc<Queue>> {
        Ok(self.queue_on(device::open(&self.work, self.jobs)?, stamping))
    }

    /// A queue with these settings for a device that is open.
    pub(super) fn queue_on(&self, device: Arc<dyn Device>, stamping: Stamping) -> Arc<Queue> {
        let config = QueueConfig {
            hw_queues: self.hw_queues,
            nr_requests: self.nr_requests,
            merge: match self.work.merge {
                MergeKind::None => Merge::Off,
                MergeKind::Back => Merge::Back,
                MergeKind::Front => Merge::Front,
                MergeKind::Both => Merge::Contiguous,
            },
            sort: self.work.sort,
            wait: self.work.wait.policy(),
            trace: match stamping {
                Stamping::On => Trace::Ring {
                    records_per_core: RECORDS_PER_CORE,
                },
                Stamping::Off => Trace::Off,
            },
            ..QueueConfig::default()
        };
        Queue::new(device, config)
    }

    /// Blocks of a request.
    pub(super) fn blocks(&self) -> u64 {
        self.work.bs / block_bytes()
    }

    /// Blocks of the device that are used.
    fn used(&self, queue: &Queue) -> Result<u64> {
        let blocks = self.blocks();
        let size = self
            .work
            .size
            .map_or(u64::MAX, |bytes| bytes / block_bytes());
        let (size, longest) = (
            size.min(queue.info().blocks),
            queue.info().max_blocks_per_request,
        );
        let jobs = u64::from(self.jobs);
        if size / jobs < blocks {
            bail!(
                "--size: {size} blocks have no room for a request of {blocks} of each of {jobs} jobs"
            );
        }
        if self.work.iodepth > 1 && blocks > longest {
            bail!("--bs: the device takes {longest} blocks at once, not {blocks}");
        }
        Ok(size)
    }
}

/// Puts the load on the queue, and returns when the time is over and all requests are complete.
///
/// # Errors
/// A request that fails, a device that is too small.
pub(super) fn run(load: &Load, queue: &Arc<Queue>) -> Result<Done> {
    run_shown(load, queue, show)
}

/// Like [`run`], without telling how far it is.
///
/// # Errors
/// Those of [`run`].
pub(super) fn run_quietly(load: &Load, queue: &Arc<Queue>) -> Result<Done> {
    run_shown(load, queue, |_, _, _| {})
}

fn run_shown(load: &Load, queue: &Arc<Queue>, show: impl Show) -> Result<Done> {
    let size = load.used(queue)?;
    let job = |number| Job::new(load, Access::Device(Arc::clone(queue)), number, size);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| tell_late(queue, &ended));
        let done = run_jobs(load, job, show);
        // Relaxed: it only ends the look-out.
        ended.store(true, Ordering::Relaxed);
        done
    })
}

/// Tells of requests that do not return, until the load has ended.
fn tell_late(queue: &Queue, ended: &AtomicBool) {
    let mut watch = LateWatch::new(LATE);
    while !ended.load(Ordering::Relaxed) {
        for request in queue.late(&mut watch) {
            crate::note!("dure: {request}");
        }
        thread::sleep(TICK);
    }
}

/// Tells people how far a load is that takes so many ns, until it is said to have ended.
pub(super) trait Show: Fn(&Load, u64, &dyn Fn() -> bool) {}

impl<S: Fn(&Load, u64, &dyn Fn() -> bool)> Show for S {}

/// Lets the jobs that `job` makes work, each on its core.
pub(super) fn run_jobs(
    load: &Load,
    job: impl Fn(u16) -> Result<Job>,
    show: impl Show,
) -> Result<Done> {
    let ns = run_ns(load.work.seconds);
    // Jobs that have ended; only tells the bar to, hence Relaxed.
    let (ended, start) = (AtomicU64::new(0), clock::monotonic_ns());
    let tallies: Result<Vec<Tally>> = thread::scope(|scope| {
        let jobs: Vec<_> = (0..load.jobs)
            .map(|number| {
                let job = job(number);
                let ended = &ended;
                scope.spawn_on(core_of(number.into(), core_count()), move || {
                    let done = job.and_then(|job| job.work(ns));
                    ended.fetch_add(1, Ordering::Relaxed);
                    done
                })
            })
            .collect();
        show(load, ns, &|| {
            ended.load(Ordering::Relaxed) == u64::from(load.jobs)
        });
        let done = jobs.into_iter();
        done.map(|job| job.join().unwrap_or_else(|_| bail!("a job panicked")))
            .collect()
    });
    interrupt::check()?;
    let ns = clock::monotonic_ns() - start;
    tallies.map(|tallies| Done { tallies, ns })
}

/// Shows how much of the time is over; hidden when standard error is no terminal.
pub(super) fn show(load: &Load, ns: u64, ended: &dyn Fn() -> bool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let style = ProgressStyle::with_template("[{bar:40}] {percent}%, {eta} left, {msg}");
    let bar = ProgressBar::new(ns)
        .with_style(style.expect("the template is right").progress_chars("=> "))
        .with_message(format!(
            "{} on {}",
            Count::of(load.jobs, "job"),
            load.work.device
        ));
    let start = clock::monotonic_ns();
    while !ended() {
        bar.set_position((clock::monotonic_ns() - start).min(ns));
        thread::sleep(TICK);
    }
    bar.finish_and_clear();
}

pub(super) fn drive(name: &str) -> Result<Model, String> {
    Model::of_drive(name).ok_or_else(|| format!("there are: {}", Model::DRIVES.join(", ")))
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is no size; write it like 4K, 64M or 1G, in whole blocks of 4K");
    let upper = text.to_ascii_uppercase();
    let (digits, shift) = match upper.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(digits) if upper.ends_with('K') => (digits, 10),
        Some(digits) if upper.ends_with('M') => (digits, 20),
        Some(digits) if upper.ends_with('G') => (digits, 30),
        Some(digits) => (digits, 40),
        None => (upper.as_str(), 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(bad)?;
    let whole = bytes > 0 && bytes.is_multiple_of(block_bytes());
    if whole { Ok(bytes) } else { Err(bad()) }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is between 0.01 and 86400 seconds".into()),
    }
}

pub(super) fn block_bytes() -> u64 {
    u64::try_from(BLOCK_BYTES).expect("a block is small")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 10 ms and a day, checked where it was read"
)]
pub(super) fn run_ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
