//! `dure bench tpcc`: a database's reads, writes and log appends, with the page cache in DRAM and a
//! periodic sync, and with dirty pages in persistent memory.
//!
//! **Structure.** `trace` says what is called, `replay` calls it on fresh volumes that take turns,
//! one for each kind of page cache, on a modelled disk and emulated persistent memory, `chart`
//! draws the response times. The bytes of the cache are the same for all: with persistent memory half
//! of them are there.
//!
//! **Invariants.** All volumes are asked the same. What is timed is the call. With `--speed N` all
//! times of the disk and the interval of the sync are N times as short, so that a run takes less time;
//! ratios hardly change, as long as the disk is much slower than the processor.
//! **On a crash** nothing is left behind.

mod chart;
mod replay;
mod trace;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::Table;
use dure_block::delay::Model;
use dure_fs::{MountOptions, NvramAbsorb, PageCaching};
use serde::Serialize;

use crate::measure::{bar, f64_of};
use crate::report::{self, Columns};
use crate::target::options_of;
pub(crate) use replay::Run;
use replay::Subject;
use trace::{Shape, Trace};

/// `dure bench tpcc`.
#[derive(Debug, clap::Args)]
pub struct Tpcc {
    /// Warehouses, each a file.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub warehouses: u16,
    /// Megabytes of each.
    #[arg(long, default_value_t = 16, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub warehouse_mib: u32,
    /// Transactions, of which the first fifth only warms up.
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub transactions: u32,
    /// Seed of the trace.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// A recorded trace instead: lines `r FILE PAGE COUNT`, `w FILE PAGE COUNT`, `a FILE COUNT`
    /// (append), `s FILE` (sync); pages of 4 KiB, # begins a comment.
    #[arg(long, value_name = "FILE")]
    pub trace_file: Option<PathBuf>,
    /// Transactions do not sync the log; only the periodic sync makes anything durable.
    #[arg(long)]
    pub no_sync: bool,
    /// Megabytes of the cache; with dirty pages in persistent memory half of them are there.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub cache: u32,
    /// Seconds between two periodic syncs of the page cache in DRAM.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds)]
    pub commit: f64,
    /// The disk: a modelled drive (disk, 960-pro, 970-evo, 983-zet, sz985, intel-750), or plain
    /// memory.
    #[arg(long, default_value = "disk", value_name = "DRIVE|plain", value_parser = drive)]
    pub drive: Drive,
    /// So many times as fast are the disk and the periodic sync.
    #[arg(long, default_value = "10", value_name = "N")]
    pub speed: NonZeroU32,
    /// Runs of each.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Show all columns.
    #[arg(long)]
    pub wide: bool,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
    /// Draw how response times are distributed.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// What the volumes are on.
#[derive(Debug, Clone, Copy)]
pub struct Drive(Option<Model>);

fn drive(name: &str) -> Result<Drive, String> {
    match (name, Model::of_drive(name)) {
        ("plain", _) => Ok(Drive(None)),
        (_, Some(model)) => Ok(Drive(Some(model))),
        (_, None) => Err(format!("it is plain, {}", Model::DRIVES.join(", "))),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "it is a number of seconds, 0.1 to 3600".to_owned())
}

#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    target: &'static str,
    n: usize,
    calls: usize,
    /// Median, least and most of the runs.
    total_s: f64,
    total_min: f64,
    total_max: f64,
    /// The mean of the median run.
    mean_us: f64,
    deviation_us: f64,
    p50_us: f64,
    p99_us: f64,
    longest_ms: f64,
    disk_reads: u64,
    disk_writes: u64,
    disk_flushes: u64,
    /// Pages moved from persistent memory to the disk.
    moved_pages: u64,
    /// Times that there was no room for data there.
    refused: u64,
}

/// Measures and prints the report.
///
/// # Errors
/// A trace that cannot be read, a call that fails.
pub(crate) fn run(args: &Tpcc) -> Result<()> {
    let runs = measure(args, &subjects(args))?;
    if let Some(path) = &args.svg {
        chart::draw(path, &runs)?;
    }
    let rows: Vec<Row> = runs.iter().map(|(name, runs)| row(name, runs)).collect();
    if args.json {
        report::print(&serde_json::to_string_pretty(&rows).context("writing JSON")?);
    } else {
        report::print(&table(&rows, args.wide).to_string());
    }
    Ok(())
}

