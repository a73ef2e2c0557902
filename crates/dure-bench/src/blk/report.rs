//! The report of a run: rates, latencies, phases, hardware queues.
//!
//! **Structure.** One value that serde prints for programs, and tables of it for people.
//! **Invariants.** Times are in nanoseconds in JSON and say their unit elsewhere. **On a crash**
//! nothing is kept.

use std::fmt::Write;

use anyhow::Result;
use dure_block::{Phases, Queue};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::job::Tally;
use super::load::{Done, Engine, Load, Pattern};
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
pub(super) struct Report {
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

    /// What `load` did on files of a volume with these policies.
    pub(super) fn of_files(load: &Load, policies: &str, done: Done) -> Self {
        Self {
            through_fs: Some(policies.to_owned()),
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
        }
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
