//! Where the time of requests goes: the phases of btt, of dure's own requests or of a real device.
//!
//! **Problem.** A rate does not say what bounds it. **Structure.** Three sources - a run of our own
//! load, a text of blkparse, the events of the kernel - become bios with stamps (`event`), and these
//! a report; `blktrace` writes the events for blkparse and btt. **Invariants.** A bio whose
//! completion was not seen is counted apart. **On a crash** files that were being written stay.

mod blktrace;
mod event;
mod kernel;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dure_block::{Phases, Stamps};
use dure_sync::clock;
use serde::Serialize;

use super::load::{self, Load};
use super::phases::{self, PhaseRow};
use crate::report::{Columns, plain_table};
use dure_block::count::Count;
use event::{Event, Passage, Passages};
use kernel::Disk;

/// `dure blk trace`.
#[derive(Debug, Clone, clap::Args)]
pub struct Trace {
    /// Whose requests.
    #[command(subcommand)]
    pub source: Source,
    /// Also write the events in the format of blktrace, as BASE.blktrace.0 and so on, for
    /// `blkparse -i BASE` and, of what `blkparse -d` writes, btt.
    #[arg(long, global = true, value_name = "BASE")]
    pub write: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
}

/// Whose requests are told of.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Source {
    /// Those of a load that dure puts on a device: `dure bench blk --phases` with its events.
    Run(Load),
    /// Those of a text that blkparse wrote (- is standard input).
    Blkparse {
        /// The text.
        file: PathBuf,
    },
    /// Those of every program on a block device, as the kernel tells; times are in microseconds.
    Kernel {
        /// A whole disk, as /dev/nvme0n1.
        device: PathBuf,
        /// Seconds of one measurement.
        #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = load::seconds)]
        seconds: f64,
        /// Where tracefs is mounted.
        #[arg(long, default_value = "/sys/kernel/tracing", value_name = "FOLDER")]
        tracefs: PathBuf,
    },
}

/// Requests of a hardware queue, or of a core.
#[derive(Debug, Default, Serialize)]
struct Queue {
    #[serde(skip_serializing_if = "Option::is_none")]
    hw_queue: Option<u16>,
    cores: Vec<u16>,
    dispatched: usize,
    completed: usize,
}

/// What is told of the requests.
#[derive(Debug, Serialize)]
struct Report {
    source: String,
    /// Bios that completed, and of these, how many were merged into another's request.
    bios: usize,
    merged: usize,
    /// Bios without a completion, and lines that were no event of a request with data.
    incomplete: usize,
    other_lines: usize,
    phases: Vec<PhaseRow>,
    queues: Vec<Queue>,
}

/// Traces and prints the report.
///
/// # Errors
/// A source that cannot be read or has no event, a file that cannot be written.
pub(crate) fn run(args: &Trace) -> Result<()> {
    let (report, events) = report(&args.source)?;
    if let Some(base) = &args.write {
        for file in blktrace::write(base, &events)? {
            crate::report::say(&format!("wrote {}", file.display()));
        }
    }
    if args.json {
        crate::report::print(&serde_json::to_string_pretty(&report)?);
    } else {
        crate::report::print(&report.text());
    }
    Ok(())
}

fn report(source: &Source) -> Result<(Report, Vec<Event>)> {
    match source {
        Source::Run(load) => {
            let queue = load.queue(load::Stamping::On)?;
            load::run(load, &queue)?;
            let records = queue.take_trace();
            let passages = Passages {
                complete: records.iter().map(Passage::from).collect(),
                incomplete: 0,
            };
            let cores = |queue: &dure_block::HwQueue| {
                queue.cores.iter().map(|core| core.number()).collect()
            };
            let queues = (0..).zip(queue.hw_queues().iter().map(cores)).collect();
            let report = Report::new(
                format!("dure on {}", load.work.device),
                &passages,
                0,
                queues,
            );
            Ok((report, event::events(&records)))
        }
        Source::Blkparse { file } => {
            let read = text::read(&content(file)?, text::blkparse_line);
            let read = read.with_context(|| file.display().to_string())?;
            let passages = event::gather(&read.events);
            let name = file.display().to_string();
            let report = Report::new(name, &passages, read.others, Vec::new());
            Ok((report, read.events))
        }
        Source::Kernel {
            device,
            seconds,
            tracefs,
        } => {
            let (disk, name) = (Disk::of(device)?, device.display().to_string());
            let end = clock::monotonic_ns() + load::run_ns(*seconds);
            let text = disk.trace(tracefs, || clock::monotonic_ns() >= end)?;
            let read = text::read(&text, text::tracefs_line);
            let read = read.with_context(|| format!("{name} in {seconds} s"))?;
            let passages = event::gather(&read.events);
            let report = Report::new(name, &passages, read.others, disk.hw_queues());
            Ok((report, read.events))
        }
    }
}

