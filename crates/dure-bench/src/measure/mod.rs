//! Measuring the workloads of a bench on all subjects in turn.

mod cpu;
mod crew;
mod point;
pub(crate) mod process;
mod work;

use std::io::IsTerminal;

use anyhow::{Context, Result};
use dure_block::NodeCounters;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt;

pub use cpu::Cpu;
pub(crate) use crew::{Crew, Hiring};
pub use point::{Part, Point, Run, WorkerKind};
pub(crate) use work::histogram;
pub use work::{Share, Window, Worker};

/// How long and how often is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of cores.
    pub cores: Vec<usize>,
    /// Measurements of each point.
    pub repeat: u32,
    /// Nanoseconds of one measurement.
    pub run_ns: u64,
    /// Nanoseconds of warm-up.
    pub warm_up_ns: u64,
}

impl Plan {
    fn window_from(&self, now: u64) -> Window {
        let start_ns = now + self.warm_up_ns;
        Window {
            start_ns,
            stop_ns: start_ns + self.run_ns,
        }
    }
}

/// What a volume has counted so far.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Bytes written to the logs, in whole blocks.
    pub log_bytes: u64,
    /// Bytes of records among `log_bytes`.
    pub record_bytes: u64,
    /// Flushes that were asked for.
    pub flushes: u64,
    /// Flushes that reached the device.
    pub device_flushes: u64,
    /// What was copied from and to persistent memory, by NUMA node; all zero if that is not counted.
    pub nodes: NodeCounters,
}

impl Counts {
    /// Adds what was counted between two moments.
    fn add(&mut self, before: &Counts, after: &Counts) {
        self.log_bytes += after.log_bytes - before.log_bytes;
        self.record_bytes += after.record_bytes - before.record_bytes;
        self.flushes += after.flushes - before.flushes;
        self.device_flushes += after.device_flushes - before.device_flushes;
        self.nodes.local_read += after.nodes.local_read - before.nodes.local_read;
        self.nodes.remote_read += after.nodes.remote_read - before.nodes.remote_read;
        self.nodes.local_written += after.nodes.local_written - before.nodes.local_written;
        self.nodes.remote_written += after.nodes.remote_written - before.nodes.remote_written;
    }
}

/// One of the systems that are compared.
pub(crate) trait Subject {
    /// Its name in reports.
    fn name(&self) -> &str;
    /// Its policies.
    fn policy(&self) -> &str;
    /// What it has counted, if it counts.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// A set of workloads on one kind of subject.
pub(crate) trait Bench {
    type Subject: Subject;
    type Workload: Copy;

    fn name(&self, workload: Self::Workload) -> &'static str;

    /// Workers on `cores` cores with everything made that they share; `None` if the subject cannot
    /// do this at all.
    fn crew(
        &self,
        subject: &Self::Subject,
        workload: Self::Workload,
        cores: usize,
    ) -> Result<Option<Crew>>;
}

/// Measures every workload at every number of cores, all subjects in turn in each repetition.
///
/// # Errors
/// The first operation that fails, or did not do what it claims.
pub(crate) fn run<B: Bench>(
    bench: &B,
    workloads: &[B::Workload],
    subjects: &[B::Subject],
    plan: &Plan,
) -> Result<Vec<Point>> {
    let mut results = Vec::new();
    let bar = bar(workloads.len() * plan.cores.len(), plan.repeat);
    for &workload in workloads {
        for &cores in &plan.cores {
            bar.set_message(format!("{} {cores}", bench.name(workload)));
            results.append(&mut compare(
                bench,
                (workload, cores),
                subjects,
                (plan, &bar),
            )?);
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// One workload at one number of cores on all subjects.
fn compare<B: Bench>(
    bench: &B,
    (workload, cores): (B::Workload, usize),
    subjects: &[B::Subject],
    (plan, bar): (&Plan, &ProgressBar),
) -> Result<Vec<Point>> {
    let place = |subject: &B::Subject| format!("{} on {}", bench.name(workload), subject.name());
    let mut field = Vec::new();
    for subject in subjects {
        let crew = bench.crew(subject, workload, cores);
        let Some(crew) = crew.with_context(|| place(subject))? else {
            continue;
        };
        let whose = (subject.name(), subject.policy());
        let workers = (crew.size(), crew.kind());
        let point = Point::new(bench.name(workload), cores, whose, workers)?;
        field.push((subject, crew, point));
    }
    for _ in 0..plan.repeat {
        for (subject, crew, point) in &mut field {
            let measured = measure_into(point, *subject, crew, plan);
            measured.with_context(|| place(subject))?;
        }
        bar.inc(1);
    }
    let mut points = Vec::new();
    for (subject, crew, point) in field {
        crew.end().with_context(|| place(subject))?;
        points.push(point);
    }
    Ok(points)
}

/// One measurement of a point.
///
/// # Errors
/// The first operation that fails.
pub(crate) fn measure_into(
    point: &mut Point,
    subject: &impl Subject,
    crew: &mut Crew,
    plan: &Plan,
) -> Result<()> {
    interrupt::check()?;
    let mut before = None;
    let shares = crew.measure(plan, || before = subject.counts());
    point.add(&shares?)?;
    if let (Some(before), Some(after)) = (before, subject.counts()) {
        let counts = point.counts.get_or_insert_default();
        counts.add(&before, &after);
    }
    Ok(())
}

/// Progress over all measurements of all points; hidden when standard error is no terminal.
pub(crate) fn bar(points: usize, repeat: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let total = u64::try_from(points).unwrap_or(0) * u64::from(repeat);
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len}, {eta} left, {msg}");
    ProgressBar::new(total).with_style(style.expect("the template is right").progress_chars("=> "))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times far below 2^52"
)]
pub(crate) fn f64_of(value: u64) -> f64 {
    value as f64
}
