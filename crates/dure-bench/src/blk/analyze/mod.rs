//! Where the scaling of a device ends, why, and which settings help.
//!
//! **Problem.** A device that does not get faster with more jobs may lack request tags or hardware
//! queues, share a lock, be busy itself, or the cores are. **Structure.** A sweep over jobs, hardware
//! queues, `nr_requests` and engines makes `sweep::Point`s: a run without stamps for the rate, and a
//! shorter one with stamps for the phases. The rate of a block device is measured by `fio` where it is
//! installed, with the kernel's `nr_requests` (`sysfs`). `cause` finds the end of scaling of each series and its
//! cause, and what to set; `chart` and `page` show it. **Invariants.** A cause is named from what was
//! measured at the point where scaling ends, and its figures are told with it. **On a crash**
//! nothing stays but an image file that was made.

mod cause;
mod chart;
mod fio;
mod page;
mod sweep;
mod sysfs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use super::choices::Pattern;
use super::load::Work;
use crate::measure::f64_of;
use crate::report::{Columns, plain_table};
use cause::{Cause, Series};
use dure_block::HW_QUEUES_MAX;
use dure_block::count::Count;

/// `dure blk analyze`.
#[derive(Debug, Clone, clap::Args)]
pub struct Analyze {
    /// What each job does, and on what; --seconds is that of one measurement.
    #[command(flatten)]
    pub work: Work,
    /// The most jobs: 1, 2, 4 and so on up to this are measured [default: all cores].
    #[arg(long, visible_alias = "jobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub cores: Option<u16>,
    /// Numbers of hardware queues to measure [default: 1, and as many as jobs].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(HW_QUEUES_MAX)))]
    pub hw_queues: Vec<u32>,
    /// Numbers of tags of each hardware queue to measure [default: 64 and 1024].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub nr_requests: Vec<u32>,
    /// Measure block devices with dure's own engines and queue, although fio is installed.
    #[arg(long)]
    pub own: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Also draw IOPS over jobs into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Also write a page for a browser, with everything in it.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// An analysis.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    rw: Pattern,
    bs: u64,
    iodepth: u32,
    /// Seconds of one measurement.
    seconds: f64,
    /// What the machine has.
    cores: usize,
    /// What the kernel says of a block device.
    kernel: Vec<(&'static str, String)>,
    series: Vec<Series>,
    advice: Vec<String>,
}

/// Measures, and tells what was found.
///
/// # Errors
/// A device that cannot be opened, a request that fails, a file that cannot be written.
pub(crate) fn run(args: &Analyze) -> Result<()> {
    let report = analyze(args)?;
    let chart = chart::svg(&report)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, &chart).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &args.html {
        let page = page::html(&report, &chart);
        std::fs::write(path, page).with_context(|| path.display().to_string())?;
    }
    if args.json {
        crate::report::print(&serde_json::to_string_pretty(&report)?);
    } else {
        crate::report::print(&report.text());
    }
    Ok(())
}

fn analyze(args: &Analyze) -> Result<Report> {
    let kernel = sysfs::settings(&args.work.device);
    let points = sweep::measure(args)?;
    let load = sweep::FixedLoad {
        iodepth: args.work.iodepth,
        cores: dure_sync::core_count(),
    };
    let series = cause::series(points, load);
    Ok(Report {
        device: args.work.device.clone(),
        rw: args.work.rw,
        bs: args.work.bs,
        iodepth: args.work.iodepth,
        seconds: args.work.seconds,
        cores: load.cores,
        kernel,
        advice: cause::advice(&series, load),
        series,
    })
}

/// Heads of the table of points.
const HEADS: [&str; 12] = [
    "engine",
    "hw queues",
    "tags",
    "jobs",
    "IOPS",
    "p99 us",
    "cpu us",
    "Q2G %",
    "plug %",
    "tag %",
    "D2C %",
    "",
];

impl Report {
    /// A row for each point; the last cell says where scaling ends.
    fn rows(&self) -> Vec<[String; 12]> {
        let mut rows = Vec::new();
        for series in &self.series {
            for point in &series.points {
                let ends = point.jobs == series.ends_at_jobs;
                rows.push([
                    series.engine.clone(),
                    series.hw_queues.to_string(),
                    series.nr_requests.to_string(),
                    point.jobs.to_string(),
                    format!("{:.0}", point.iops),
                    format!("{:.1}", f64_of(point.p99_ns) / 1e3),
                    format!("{:.2}", point.cpu_ns_per_request / 1e3),
                    format!("{:.1}", point.share("Q2G")),
                    format!("{:.1}", point.share("plug")),
                    format!("{:.1}", point.share("tag")),
                    format!("{:.1}", point.share("D2C")),
                    if ends && series.cause == Cause::None {
                        "scales".to_owned()
                    } else if ends {
                        format!("ends: {}", series.cause.name())
                    } else {
                        String::new()
                    },
                ]);
            }
        }
        rows
    }

    /// For people.
    fn text(&self) -> String {
        let mut table = plain_table(&HEADS, &[0, 11], Columns::All);
        for row in self.rows() {
            table.add_row(row);
        }
        let mut text = format!("{}\n\n{table}\n", self.title());
        for (name, value) in &self.kernel {
            text.push_str(&format!("\nkernel: {name} = {value}"));
        }
        for series in &self.series {
            text.push_str(&format!("\n{}: {}", series.name(), series.why));
        }
        for line in &self.advice {
            text.push_str(&format!("\n* {line}"));
        }
        text
    }

    fn title(&self) -> String {
        let rw = format!("{:?}", self.rw).to_lowercase();
        format!(
            "{}: {rw}, requests of {} bytes, {} of each job, {} s a measurement, {}",
            self.device,
            self.bs,
            self.iodepth,
            self.seconds,
            Count::of(self.cores, "core")
        )
    }
}
