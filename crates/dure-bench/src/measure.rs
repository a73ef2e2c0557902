//! Running workloads on targets in turn.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use dure_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dure_sync::{CoreId, clock, thread};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::target::{Counts, Target, Worker};
use crate::workload::Workload;

/// What is to be run.
#[derive(Debug)]
pub struct Plan {
    /// The operations.
    pub workloads: Vec<Workload>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Measurements of each point.
    pub repeat: u32,
    /// Milliseconds of one measurement.
    pub run_ms: u64,
    /// Milliseconds of warm-up.
    pub warm_up_ms: u64,
}

/// All measurements of one point.
#[derive(Debug)]
pub struct Point {
    /// The operation.
    pub workload: Workload,
    /// Threads.
    pub threads: usize,
    /// The target's name.
    pub target: String,
    /// The target's policies.
    pub policy: String,
    /// Operations a second of all threads together, one number a repetition.
    pub rates: Vec<f64>,
    /// Latencies of sampled operations, in ns.
    pub latencies: Histogram<u64>,
    /// Operations of all repetitions, warm-up included.
    pub operations: u64,
    /// What the target counted in them, if it counts.
    pub counts: Option<Counts>,
}

impl Point {
    /// A count of the target for each operation.
    #[must_use]
    pub fn per_operation(&self, count: impl Fn(&Counts) -> u64) -> Option<f64> {
        let counts = self.counts.as_ref()?;
        (self.operations > 0).then(|| f64_of(count(counts)) / f64_of(self.operations))
    }

    /// The median rate.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => 0.0,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }
}

/// Measures every workload at every number of threads, all targets in turn in each repetition.
///
/// # Errors
/// The first operation that fails.
pub fn run(targets: &[Target], plan: &Plan) -> Result<Vec<Point>> {
    let mut results = Vec::new();
    let points = plan.workloads.len() * plan.threads.len();
    let bar = bar(points, plan.repeat);
    for &workload in &plan.workloads {
        for &threads in &plan.threads {
            let mut points = Vec::new();
            let mut workers = Vec::new();
            let offering: Vec<_> = targets.iter().filter(|t| t.offers(workload)).collect();
            for target in &offering {
                let made = (0..threads)
                    .map(|n| target.worker(workload, n))
                    .collect::<Result<Vec<_>>>();
                workers.push(made.with_context(|| target.name().to_owned())?);
                points.push(Point {
                    workload,
                    threads,
                    target: target.name().to_owned(),
                    policy: target.policy().to_owned(),
                    rates: Vec::new(),
                    latencies: histogram()?,
                    operations: 0,
                    counts: target.counts().map(|_| Counts::default()),
                });
            }
            for _ in 0..plan.repeat {
                let each = points.iter_mut().zip(&mut workers).zip(&offering);
                for ((point, workers), target) in each {
                    let before = target.counts();
                    measure(point, workers, plan)
                        .with_context(|| format!("{} on {}", workload.name(), target.name()))?;
                    if let (Some(sum), Some(before), Some(after)) =
                        (&mut point.counts, before, target.counts())
                    {
                        sum.add(&before, &after);
                    }
                }
                bar.inc(1);
            }
            results.append(&mut points);
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

fn bar(points: usize, repeat: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let total = u64::try_from(points).unwrap_or(0) * u64::from(repeat);
    let style = ProgressStyle::with_template("measuring [{bar:40}] {pos}/{len}, {eta} left");
    ProgressBar::new(total).with_style(style.expect("constant").progress_chars("=> "))
}

/// Latencies from a nanosecond to ten minutes, to three digits.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).context("a histogram")
}

const WARM: u32 = 0;
const RUN: u32 = 1;
const STOP: u32 = 2;

fn measure(point: &mut Point, workers: &mut [Box<dyn Worker>], plan: &Plan) -> Result<()> {
    // Written by this thread, read by the workers: the phase of the run.
    let phase = AtomicU32::new(WARM);
    let ready = AtomicUsize::new(0);
    let batch = point.workload.batch();
    let count = workers.len();
    let done: Vec<Result<Share>> = thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(n, worker)| {
                let (phase, ready) = (&phase, &ready);
                let core = u16::try_from(n % dure_sync::core_count()).expect("cores are few");
                scope.spawn_on(CoreId::new(core), move || {
                    work(worker.as_mut(), batch, phase, ready)
                })
            })
            .collect();
        // Acquire: pairs with the Release in `work`.
        while ready.load(Ordering::Acquire) < count {
            thread::yield_now();
        }
        thread::sleep(std::time::Duration::from_millis(plan.warm_up_ms));
        phase.store(RUN, Ordering::Release);
        thread::sleep(std::time::Duration::from_millis(plan.run_ms));
        phase.store(STOP, Ordering::Release);
        handles
            .into_iter()
            .map(|handle| handle.join().expect("workers return errors"))
            .collect()
    });
    let mut rate = 0.0;
    for share in done {
        let share = share?;
        rate += share.rate;
        point.operations += share.operations;
        point
            .latencies
            .add(&share.latencies)
            .context("adding histograms")?;
    }
    point.rates.push(rate);
    Ok(())
}

/// What one thread did in the measured phase.
struct Share {
    rate: f64,
    /// With those of the warm-up.
    operations: u64,
    latencies: Histogram<u64>,
}

fn work(
    worker: &mut dyn Worker,
    batch: u64,
    phase: &AtomicU32,
    ready: &AtomicUsize,
) -> Result<Share> {
    let mut latencies = histogram()?;
    // Release: whatever this thread set up is there when the clock starts.
    ready.fetch_add(1, Ordering::Release);
    let mut turn = 0;
    while phase.load(Ordering::Acquire) == WARM {
        for _ in 0..batch {
            worker.operate(turn)?;
            turn += 1;
        }
    }
    let first = turn;
    let start = clock::monotonic_ns();
    let mut now = start;
    while phase.load(Ordering::Acquire) == RUN {
        // One operation of each batch is timed by itself; two looks at the clock cost about 50 ns, a
        // small part of a batch.
        worker.operate(turn)?;
        let after_one = clock::monotonic_ns();
        latencies.saturating_record(after_one - now);
        for n in 1..batch {
            worker.operate(turn + n)?;
        }
        turn += batch;
        now = clock::monotonic_ns();
    }
    let seconds = f64_of(now - start) / 1e9;
    let rate = if seconds > 0.0 {
        f64_of(turn - first) / seconds
    } else {
        0.0
    };
    Ok(Share {
        rate,
        operations: turn,
        latencies,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times far below 2^52"
)]
fn f64_of(value: u64) -> f64 {
    value as f64
}