/// All runs of each, the shortest first.
fn measure(args: &Tpcc, subjects: &[Subject]) -> Result<Vec<(&'static str, Vec<Run>)>> {
    let trace = match &args.trace_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Trace::parse(&text).with_context(|| path.display().to_string())?
        }
        None => Trace::generate(Shape {
            warehouses: args.warehouses,
            pages: args.warehouse_mib * 256,
            transactions: args.transactions,
            syncs_log: !args.no_sync,
            seed: args.seed,
        }),
    };
    let warm_up = trace.calls.len() / 5;
    let disk = args.drive.0.map(|model| replay::faster(model, args.speed));
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); subjects.len()];
    let progress = bar(subjects.len(), args.repeat);
    for _ in 0..args.repeat {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            progress.set_message(subject.name);
            runs.push(replay::replay(subject, &trace, disk, warm_up)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    for runs in &mut runs {
        runs.sort_unstable_by_key(|run| run.total_ns);
    }
    let names = subjects.iter().map(|subject| subject.name);
    Ok(names.zip(runs).collect())
}

/// The kinds of page cache.
fn subjects(args: &Tpcc) -> Vec<Subject> {
    let dram = in_dram(args, MountOptions::default());
    let nvram = half_in_nvram(args, MountOptions::default());
    let mut synced = nvram.clone();
    synced.nvram.absorb = Some(NvramAbsorb::Sync);
    let half = Some(half(args));
    let subject = |name, nvm_bytes, mount| Subject {
        name,
        nvm_bytes,
        mount,
    };
    vec![
        subject("dram", None, dram.clone()),
        subject("dram, logs in NVM", Some(0), dram),
        subject("nvram", half, nvram),
        subject("nvram, synced data", half, synced),
    ]
}

/// Bytes of half of the cache.
fn half(args: &Tpcc) -> u64 {
    u64::from(args.cache) << 19
}

fn in_dram(args: &Tpcc, mount: MountOptions) -> MountOptions {
    MountOptions {
        cache_bytes: 2 * half(args),
        commit_interval: Duration::from_secs_f64(args.commit / f64::from(args.speed.get())),
        ..mount
    }
}

fn half_in_nvram(args: &Tpcc, mount: MountOptions) -> MountOptions {
    let mut mount = MountOptions {
        cache_bytes: half(args),
        page_cache: Some(PageCaching::Nvram),
        ..in_dram(args, mount)
    };
    mount.nvram.bytes = Some(half(args));
    mount
}

/// All runs of volumes with these names and policies, the shortest first.
///
/// # Errors
/// Policies that cannot be had, a call that fails.
pub(crate) fn compare(
    args: &Tpcc,
    systems: &[(&'static str, &str)],
) -> Result<Vec<(&'static str, Vec<Run>)>> {
    let subject = |(name, policy): &(&'static str, &str)| {
        let mount = options_of(name, policy)?;
        let is_nvram = mount.page_cache == Some(PageCaching::Nvram);
        anyhow::Ok(Subject {
            name,
            nvm_bytes: is_nvram.then(|| half(args)),
            mount: match is_nvram {
                true => half_in_nvram(args, mount),
                false => in_dram(args, mount),
            },
        })
    };
    let subjects: Vec<Subject> = systems.iter().map(subject).collect::<Result<_>>()?;
    measure(args, &subjects)
}

fn row(target: &'static str, runs: &[Run]) -> Row {
    let median = &runs[runs.len() / 2];
    let at = |percent: usize| {
        let ns = median.ns.get(median.ns.len() * percent / 100);
        ns.map_or(0.0, |ns| f64_of(*ns) / 1e3)
    };
    let [disk_reads, disk_writes, disk_flushes] = median.requests;
    Row {
        bench: "tpcc",
        target,
        n: runs.len(),
        calls: median.ns.len(),
        total_s: median.total_s(),
        total_min: runs.first().map_or(0.0, Run::total_s),
        total_max: runs.last().map_or(0.0, Run::total_s),
        mean_us: median.mean_us(),
        deviation_us: median.deviation_us(),
        p50_us: at(50),
        p99_us: at(99),
        longest_ms: median.longest_us() / 1e3,
        disk_reads,
        disk_writes,
        disk_flushes,
        moved_pages: median.moved,
        refused: median.refused,
    }
}

fn table(rows: &[Row], wide: bool) -> Table {
    let mut header = vec![
        "page cache",
        "total s",
        "mean us",
        "deviation",
        "p99 us",
        "longest ms",
    ];
    header.extend(["reads", "writes", "flushes"]);
    if wide {
        header.extend(["p50 us", "n", "total min", "max"]);
    }
    let mut table = report::plain_table(&header, &[0], Columns::of(wide));
    for row in rows {
        let short = |value: f64| format!("{value:.1}");
        let seconds = |value: f64| format!("{value:.2}");
        let mut cells = vec![
            row.target.to_owned(),
            seconds(row.total_s),
            short(row.mean_us),
            short(row.deviation_us),
            short(row.p99_us),
            short(row.longest_ms),
            row.disk_reads.to_string(),
            row.disk_writes.to_string(),
            row.disk_flushes.to_string(),
        ];
        if wide {
            cells.extend([
                short(row.p50_us),
                row.n.to_string(),
                seconds(row.total_min),
                seconds(row.total_max),
            ]);
        }
        table.add_row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(transactions: u32) -> Tpcc {
        Tpcc {
            warehouses: 2,
            warehouse_mib: 2,
            transactions,
            seed: 1,
            trace_file: None,
            no_sync: false,
            // Room for all that is written: what moves to the disk depends on when workers run.
            cache: 64,
            commit: 30.0,
            drive: Drive(None),
            speed: NonZeroU32::MIN,
            repeat: 1,
            wide: false,
            json: false,
            svg: None,
        }
    }

    #[test]
    fn all_kinds_do_the_same_calls_and_the_disk_is_spared() {
        let args = args(200);
        let runs = measure(&args, &subjects(&args)).unwrap();
        let rows: Vec<Row> = runs.iter().map(|(name, runs)| row(name, runs)).collect();
        assert!(
            rows.iter()
                .all(|row| row.calls == rows[0].calls && row.calls > 1000)
        );
        assert!(rows[0].disk_writes > 100, "each transaction syncs its log");
        assert_eq!(rows[2].refused, 0, "there is room for all data");
        assert!(rows[2].disk_writes * 3 < rows[0].disk_writes);
        assert!(chart::svg(&runs).unwrap().contains("dram, logs in NVM"));
    }

    #[test]
    fn words_of_the_command_line() {
        assert!(drive("disk").is_ok_and(|drive| drive.0.is_some()));
        assert!(drive("plain").is_ok_and(|drive| drive.0.is_none()));
        assert!(drive("floppy").unwrap_err().contains("disk"));
        assert!(seconds("0").is_err() && seconds("2.5") == Ok(2.5));
    }
}
