//! The benches, called for a part of a figure.
//!
//! **Structure.** Volumes are made for a part and measured by `crate::measure`, which lets them take
//! turns; loads of requests take turns here; a trace is replayed once for all figures of it.
//! **Invariants.** A value comes with all that was measured of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;

use super::Compare;
use super::table::{FILE, Load, Metric, Part, Syncs, System};
use crate::blk::{self, Blk};
use crate::device::{self, Device};
use crate::filebench::{Personality, Servers};
use crate::fxmark::Suite;
use crate::measure::{Plan, Point, bar, run};
use crate::options::{all_cores, whole_ns};
use crate::target::Target;
use crate::tpcc::{self, Tpcc};
use crate::{aim7, interrupt};

/// Bytes of a volume.
const VOLUME_BYTES: u64 = 2 << 30;
/// Files of a fileserver: a volume has room for those of `data=journal`, too.
const FILES: usize = 2000;
/// KiB of a file of AIM7, which are synced one by one in some jobs: a measurement has many jobs.
const AIM7_KIB: u64 = 128;
/// So many that the periodic sync comes some times.
const TRANSACTIONS: u32 = 5000;
const WARM_UP_MS: u64 = 100;

/// What came out of one system with some threads.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) workload: String,
    pub(super) system: &'static str,
    pub(super) threads: usize,
    pub(super) unit: &'static str,
    /// Ascending.
    pub(super) values: Vec<f64>,
}

impl Value {
    pub(super) fn median(&self) -> f64 {
        match self.values.len() {
            0 => 0.0,
            n => f64::midpoint(self.values[(n - 1) / 2], self.values[n / 2]),
        }
    }

    pub(super) fn min(&self) -> f64 {
        self.values.first().copied().unwrap_or_default()
    }

    pub(super) fn max(&self) -> f64 {
        self.values.last().copied().unwrap_or_default()
    }
}

fn value(
    load: Load,
    metric: Metric,
    (system, threads): (&System, usize),
    values: Vec<f64>,
) -> Value {
    let (words, unit) = metric.words();
    let separator = if words.is_empty() { "" } else { ": " };
    let mut values = values;
    values.sort_by(f64::total_cmp);
    Value {
        workload: format!("{}{separator}{words}", load.name()),
        system: system.name,
        threads,
        unit,
        values,
    }
}

/// A bench's own arguments, from a line.
#[derive(Debug, Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    own: A,
}

fn parsed<A: clap::Args>(line: &[String]) -> Result<A> {
    let words = std::iter::once("dure".to_owned()).chain(line.iter().cloned());
    let line = Line::try_parse_from(words);
    Ok(line.context("a line of the table")?.own)
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_ascii_whitespace().map(str::to_owned)
}

/// All runs of each system, the shortest first.
type Replayed = Vec<(&'static str, Vec<tpcc::Run>)>;

/// Measures parts of figures.
#[derive(Debug)]
pub(super) struct Measurer<'a> {
    args: &'a Compare,
    /// Traces that were replayed.
    replayed: Vec<(Syncs, Replayed)>,
    /// The file that is read where no device is named, in its directory.
    file: Option<TempDir>,
}

