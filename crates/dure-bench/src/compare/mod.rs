//! `dure bench compare`: the systems of a paper side by side on this machine.
//!
//! **Problem.** Whether dure does what a published system does shows when that system, its baseline
//! and dure's defaults run the paper's workloads in one run. **Structure.** A file for each paper says
//! of each figure what is measured on which systems: policies of dure, and benches that are there
//! already; `table` has the words for that, `measure` calls the benches, `report` tells what came out.
//! What a document shows of a figure is dure-sim's to say, which uses this crate: the caller brings
//! [`Words`]. **Invariants.** All systems of a figure take turns, at least three times; nothing is
//! judged. **On a crash** nothing is left but a file of `--paper interfaces`.

mod blk_mq;
mod hybridf2fs;
mod interfaces;
mod machine;
mod measure;
mod nvram_lfs;
mod pnova;
mod report;
mod table;
#[cfg(test)]
mod tests;
mod zjournal;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::options::seconds;
use measure::{Measurer, Value};
pub use table::{How, LEFT_OUT, Load, PAPERS, Paper, PaperName, Part, Row, System};

/// `dure bench compare`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Compare {
    /// Whose figures.
    #[arg(long, value_enum, value_name = "NAME")]
    pub paper: PaperName,
    /// Only this figure, several times.
    #[arg(long = "figure", value_name = "NAME")]
    pub figures: Vec<String>,
    /// Numbers of threads, on as many cores as there are [default: 1, 2, 4 and so on up to the cores
    /// there are, or those that a figure is about].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Vec<u16>,
    /// Measurements of each point, in turns of all systems, 3 or more; their median counts.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub repeat: u32,
    /// Seconds of one measurement, as in 30 or 0.2 [default: 0.5; fileserver and varmail 1, aim7 2].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Milliseconds of warm-up before each measurement [default: 100].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warm_up: Option<u64>,
    /// Transactions of the trace of nvram-lfs [default: 5000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub transactions: Option<u32>,
    /// Where volumes are made, each in a file without a name [default: /dev/shm if it is there, else
    /// the current directory]; of interfaces, where the file is [default: the current directory].
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    /// The block device or file that interfaces reads; it is not written [default: a file of 128 MiB].
    #[arg(long, value_name = "DEVICE", conflicts_with = "directory")]
    pub device: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write a page with all figures into this file, which needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw each measured figure into a file of this directory, as 000-2a.svg.
    #[arg(long, value_name = "DIRECTORY")]
    pub svg_dir: Option<PathBuf>,
}

const HELP: &str = "\
The first system of a figure is the baseline, then comes the published one, and dure with its defaults. They are \
policies of dure on volumes of 2 GiB, not the original programs; docs/papers says what differs. A drive (drive=) is a \
model of the document's, persistent memory is emulated. Nothing is judged: a figure may come out otherwise than in its \
document, and the status is 0.

JSON: paper, documents, machine (processor, cores, load_before, load_after: the load average of a minute), figures: \
each with figures (its names), title, shows (what the document shows), state (measured, or shown by COMMAND), here (how \
the measurement differs), many_cores (the command that simulates the document's machine, or null), systems (name, \
policy), points (workload, system, threads, unit, median, min, max, n, by_baseline: the median by that of the first \
system).";

/// What a document shows of a figure.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What it is of.
    pub title: &'static str,
    /// What the document shows.
    pub shows: &'static str,
    /// The command that simulates it on the machine of the document.
    pub many_cores: Option<String>,
    /// How it is repeated elsewhere, in words.
    pub state: String,
}

/// Finds what a document shows of a figure.
pub type Words = fn(&str) -> Option<Shown>;

/// A figure, and what came out.
#[derive(Debug)]
struct Outcome {
    row: &'static Row,
    shown: Shown,
    values: Vec<Value>,
}

/// Measures and prints the report.
///
/// # Errors
/// A figure that the paper does not have, options that contradict it, a measurement that fails.
pub(crate) fn run(args: &Compare, words: Words) -> Result<()> {
    let paper = args.paper.paper();
    let rows = chosen(paper, &args.figures)?;
    check(args, &rows)?;
    let before = machine::load();
    let outcomes = measured(args, &rows, words)?;
    let machine = machine::Machine::new(before);
    if args.json {
        crate::report::print(&report::json(paper, &machine, &outcomes)?);
    } else {
        crate::report::print(&report::text(paper, &machine, &outcomes));
    }
    if let Some(folder) = &args.svg_dir {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for outcome in outcomes.iter().filter(|one| !one.values.is_empty()) {
            let name = format!("{}.svg", outcome.row.figures[0]);
            write(&folder.join(name), &report::svg(outcome)?)?;
        }
    }
    if let Some(path) = &args.html {
        write(path, &report::html(paper, &machine, &outcomes)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The figures that are asked for, in the order of the table.
fn chosen(paper: &'static Paper, names: &[String]) -> Result<Vec<&'static Row>> {
    let has = |row: &&Row, name: &String| row.figures.contains(&name.as_str());
    for name in names {
        if !paper.rows.iter().any(|row| has(&row, name)) {
            let all: Vec<&str> = paper
                .rows
                .iter()
                .flat_map(|row| row.figures)
                .copied()
                .collect();
            bail!(
                "--figure {name}: {} has no such figure; it has {}",
                paper.name.name(),
                all.join(", ")
            );
        }
    }
    let is_asked = |row: &&Row| names.is_empty() || names.iter().any(|name| has(row, name));
    Ok(paper.rows.iter().filter(is_asked).collect())
}

/// Refuses an option that nothing would use.
fn check(args: &Compare, rows: &[&Row]) -> Result<()> {
    let any = |is: fn(&Load) -> bool| rows.iter().any(|row| row.loads().any(|load| is(&load)));
    let (timed, trace) = (any(|load| !load.is_trace()), any(Load::is_trace));
    let (volumes, file) = (any(Load::is_on_volumes), any(Load::is_on_a_file));
    let for_a_time = "what is measured for a time, not a trace";
    let options = [
        ("--threads", !args.threads.is_empty(), timed, for_a_time),
        ("--seconds", args.seconds.is_some(), timed, for_a_time),
        ("--warm-up", args.warm_up.is_some(), timed, for_a_time),
        (
            "--transactions",
            args.transactions.is_some(),
            trace,
            "the trace of nvram-lfs",
        ),
        (
            "--device",
            args.device.is_some(),
            file,
            "what interfaces reads",
        ),
        (
            "--directory",
            args.directory.is_some(),
            volumes || file,
            "volumes, and the file of interfaces",
        ),
    ];
    for (option, is_given, is_used, what) in options {
        if is_given && !is_used {
            bail!("{option}: none of these figures uses it; it is for {what}");
        }
    }
    Ok(())
}

fn measured(args: &Compare, rows: &[&'static Row], words: Words) -> Result<Vec<Outcome>> {
    let mut measurer = Measurer::new(args)?;
    let mut outcomes = Vec::new();
    for row in rows.iter().copied() {
        let figure = row.figures[0];
        let shown = words(figure).with_context(|| format!("{figure}: no document has it"))?;
        let mut values = Vec::new();
        for part in row.parts() {
            values.append(&mut measurer.part(part).with_context(|| figure.to_owned())?);
        }
        outcomes.push(Outcome { row, shown, values });
    }
    Ok(outcomes)
}