/// The stamps of all requests that any program makes on `device` until `ended`.
///
/// # Errors
/// It is no whole disk, there is no tracefs, or there was no request.
pub(super) fn stamps_of_kernel(device: &Path, ended: impl Fn() -> bool) -> Result<Vec<Stamps>> {
    let text = Disk::of(device)?.trace(&kernel::tracefs(), ended)?;
    let passages = event::gather(&text::read(&text, text::tracefs_line)?.events);
    let stamps = passages.complete.iter().map(|bio| bio.stamps);
    Ok(stamps.collect())
}

fn content(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.context("standard input")?;
    } else {
        bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Report {
    /// `hw_queues`: the cores of each; empty if they are not known.
    fn new(
        source: String,
        passages: &Passages,
        other_lines: usize,
        hw_queues: Vec<(u16, Vec<u16>)>,
    ) -> Self {
        let bios = &passages.complete;
        let stamps: Vec<Stamps> = bios.iter().map(|bio| bio.stamps).collect();
        Self {
            source,
            bios: bios.len(),
            merged: stamps.iter().filter(|s| s.merged_ns > 0).count(),
            incomplete: passages.incomplete,
            other_lines,
            phases: phases::rows(&Phases::of_stamps(&stamps)),
            queues: queues(bios, hw_queues),
        }
    }

    /// For people.
    fn text(&self) -> String {
        let heads = ["hardware queue", "cores", "dispatched", "completed"];
        let mut queues = plain_table(&heads, &[0, 1], Columns::All);
        for queue in &self.queues {
            let cores: Vec<_> = queue.cores.iter().map(u16::to_string).collect();
            let number = queue.hw_queue.map(|number| number.to_string());
            queues.add_row([
                number.unwrap_or_else(|| "not known".to_owned()),
                cores.join(","),
                queue.dispatched.to_string(),
                queue.completed.to_string(),
            ]);
        }
        format!(
            "{}: {}, {} merged, {} incomplete, {} of other things\n\n{}\n\n{queues}",
            self.source,
            Count::of(self.bios, "bio"),
            self.merged,
            self.incomplete,
            Count::of(self.other_lines, "line"),
            phases::table(&self.phases)
        )
    }
}

/// Counts of each hardware queue; of each core if these are not known.
fn queues(bios: &[Passage], hw_queues: Vec<(u16, Vec<u16>)>) -> Vec<Queue> {
    let mut queues: BTreeMap<u16, Queue> = BTreeMap::new();
    let known = !hw_queues.is_empty();
    let mut of_core = BTreeMap::new();
    for (number, cores) in hw_queues {
        of_core.extend(cores.iter().map(|core| (*core, number)));
        let queue = queues.entry(number).or_default();
        (queue.hw_queue, queue.cores) = (Some(number), cores);
    }
    for bio in bios.iter().filter(|bio| bio.stamps.merged_ns == 0) {
        let number = match known {
            true => bio.hw_queue.or(of_core.get(&bio.core).copied()),
            false => Some(bio.core),
        };
        let queue = queues.entry(number.unwrap_or(u16::MAX)).or_default();
        if !known && queue.cores.is_empty() {
            queue.cores.push(bio.core);
        }
        queue.dispatched += usize::from(bio.stamps.dispatched_ns > 0);
        queue.completed += usize::from(bio.stamps.completed_ns > 0);
    }
    queues.into_values().collect()
}