impl<'a> Measurer<'a> {
    pub(super) fn new(args: &'a Compare) -> Result<Measurer<'a>> {
        if let Some(directory) = &args.directory {
            let is_there = directory.is_dir();
            anyhow::ensure!(
                is_there,
                "--directory {}: it is no directory",
                directory.display()
            );
        }
        Ok(Measurer {
            args,
            replayed: Vec::new(),
            file: None,
        })
    }

    /// Measures a part.
    ///
    /// # Errors
    /// A volume or device that cannot be had, an operation that fails.
    pub(super) fn part(&mut self, part: &'static Part) -> Result<Vec<Value>> {
        match part.load {
            Load::Trace(syncs, metrics) => self.trace(part, syncs, metrics),
            Load::Requests(options, metrics) => self.requests(part, options, metrics),
            _ => self.volumes(part),
        }
    }

    fn threads(&self, part: &Part) -> Vec<usize> {
        let own = self.args.threads.iter().copied();
        match (self.args.threads.is_empty(), part.threads) {
            (false, _) => own.map(usize::from).collect(),
            (true, []) => all_cores(),
            (true, threads) => threads.to_vec(),
        }
    }

    fn seconds(&self, part: &Part) -> f64 {
        self.args.seconds.unwrap_or(part.load.seconds())
    }

    fn volumes(&self, part: &'static Part) -> Result<Vec<Value>> {
        let memory = Path::new("/dev/shm");
        let place = match &self.args.directory {
            Some(named) => named.clone(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::current_dir().context("the current directory")?,
        };
        let target = |system: &System| {
            Target::temporary(system.name, &part.policy(system), &place, VOLUME_BYTES)
        };
        let targets: Vec<Target> = part.systems.iter().map(target).collect::<Result<_>>()?;
        let plan = Plan {
            cores: self.threads(part),
            repeat: self.args.repeat,
            run_ns: whole_ns(self.seconds(part)),
            warm_up_ns: self.args.warm_up.unwrap_or(WARM_UP_MS) * 1_000_000,
        };
        let points = points(part.load, &targets, &plan)?;
        targets.into_iter().try_for_each(Target::close)?;
        let value_of = |point: Point| {
            let mut systems = part.systems.iter();
            let system = systems.find(|system| system.name == point.target);
            let whose = (system.expect("it is one of the targets"), point.cores);
            value(part.load, Metric::Rate, whose, point.rates())
        };
        Ok(points.into_iter().map(value_of).collect())
    }

    fn trace(
        &mut self,
        part: &'static Part,
        syncs: Syncs,
        metrics: &[Metric],
    ) -> Result<Vec<Value>> {
        if !self.replayed.iter().any(|(done, _)| *done == syncs) {
            let transactions = self.args.transactions.unwrap_or(TRANSACTIONS);
            let repeat = self.args.repeat;
            let line = format!("--transactions {transactions} --repeat {repeat}");
            let no_sync = (syncs == Syncs::Periodic).then_some("--no-sync".to_owned());
            let args: Tpcc = parsed(&words(&line).chain(no_sync).collect::<Vec<_>>())?;
            let policies = part
                .systems
                .iter()
                .map(|system| (system.name, system.policy));
            let runs = tpcc::compare(&args, &policies.collect::<Vec<_>>())?;
            self.replayed.push((syncs, runs));
        }
        let mut replayed = self.replayed.iter();
        let (_, runs) = replayed
            .find(|(done, _)| *done == syncs)
            .expect("it was replayed");
        let mut values = Vec::new();
        for metric in metrics {
            for (system, (_, runs)) in part.systems.iter().zip(runs) {
                let of_runs = runs.iter().map(|run| of_run(*metric, run)).collect();
                values.push(value(part.load, *metric, (system, 1), of_runs));
            }
        }
        Ok(values)
    }

    /// The file or device that is read, and its size if it has to be made.
    fn file(&mut self) -> Result<(PathBuf, Option<&'static str>)> {
        if let Some(device) = &self.args.device {
            return Ok((device.clone(), None));
        }
        if self.file.is_none() {
            let here = || std::env::current_dir().context("the current directory");
            let place = self.args.directory.clone().map_or_else(here, Ok)?;
            let made = tempfile::Builder::new()
                .prefix("dure-bench-")
                .tempdir_in(&place);
            self.file = Some(made.with_context(|| place.display().to_string())?);
        }
        let folder = self.file.as_ref().expect("it was made");
        Ok((folder.path().join("file"), Some("128M")))
    }

    fn requests(
        &mut self,
        part: &'static Part,
        options: &str,
        metrics: &[Metric],
    ) -> Result<Vec<Value>> {
        let mut common: Vec<String> = words(options).collect();
        if part.load.is_on_a_file() {
            let (path, size) = self.file()?;
            let path = path.to_str().context("a path in UTF-8")?;
            for word in common.iter_mut().filter(|word| *word == FILE) {
                path.clone_into(word);
            }
            common.extend(
                size.into_iter()
                    .flat_map(|size| ["--size".into(), size.into()]),
            );
        }
        if metrics.contains(&Metric::WaitByRest) {
            common.push("--phases".to_owned());
        }
        let (seconds, threads) = (self.seconds(part), self.threads(part));
        let progress = bar(threads.len() * part.systems.len(), self.args.repeat);
        let mut values = Vec::new();
        for threads in threads {
            let mut lines = Vec::new();
            for system in part.systems {
                let own = words(system.policy).chain(words(part.medium));
                let own = own.chain(["--jobs".to_owned(), threads.to_string()]);
                let args: Blk = parsed(&common.iter().cloned().chain(own).collect::<Vec<_>>())?;
                lines.push((system, args, vec![Vec::new(); metrics.len()]));
            }
            self.warm(&lines)?;
            for _ in 0..self.args.repeat {
                for (_, args, found) in &mut lines {
                    interrupt::check()?;
                    args.load.work.seconds = seconds.max(LEAST_SECONDS);
                    let report = blk::measure(args)?;
                    for (metric, found) in metrics.iter().zip(found) {
                        found.push(of_requests(*metric, &report));
                    }
                    progress.inc(1);
                }
            }
            for (system, _, found) in lines {
                let found = metrics.iter().zip(found);
                values.extend(found.map(|(metric, of_runs)| {
                    value(part.load, *metric, (system, threads), of_runs)
                }));
            }
        }
        progress.finish_and_clear();
        // A table has all values of a metric together.
        values.sort_by_key(|one| one.workload.clone());
        Ok(values)
    }

    /// One run of each that does not count.
    fn warm(&self, lines: &[(&System, Blk, Vec<Vec<f64>>)]) -> Result<()> {
        let ms = self.args.warm_up.unwrap_or(WARM_UP_MS);
        if ms == 0 {
            return Ok(());
        }
        for (_, args, _) in lines {
            let mut args = args.clone();
            args.load.work.seconds = (crate::measure::f64_of(ms) / 1e3).max(LEAST_SECONDS);
            blk::measure(&args)?;
        }
        Ok(())
    }
}

/// `dure bench blk` measures no shorter.
const LEAST_SECONDS: f64 = 0.01;

fn points(load: Load, targets: &[Target], plan: &Plan) -> Result<Vec<Point>> {
    match load {
        Load::FxMark(workload) => run(&Suite::of(plan), &[workload], targets, plan),
        Load::Filebench(personality, folders) => {
            let mut points = Vec::new();
            for cores in &plan.cores {
                let servers = servers(personality, folders, *cores);
                let plan = Plan {
                    cores: vec![*cores],
                    ..plan.clone()
                };
                points.append(&mut run(&servers, &[personality], targets, &plan)?);
            }
            Ok(points)
        }
        Load::Aim7(mix) => run(
            &aim7::Machine::with_files_of(AIM7_KIB),
            &[mix],
            targets,
            plan,
        ),
        Load::Misses => {
            let line = words("--file-mib 128").collect::<Vec<_>>();
            let device: Device = parsed(&line)?;
            run(&device, &[device::Workload::RandomRead], targets, plan)
        }
        Load::Trace(..) | Load::Requests(..) => unreachable!("they need no volumes"),
    }
}

/// A worker for each core, as the document has it.
fn servers(personality: Personality, folders: Option<usize>, cores: usize) -> Servers {
    let is_fileserver = personality == Personality::Fileserver;
    Servers {
        workers: Some(cores),
        files: is_fileserver.then_some(FILES),
        width: folders.map(|folders| FILES.div_ceil(folders)),
    }
}

fn of_run(metric: Metric, run: &tpcc::Run) -> f64 {
    match metric {
        Metric::Total => run.total_s(),
        Metric::Mean => run.mean_us(),
        Metric::Deviation => run.deviation_us(),
        Metric::Shortest => run.shortest_us(),
        Metric::Longest => run.longest_us(),
        Metric::Rate | Metric::WaitByRest | Metric::LockCpu => unreachable!("of requests"),
    }
}

fn of_requests(metric: Metric, report: &blk::Report) -> f64 {
    match metric {
        Metric::WaitByRest => report.wait_by_rest(),
        Metric::LockCpu => report.lock_cpu_percent(),
        _ => report.iops(),
    }
}
