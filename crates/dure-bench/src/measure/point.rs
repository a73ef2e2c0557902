//! All measurements of one point.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::work::{Share, histogram};
use super::{Counts, Cpu, f64_of};

/// What one worker did in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its works.
    pub works: u64,
    /// Its time.
    pub ns: u64,
    /// The CPU time it used.
    pub cpu: Cpu,
}

/// One measurement: all workers together.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Works of all workers.
    pub works: u64,
    /// Mean of their times.
    pub seconds: f64,
    /// Worker by worker.
    pub parts: Vec<Part>,
}

impl Run {
    /// Works a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            f64_of(self.works) / self.seconds
        } else {
            0.0
        }
    }
}

/// All measurements of one workload on one target by one number of cores.
#[derive(Debug)]
pub struct Point {
    /// The workload.
    pub workload: String,
    /// Cores.
    pub cores: usize,
    /// Workers.
    pub workers: usize,
    /// What the workers are.
    pub kind: WorkerKind,
    /// The target's name.
    pub target: String,
    /// The target's policies.
    pub policy: String,
    /// The measurements.
    pub runs: Vec<Run>,
    /// Latencies of sampled operations, in ns.
    pub latencies: Histogram<u64>,
    /// Works of all measurements, warm-up included.
    pub works_in_all: u64,
    /// What the target counted in them, if it counts.
    pub counts: Option<Counts>,
}

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerKind {
    /// A thread of this process.
    Threads,
    /// A process, if the target is a directory; a volume belongs to one process.
    Processes,
}

impl WorkerKind {
    /// The kind that `--processes` says.
    #[must_use]
    pub fn of(processes: bool) -> WorkerKind {
        if processes {
            WorkerKind::Processes
        } else {
            WorkerKind::Threads
        }
    }

    /// In reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WorkerKind::Threads => "threads",
            WorkerKind::Processes => "processes",
        }
    }
}

impl Point {
    /// Adds a measurement.
    pub(crate) fn add(&mut self, shares: &[Share]) -> Result<()> {
        assert_eq!(shares.len(), self.workers, "every worker has a share");
        let ns: u64 = shares.iter().map(|share| share.ns).sum();
        let count = u64::try_from(shares.len()).context("workers are few")?;
        let part = |share: &Share| Part {
            works: share.works,
            ns: share.ns,
            cpu: share.cpu,
        };
        self.runs.push(Run {
            works: shares.iter().map(|share| share.works).sum(),
            seconds: f64_of(ns / count) / 1e9,
            parts: shares.iter().map(part).collect(),
        });
        for share in shares {
            self.works_in_all += share.works_in_all;
            self.latencies.add(&share.latencies).context("latencies")?;
        }
        Ok(())
    }

    /// A count of the target for each work.
    #[must_use]
    pub fn per_work(&self, count: impl Fn(&Counts) -> u64) -> Option<f64> {
        let counts = self.counts.as_ref()?;
        (self.works_in_all > 0).then(|| f64_of(count(counts)) / f64_of(self.works_in_all))
    }

    /// The percentage that the first of two byte counts of the target has of both together; `None`
    /// if there were no bytes.
    #[must_use]
    pub fn percent(&self, counts: impl Fn(&Counts) -> (u64, u64)) -> Option<f64> {
        let (part, other) = counts(self.counts.as_ref()?);
        let all = part + other;
        (all > 0).then(|| f64_of(part) / f64_of(all) * 100.0)
    }

    /// The measurement in the middle, the lower one of two.
    #[must_use]
    pub fn middle(&self) -> Option<&Run> {
        let mut sorted: Vec<&Run> = self.runs.iter().collect();
        sorted.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }

    /// The rates, from the lowest.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.runs.iter().map(Run::rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// The median rate.
    #[must_use]
    pub fn median(&self) -> f64 {
        let rates = self.rates();
        match rates.len() {
            0 => 0.0,
            n => f64::midpoint(rates[(n - 1) / 2], rates[n / 2]),
        }
    }

    pub(crate) fn new(
        workload: &str,
        cores: usize,
        target: (&str, &str),
        workers: (usize, WorkerKind),
    ) -> Result<Point> {
        let (target, policy) = target;
        let (workers, kind) = workers;
        Ok(Point {
            workload: workload.to_owned(),
            cores,
            workers,
            kind,
            target: target.to_owned(),
            policy: policy.to_owned(),
            runs: Vec::new(),
            latencies: histogram()?,
            works_in_all: 0,
            counts: None,
        })
    }
}
