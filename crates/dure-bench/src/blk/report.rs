//! The report of a run: rates, latencies, phases, hardware queues.
//!
//! **Structure.** One value that serde prints for programs, and tables of it for people.
//! **Invariants.** Times are in nanoseconds in JSON and say their unit elsewhere. **On a crash**
//! nothing is kept.

use std::fmt::Write;

use anyhow::Result;
use dure_block::{Phases, Queue};
use dure_fs::SubmitLockWaits;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::choices::{Engine, Pattern};
use super::job::Tally;
use super::load::{Done, Load};
use super::phases::{self, PhaseRow};
use crate::measure::{f64_of, histogram};
use crate::report::{Columns, plain_table};
use dure_block::count::Count;

/// Requests of one direction.
#[derive(Debug, Serialize)]
pub(super) struct Direction {
    pub(super) ios: u64,
    pub(super) iops: f64,
    pub(super) bytes_per_s: f64,
    latency_ns: Latency,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Debug, Serialize)]
struct HwQueueReport {
    cores: Vec<u16>,
    reads: u64,
    writes: u64,
    tag_waits: u64,
}

/// A run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    device: String,
    rw: Pattern,
    bs: u64,
    iodepth: u32,
    jobs: u16,
    engine: Engine,
    /// The policies of the volume whose files were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    through_fs: Option<String>,
    nr_requests: u32,
    seconds: f64,
    pub(super) read: Option<Direction>,
    pub(super) write: Option<Direction>,
    /// Requests that waited for a tag, and bios that were merged.
    pub(super) tag_waits: u64,
    pub(super) merges: u64,
    phases: Vec<PhaseRow>,
    hw_queues: Vec<HwQueueReport>,
    /// Of a volume that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) submit_lock: Option<LockReport>,
}

/// The waits for the submission lock of a volume.
#[derive(Debug, Serialize)]
pub(super) struct LockReport {
    pub(super) waits: u64,
    /// The share of the jobs' CPU time that they took, in percent.
    pub(super) cpu_share: f64,
    /// The share of the jobs' time, in percent.
    pub(super) time_share: f64,
}

impl LockReport {
    /// The waits of these jobs.
    fn new(waits: SubmitLockWaits, done: &Done) -> Self {
        let cpu_ns: u64 = done.tallies.iter().map(|tally| tally.cpu.used_ns).sum();
        let jobs = u64::try_from(done.tallies.len()).expect("at most 4096 jobs");
        let share = |part: u64, of: u64| 100.0 * f64_of(part) / f64_of(of.max(1));
        Self {
            waits: waits.waits,
            cpu_share: share(waits.cpu_ns, cpu_ns),
            time_share: share(waits.wait_ns, done.ns * jobs),
        }
    }
}

impl Report {
    /// What `load` did on `queue`, which was made for it.
    pub(super) fn new(load: &Load, queue: &Queue, done: Done) -> Self {
        let counters = queue.counters();
        let trace = queue.take_trace();
        let hw_queues = queue.hw_queues();
        let mut report = Self::plain(load, done);
        report.tag_waits = counters.tag_waits;
        report.merges = counters.merges;
        report.phases = phases::rows(&Phases::of(&trace));
        report.hw_queues = hw_queues
            .iter()
            .map(|queue| HwQueueReport {
                cores: queue.cores.iter().map(|core| core.number()).collect(),
                reads: queue.counters.reads,
                writes: queue.counters.writes,
                tag_waits: queue.counters.tag_waits,
            })
            .collect();
        report
    }

    /// What `load` did on files of a volume with these policies, and how it waited for the
    /// submission lock, if there is one.
    pub(super) fn of_files(
        load: &Load,
        policies: &str,
        done: Done,
        waits: Option<SubmitLockWaits>,
    ) -> Self {
        let submit_lock = waits.map(|waits| LockReport::new(waits, &done));
        Self {
            through_fs: Some(policies.to_owned()),
            submit_lock,
            ..Self::plain(load, done)
        }
    }

    /// Without what only a queue tells.
    fn plain(load: &Load, done: Done) -> Self {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for tally in done.tallies {
            reads.push(tally.reads);
            writes.push(tally.writes);
        }
        let seconds = f64_of(done.ns) / 1e9;
        Self {
            device: load.work.device.clone(),
            rw: load.work.rw,
            bs: load.work.bs,
            iodepth: load.work.iodepth,
            jobs: load.jobs,
            engine: load.work.engine,
            through_fs: None,
            nr_requests: load.nr_requests,
            seconds,
            read: direction(reads, load.work.bs, seconds),
            write: direction(writes, load.work.bs, seconds),
            tag_waits: 0,
            merges: 0,
            phases: Vec::new(),
            hw_queues: Vec::new(),
            submit_lock: None,
        }
    }

