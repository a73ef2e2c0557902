//! `dure bench recovery`: how long a mount takes after a crash with full logs.
//!
//! **Structure.** A volume in memory gets logs of the size wanted, which are filled; the file
//! system is dropped as if the process had been killed, and what it left is mounted `repeat` times,
//! each time on a copy of its own. Statistics of the mount say what was read and where the time
//! went. With `--files` the volume lies in a file and has many files (`files`). **Invariants.** No
//! checkpoint empties the logs on the way; every repetition recovers the same medium. **On a crash**
//! nothing is left behind.

mod files;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use comfy_table::Table;
use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::share;
use dure_check::{CheckOptions, check};
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, RecoveryStatistics,
    SetAttributes, Stamp, SyncScope,
};
use dure_sync::{Arc, CoreId, clock, thread};
use serde::Serialize;

use crate::micro::{content, or_default};
use crate::report::{self, Columns};
use crate::target::options_of;

/// `dure bench recovery`.
#[derive(Debug, clap::Args)]
pub struct Recovery {
    /// Log to recover, in MiB, of all journals together.
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub size_mib: u64,
    /// What fills the logs [default: all].
    #[arg(long = "logs", value_name = "NAME", value_enum)]
    pub fills: Vec<Fill>,
    /// Instead of those volumes in memory one in a file, with so many files of a page each: mounts
    /// after a crash that has left logs of that size, and after an unmount.
    #[arg(long, value_name = "N", conflicts_with = "fills", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub files: Option<u32>,
    /// The directory of that file.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/dev/shm",
        requires = "files"
    )]
    pub place: PathBuf,
    /// Policies of dure, as mount options, nvm= too with --files [default: journal=per-core,
    /// journal=single; with --files nvm=emulated,page_cache=none with both kinds of durability=].
    #[arg(long = "policy", value_name = "OPTION[,OPTION...]")]
    pub policies: Vec<String>,
    /// Threads that recover [default: 1, and one for each core].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// Recoveries of each point; their median counts.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Also check the structure of every recovered volume.
    #[arg(long)]
    pub check: bool,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
    /// Print all columns; without, a table keeps to 100 characters.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
}

/// What fills the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fill {
    /// Overwrites of 4 KiB with an fsync each: few bytes of records, and the page itself.
    Fsyncs,
    /// Changes of attributes, made durable a thousand at a time: as many records as fit.
    Attributes,
}

impl Fill {
    const ALL: [Fill; 2] = [Fill::Fsyncs, Fill::Attributes];

    fn name(self) -> &'static str {
        match self {
            Fill::Fsyncs => "fsyncs",
            Fill::Attributes => "attributes",
        }
    }
}

const POLICIES: [&str; 2] = ["journal=per-core", "journal=single"];
/// Pages of each core's file.
const FILE_PAGES: u64 = 256;
/// Files of each core whose attributes change.
const FILES: u32 = 1000;

#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    fill: &'static str,
    policy: String,
    threads: u64,
    log_mib: f64,
    transactions: u64,
    nodes: u64,
    pages: u64,
    #[serde(flatten)]
    mounts: Mounts,
    mib_per_second: f64,
}

/// How long mounts took.
#[derive(Debug, Serialize)]
struct Mounts {
    n: usize,
    seconds: f64,
    min: f64,
    max: f64,
    /// Seconds of the median mount's scan.
    scan_seconds: f64,
    apply_seconds: f64,
    write_seconds: f64,
}

impl Mounts {
    const HEADS: [&str; 7] = ["n", "mount s", "min", "max", "scan", "apply", "write"];

    /// Sums up mounts in ascending order of their nanoseconds; also returns what the median one
    /// recovered.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    fn of(runs: &[(u64, RecoveryStatistics)]) -> (Mounts, RecoveryStatistics) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (ns, middle) = runs[(runs.len() - 1) / 2];
        let mounts = Mounts {
            n: runs.len(),
            seconds: seconds(ns),
            min: runs.first().map_or(0.0, |(ns, _)| seconds(*ns)),
            max: runs.last().map_or(0.0, |(ns, _)| seconds(*ns)),
            scan_seconds: seconds(middle.scan_ns),
            apply_seconds: seconds(middle.apply_ns),
            write_seconds: seconds(middle.write_ns),
        };
        (mounts, middle)
    }

    /// The cells below [`Mounts::HEADS`].
    fn cells(&self) -> impl Iterator<Item = String> {
        let seconds = [
            self.seconds,
            self.min,
            self.max,
            self.scan_seconds,
            self.apply_seconds,
            self.write_seconds,
        ];
        let shown = seconds.map(|seconds| format!("{seconds:.3}"));
        std::iter::once(self.n.to_string()).chain(shown)
    }
}

