//! The options that all benches share.

use std::path::PathBuf;

use anyhow::{Context, Result};
use comfy_table::Table;
use dure_sync::CoreId;
use serde::Serialize;

use crate::measure::{Plan, Point};
use crate::report::{self, Columns};
use crate::target::Target;

/// How to measure, and how to report.
#[derive(Debug, Clone, clap::Args)]
pub struct Measuring {
    /// Numbers of cores, with a worker bound to each [default: 1, 2, 4 and so on, and all].
    #[arg(long, visible_alias = "threads", value_delimiter = ',', value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub cores: Vec<u16>,
    /// Measurements of each point; their median counts.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Seconds of one measurement, as in 30 or 0.2 [default: 0.2; locks 0.02, filebench 1,
    /// aim7 2].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Milliseconds of one measurement, instead of seconds.
    #[arg(long, value_name = "MS", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub milliseconds: Option<u64>,
    /// Milliseconds of warm-up before each measurement: a core that was idle comes up slowly.
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warm_up: u64,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
    /// Print all columns; without, a table keeps to 100 characters.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
    /// Also draw throughput over cores, a chart for each workload, into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is between 0.001 and 3600 seconds".into()),
    }
}

impl Measuring {
    /// The plan; `run_ms` is the length of a measurement when none was named.
    #[must_use]
    pub fn plan(&self, run_ms: u64) -> Plan {
        let ns = |ms: u64| ms * 1_000_000;
        let named = self.seconds.map(whole_ns);
        let run_ns = named.or(self.milliseconds.map(ns)).unwrap_or(ns(run_ms));
        Plan {
            cores: if self.cores.is_empty() {
                all_cores()
            } else {
                self.cores.iter().map(|cores| usize::from(*cores)).collect()
            },
            repeat: self.repeat,
            run_ns,
            warm_up_ns: ns(self.warm_up),
        }
    }

    /// Prints the report, and draws it if a drawing is wanted.
    ///
    /// # Errors
    /// The drawing cannot be written.
    pub fn report(&self, bench: &'static str, points: &[Point]) -> Result<()> {
        self.report_beside::<()>(bench, points, &[], None)
    }

    /// Like [`Measuring::report`], with figures of the bench's own: objects for programs, a table
    /// for people.
    ///
    /// # Errors
    /// The drawing cannot be written.
    pub(crate) fn report_beside<R: Serialize>(
        &self,
        bench: &'static str,
        points: &[Point],
        own: &[R],
        table: Option<Table>,
    ) -> Result<()> {
        if self.json {
            report::print(&report::json_beside(bench, points, own)?);
        } else {
            let columns = Columns::of(self.wide);
            let tables = std::iter::once(report::table(points, columns)).chain(table);
            tables.for_each(|table| report::print(&table.to_string()));
        }
        match &self.svg {
            Some(path) => report::draw(path, bench, points),
            None => Ok(()),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between a millisecond and an hour, checked where it was read"
)]
pub(crate) fn whole_ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Powers of two up to the cores there are, and all of them.
pub(crate) fn all_cores() -> Vec<usize> {
    let count = dure_sync::core_count();
    let mut cores: Vec<_> = std::iter::successors(Some(1), |cores| Some(cores * 2))
        .take_while(|cores| *cores < count)
        .collect();
    cores.push(count);
    cores
}

/// The core of a worker; if there are more workers than cores, cores are assigned in turn.
#[must_use]
pub(crate) fn core_of(number: usize, cores: usize) -> CoreId {
    let core = number % cores.min(dure_sync::core_count()).max(1);
    CoreId::new(u16::try_from(core).expect("cores are few"))
}

/// What to measure on.
#[derive(Debug, Clone, clap::Args)]
pub struct Targets {
    /// What to measure on, several times: dure:VOLUME[,OPTION...] (a volume that is not mounted,
    /// through the library; if VOLUME is a directory, a temporary volume in it; options: the
    /// policies of `dure mount -o`), dir:PATH (a directory of any mounted file system),
    /// raw:PATH[,pages=N] (a device or file, which is overwritten: the floor of synchronous
    /// writes), or copy (a plain copy of 4 KiB, a plain loop for metadata: what this machine can
    /// do) [default: a temporary volume in the current directory, and that directory].
    #[arg(long = "target", value_name = "TARGET")]
    pub targets: Vec<String>,
}

impl Targets {
    /// Opens them.
    ///
    /// # Errors
    /// Those of [`Target::open`].
    pub fn open(&self) -> Result<Vec<Target>> {
        if self.targets.is_empty() {
            let here = std::env::current_dir().context("the current directory")?;
            return Target::defaults(&here);
        }
        self.targets.iter().map(|text| Target::open(text)).collect()
    }
}