    /// Requests a second.
    pub(crate) fn iops(&self) -> f64 {
        let both = [&self.read, &self.write].into_iter().flatten();
        both.map(|direction| direction.iops).sum()
    }

    /// The mean time that a request waited for a tag (Q2G), by that of all that comes behind it.
    pub(crate) fn wait_by_rest(&self) -> f64 {
        let mean = |phase: &str| {
            let row = self.phases.iter().find(|row| row.phase == phase);
            row.map_or(0.0, |row| row.mean_ns)
        };
        let rest = mean("Q2C") - mean("Q2G");
        if rest > 0.0 { mean("Q2G") / rest } else { 0.0 }
    }

    /// The share of the jobs' CPU time that waits for the submission lock took, in percent.
    pub(crate) fn lock_cpu_percent(&self) -> f64 {
        self.submit_lock.as_ref().map_or(0.0, |lock| lock.cpu_share)
    }

    /// The share of a phase, in percent.
    #[cfg(test)]
    pub(super) fn share(&self, phase: &str) -> f64 {
        let row = self.phases.iter().find(|row| row.phase == phase);
        row.and_then(|row| row.share).unwrap_or(0.0)
    }

    /// Number of hardware queues.
    #[cfg(test)]
    pub(super) fn hw_queues(&self) -> usize {
        self.hw_queues.len()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let heads = [
            "", "requests", "IOPS", "MiB/s", "min us", "mean", "p50", "p90", "p99", "p99.9", "max",
        ];
        let mut table = plain_table(&heads, &[0], Columns::All);
        let directions = [("read", &self.read), ("write", &self.write)];
        for (name, direction) in directions {
            let Some(direction) = direction else { continue };
            let latency = &direction.latency_ns;
            let us = |ns: u64| format!("{:.2}", f64_of(ns) / 1e3);
            table.add_row([
                name.to_owned(),
                direction.ios.to_string(),
                format!("{:.0}", direction.iops),
                format!("{:.1}", direction.bytes_per_s / f64_of(1 << 20)),
                us(latency.min),
                format!("{:.2}", latency.mean / 1e3),
                us(latency.p50),
                us(latency.p90),
                us(latency.p99),
                us(latency.p999),
                us(latency.max),
            ]);
        }
        let mut text = table.to_string();
        if !self.phases.is_empty() {
            let _ = write!(text, "\n\n{}", phases::table(&self.phases));
        }
        for (number, queue) in self.hw_queues.iter().enumerate() {
            let cores = Count::of(queue.cores.len(), "core");
            let tags = Count::of(self.nr_requests, "tag");
            let reads = Count::of(queue.reads, "read");
            let writes = Count::of(queue.writes, "write");
            let waits = Count::of(queue.tag_waits, "wait");
            let _ = write!(
                text,
                "\nhardware queue {number} ({cores}, {tags}): {reads}, {writes}, {waits} for a tag"
            );
        }
        if let Some(lock) = &self.submit_lock {
            let _ = write!(
                text,
                "\nsubmission lock: {}, which took {:.1} % of the jobs' CPU time and {:.1} % of \
                 their time",
                Count::of(lock.waits, "wait"),
                lock.cpu_share,
                lock.time_share
            );
        }
        text
    }
}

/// Latencies of all requests of all jobs.
///
/// # Errors
/// Never: its bounds are right.
pub(super) fn all_latencies(tallies: Vec<Tally>) -> Result<Histogram<u64>> {
    let mut all = histogram()?;
    for tally in tallies {
        all += tally.reads;
        all += tally.writes;
    }
    Ok(all)
}

fn direction(latencies: Vec<Histogram<u64>>, bs: u64, seconds: f64) -> Option<Direction> {
    let all = latencies.into_iter().reduce(|mut all, one| {
        all += one;
        all
    })?;
    if all.is_empty() {
        return None;
    }
    let iops = f64_of(all.len()) / seconds;
    Some(Direction {
        ios: all.len(),
        iops,
        bytes_per_s: iops * f64_of(bs),
        latency_ns: Latency {
            min: all.min(),
            mean: all.mean(),
            p50: all.value_at_quantile(0.5),
            p90: all.value_at_quantile(0.9),
            p99: all.value_at_quantile(0.99),
            p999: all.value_at_quantile(0.999),
            max: all.max(),
        },
    })
}