/// Measures and prints the report.
///
/// # Errors
/// An operation, or a recovery, that fails.
pub(crate) fn run(args: &Recovery) -> Result<()> {
    let cores = dure_sync::core_count();
    let all = [1, u16::try_from(cores).unwrap_or(u16::MAX)];
    let default = if cores == 1 { &all[..1] } else { &all[..] };
    let threads = or_default(&args.threads, default);
    if let Some(count) = args.files {
        let rows = files::measure(args, count, threads)?;
        return print(args, &rows, files::table);
    }
    let policies: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    for policy in or_default(&policies, &POLICIES) {
        for fill in or_default(&args.fills, &Fill::ALL) {
            let crashed = crashed(policy, *fill, args.size_mib << 20, cores)
                .with_context(|| format!("{policy}, {}", fill.name()))?;
            for threads in threads {
                let runs = recover(&crashed, policy, usize::from(*threads), args)?;
                rows.push(row(policy, *fill, runs));
            }
        }
    }
    print(args, &rows, table)
}

fn print<R: Serialize>(
    args: &Recovery,
    rows: &[R],
    table: fn(&[R], Columns) -> Table,
) -> Result<()> {
    if args.json {
        report::print(&serde_json::to_string_pretty(rows).context("writing JSON")?);
    } else {
        report::print(&table(rows, Columns::of(args.wide)).to_string());
    }
    Ok(())
}

/// A volume that was dropped with so many bytes in its logs.
fn crashed(policy: &str, fill: Fill, log_bytes: u64, cores: usize) -> Result<Arc<Image>> {
    // Logs are at most an eighth of a volume.
    let blocks = (log_bytes / 4096 * 16).max(1 << 16);
    let medium = Arc::new(OverlayRam::new("logs", Arc::new(Image::zeroed(blocks))));
    let format = FormatOptions {
        journals: Some(u32::try_from(cores).context("cores are few")?),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&medium)), &format)?;
    let mount = MountOptions {
        background: Background::None,
        ..options_of("dure", policy)?
    };
    let fs = FileSystem::open(share(Arc::clone(&medium)), mount)?;
    let root = fs.root()?;
    let mut makers = Vec::new();
    for core in 0..cores {
        makers.push(Maker::new(&fs, &root, core, fill)?);
    }
    fs.sync()?;
    // One core may write it all; logs grow by segments, so one may be a segment shorter than
    // another.
    let cores = u64::try_from(makers.len()).context("cores are few")?;
    let each = log_bytes / 4096 * 3 / 2 + u64::from(fs.layout().segment_blocks);
    fs.grow_logs(each * cores)?;
    let before = fs.activity().checkpoints;
    let threads: Vec<_> = makers
        .into_iter()
        .enumerate()
        .map(|(core, mut maker)| {
            let fs = fs.clone();
            let core = CoreId::new(u16::try_from(core).expect("cores are few"));
            thread::spawn_on("fill", core, move || -> Result<()> {
                while logged(&fs) < log_bytes {
                    (0..16).try_for_each(|_| maker.operate(&fs))?;
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("filling a log does not panic")?;
    }
    let after = fs.activity().checkpoints;
    ensure!(before == after, "a checkpoint emptied the logs on the way");
    drop((root, fs));
    Ok(Arc::new(medium.snapshot()))
}

fn logged(fs: &FileSystem) -> u64 {
    let journals = fs.activity().journals;
    journals.iter().map(|journal| journal.blocks * 4096).sum()
}

/// What one core fills the logs with.
struct Maker {
    fill: Fill,
    files: Vec<InodeRef>,
    page: Vec<u8>,
    done: u64,
}

impl Maker {
    fn new(fs: &FileSystem, root: &InodeRef, core: usize, fill: Fill) -> Result<Maker> {
        let mode = |mode| NewInode {
            mode,
            ..NewInode::default()
        };
        let directory = fs.mkdir(root, format!("core{core}").as_bytes(), &mode(0o755))?;
        let count = match fill {
            Fill::Fsyncs => 1,
            Fill::Attributes => FILES,
        };
        let create = |number: u32| {
            let name = format!("file{number}");
            fs.create(&directory, name.as_bytes(), &mode(0o100_644))
        };
        let files: Vec<InodeRef> = (0..count).map(create).collect::<dure_fs::Result<_>>()?;
        let page = content(core);
        if fill == Fill::Fsyncs {
            for at in 0..FILE_PAGES {
                fs.write(&files[0], at * 4096, &page, Stamp::Set)?;
            }
        }
        Ok(Maker {
            fill,
            files,
            page,
            done: 0,
        })
    }

    fn operate(&mut self, fs: &FileSystem) -> Result<()> {
        self.done += 1;
        let number = usize::try_from(self.done).context("64 bits")? % self.files.len();
        let file = &self.files[number];
        match self.fill {
            Fill::Fsyncs => {
                let offset = self.done % FILE_PAGES * 4096;
                fs.write(file, offset, &self.page, Stamp::Set)?;
                fs.fsync(file, SyncScope::All)?;
            }
            Fill::Attributes => {
                let set = SetAttributes {
                    uid: Some(u32::try_from(self.done % 1_000_000).context("small")?),
                    ..SetAttributes::default()
                };
                fs.set_attributes(file, &set)?;
                if self.done.is_multiple_of(1000) {
                    fs.sync()?;
                }
            }
        }
        Ok(())
    }
}

/// Recovers copies of the volume.
fn recover(
    crashed: &Arc<Image>,
    policy: &str,
    threads: usize,
    args: &Recovery,
) -> Result<Vec<(u64, RecoveryStatistics)>> {
    let mut runs = Vec::new();
    for _ in 0..args.repeat {
        let copy = share(OverlayRam::new("recovered", Arc::clone(crashed)));
        let mount = MountOptions {
            background: Background::None,
            recovery_threads: Some(threads),
            ..options_of("dure", policy)?
        };
        let begin = clock::monotonic_ns();
        let fs = FileSystem::open(copy.clone(), mount)?;
        let ns = clock::monotonic_ns() - begin;
        let recovered = fs.recovered().context("the volume was not unmounted")?;
        ensure!(
            recovered.applied == recovered.transactions,
            "{} of {} transactions were applied, all were durable",
            recovered.applied,
            recovered.transactions
        );
        runs.push((ns, recovered));
        if args.check {
            fs.close()?;
            let report = check(copy, &CheckOptions::default())?;
            let issue = report.issues().first();
            ensure!(issue.is_none(), "after recovery: {}", issue.expect("one"));
        }
    }
    runs.sort_by_key(|(ns, _)| *ns);
    Ok(runs)
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn row(policy: &str, fill: Fill, runs: Vec<(u64, RecoveryStatistics)>) -> Row {
    let (mounts, middle) = Mounts::of(&runs);
    let log_mib = middle.log_bytes as f64 / f64::from(1 << 20);
    Row {
        bench: "recovery",
        fill: fill.name(),
        policy: policy.to_owned(),
        threads: middle.threads,
        log_mib,
        transactions: middle.transactions,
        nodes: middle.nodes,
        pages: middle.pages,
        mib_per_second: log_mib / mounts.seconds,
        mounts,
    }
}

fn table(rows: &[Row], columns: Columns) -> Table {
    let mut heads = vec!["policy", "fill", "threads", "log MiB"];
    if columns == Columns::All {
        heads.extend(["transactions", "nodes", "pages"]);
    }
    heads.extend(Mounts::HEADS);
    heads.push("MiB/s");
    let mut table = report::plain_table(&heads, &[0, 1], columns);
    for row in rows {
        let mut cells = vec![
            row.policy.clone(),
            row.fill.to_owned(),
            row.threads.to_string(),
            format!("{:.0}", row.log_mib),
        ];
        if columns == Columns::All {
            let counts = [row.transactions, row.nodes, row.pages];
            cells.extend(counts.map(|count| count.to_string()));
        }
        cells.extend(row.mounts.cells());
        cells.push(format!("{:.0}", row.mib_per_second));
        table.add_row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(files: Option<u32>) -> Recovery {
        Recovery {
            size_mib: 2,
            fills: Vec::new(),
            files,
            place: std::env::temp_dir(),
            policies: vec!["nvm=emulated,page_cache=none".into()],
            threads: Vec::new(),
            repeat: 2,
            check: true,
            json: false,
            wide: false,
        }
    }

    #[test]
    fn full_logs_are_recovered_whole() {
        for fill in Fill::ALL {
            let crashed = crashed("journal=per-core", fill, 2 << 20, 2).unwrap();
            let runs = recover(&crashed, "journal=per-core", 2, &args(None)).unwrap();
            assert!(runs[0].1.log_bytes >= 2 << 20, "{runs:?}");
            assert!(runs[0].1.nodes > 0 && runs[0].1.transactions > 5);
            let row = row("", fill, runs);
            let times = row.mounts;
            assert!(times.seconds > 0.0);
            assert!(times.scan_seconds + times.apply_seconds <= times.seconds);
        }
    }

    #[test]
    fn a_volume_of_many_files_is_recovered_whole() {
        let rows = files::measure(&args(Some(3000)), 3000, &[2]).unwrap();
        let after: Vec<&str> = rows.iter().map(|row| row.after).collect();
        assert_eq!(after, ["unmount", "crash"]);
        assert!(rows[0].log_mib == 0.0 && rows[1].log_mib >= 2.0, "{rows:?}");
        assert!(rows[1].nodes > 100, "{rows:?}");
    }
}
