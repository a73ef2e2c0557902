//! `dure bench mount`: mounted volumes compared with other file systems, as programs see them.
//!
//! **Structure.** Each target is a directory: a tmpfs, ext4 and xfs on a loop device in memory, and
//! volumes in memory that this program mounts, a transport each; and for each transport a server
//! with nothing behind it (`empty`), which bounds what a volume can reach with reads and writes.
//! `workload` is what is measured, [`Requests`] counts what the kernel asks a server.
//! **Invariants.** The targets take turns within each round. The first round is not timed, but has
//! its requests counted. **Crash.** Mounts and loop devices stay behind: `umount`, `losetup -d`.

mod empty;
#[cfg(test)]
mod tests;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use dure_fuse::Transport;
use serde::Serialize;
use tempfile::TempDir;

use self::empty::Empty;
use self::workload::{ALL, Stuff, Workload};
use crate::measure::f64_of;
use crate::medium::{Medium, Mounted, Source};
use crate::report::{self, Columns, plain_table};
use crate::requests::Requests;

/// Where everything lies: a tmpfs.
const MEMORY: &str = "/dev/shm";
/// Other file systems.
const OTHERS: [&str; 2] = ["ext4", "xfs"];
/// The one that times are compared with.
const BASE: &str = "ext4";

/// `dure bench mount`.
#[derive(Debug, clap::Args)]
pub struct Mount {
    /// Mount options of the volumes, a target each.
    #[arg(long = "options", value_name = "OPTION[,OPTION...]",
        default_values = ["transport=device", "transport=uring"])]
    pub options: Vec<String>,
    /// Files of the tree that is unpacked, of 12 KiB on average.
    #[arg(long, default_value_t = 6000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: u32,
    /// Size in MiB of the file that is read and written.
    #[arg(long, default_value_t = 128, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub file_mib: u64,
    /// Seconds of small writes, and at most of small reads.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = crate::options::seconds)]
    pub seconds: f64,
    /// Measurements of each figure; their median counts.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
}

/// What keeps a directory.
#[derive(Debug)]
enum Place {
    Memory(TempDir),
    Other(Mounted),
    Dure(Volume),
    Empty(Empty),
}

/// A volume that is mounted.
#[derive(Debug)]
struct Volume {
    directory: TempDir,
    /// The image's, dropped after the unmount.
    _image: TempDir,
}

#[derive(Debug)]
struct Target {
    name: String,
    place: Place,
    /// For each workload.
    figures: Vec<Vec<f64>>,
    requests: Vec<Option<u64>>,
}

/// A figure of the report.
#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    target: String,
    workload: &'static str,
    /// `ms`, `MiB/s` or `calls/s`.
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    n: usize,
    /// Requests of the kernel for each entry of the tree; `null`: not counted.
    requests_per_entry: Option<f64>,
}

/// Measures and prints the report.
///
/// # Errors
/// There is no memory file system, a program is missing or fails.
pub(crate) fn run(args: &Mount) -> Result<()> {
    let place = TempDir::with_prefix_in("dure-bench-", MEMORY).context(MEMORY)?;
    let of_file = (args.file_mib, args.seconds);
    let stuff = Stuff::make(place.path(), args.files, of_file)?;
    let mut left_out = Vec::new();
    let mut targets = targets(args, &mut left_out)?;
    let requests = match Requests::new() {
        Ok(requests) => Some(requests),
        Err(error) => {
            left_out.push(format!("requests per entry: {error:#}"));
            None
        }
    };
    for round in 0..=args.repeat {
        for target in &mut targets {
            target.round(&stuff, (round == 0).then_some(requests.as_ref()))?;
        }
    }
    let rows: Vec<Row> = targets
        .iter()
        .flat_map(|target| target.rows(&stuff))
        .collect();
    drop(targets);
    if args.json {
        report::print(&serde_json::to_string_pretty(&rows).context("writing JSON")?);
    } else {
        report::print(&table(&rows).to_string());
    }
    for what in left_out {
        report::say(&format!("left out: {what}"));
    }
    Ok(())
}

fn targets(args: &Mount, left_out: &mut Vec<String>) -> Result<Vec<Target>> {
    // The tree and the file twice, what file systems keep for themselves, and logs; and so much that
    // the room of the volume does not limit what the kernel collects.
    let used = u64::from(args.files) * (32 << 10) + (args.file_mib << 21) + (512 << 20);
    let bytes = used.max(4 << 30);
    let memory = TempDir::with_prefix_in("dure-bench-", MEMORY)?;
    let mut targets = vec![Target::new("tmpfs", Place::Memory(memory))];
    for kind in OTHERS {
        let made = Medium::make(&Source::Loop, bytes);
        match made.and_then(|medium| Mounted::make(kind, "", medium)) {
            Ok(mounted) => targets.push(Target::new(kind, Place::Other(mounted))),
            Err(error) => left_out.push(format!("{kind}: {error:#}")),
        }
    }
    for options in &args.options {
        let volume = Volume::mount(options, bytes)?;
        match volume {
            Ok(volume) => {
                targets.push(Target::new(&format!("dure {options}"), Place::Dure(volume)))
            }
            Err(why) => left_out.push(format!("dure {options}: {why}")),
        }
    }
    for (name, transport) in [("device", Transport::Device), ("uring", Transport::Uring)] {
        match Empty::mount(transport)? {
            Ok(empty) => targets.push(Target::new(&format!("empty {name}"), Place::Empty(empty))),
            Err(why) => left_out.push(format!("empty {name}: {why}")),
        }
    }
    Ok(targets)
}

impl Volume {
    /// Makes and mounts one; what is missing for these options is no error, but said.
    fn mount(options: &str, bytes: u64) -> Result<Result<Volume, String>> {
        let files = TempDir::with_prefix_in("dure-bench-", MEMORY)?;
        let image = files.path().join("image");
        let directory = TempDir::with_prefix("dure-bench-")?;
        dure(&["mkfs", "--size", &format!("{}M", bytes >> 20)], &[&image])?;
        let volume = Volume {
            directory,
            _image: files,
        };
        let said = dure(
            &["mount", "-o", options],
            &[&image, volume.directory.path()],
        )?;
        // A server that falls back to another transport says so.
        if said.is_empty() {
            Ok(Ok(volume))
        } else {
            Ok(Err(said))
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = dure(&["umount"], &[self.directory.path()]) {
            crate::note!(
                "{} stays behind: {error:#}",
                self.directory.path().display()
            );
        }
    }
}

/// Runs this program; what it says on standard error.
fn dure(words: &[&str], paths: &[&Path]) -> Result<String> {
    let program: PathBuf = std::env::current_exe().context("finding the dure program")?;
    let mut command = Command::new(program);
    command.args(words).args(paths).stdin(Stdio::null());
    // The server of a mount keeps what it inherits: not a pipe that we read to its end.
    let said = tempfile::NamedTempFile::new()?;
    command.stdout(Stdio::null()).stderr(said.reopen()?);
    let status = command.status()?;
    let text = std::fs::read_to_string(said.path())?;
    ensure!(
        status.success(),
        "dure {}: {}",
        words.join(" "),
        text.trim()
    );
    Ok(text.trim().to_owned())
}

impl Target {
    fn new(name: &str, place: Place) -> Target {
        Target {
            name: name.to_owned(),
            place,
            figures: vec![Vec::new(); ALL.len()],
            requests: vec![None; ALL.len()],
        }
    }

    fn directory(&self) -> &Path {
        match &self.place {
            Place::Memory(directory) => directory.path(),
            Place::Other(mounted) => mounted.directory.path(),
            Place::Dure(volume) => volume.directory.path(),
            Place::Empty(empty) => empty.directory.path(),
        }
    }

    /// All workloads; in the first round their figures do not count.
    fn round(&mut self, stuff: &Stuff, first: Option<Option<&Requests>>) -> Result<()> {
        for (number, workload) in ALL.into_iter().enumerate() {
            if matches!(self.place, Place::Empty(_)) && !workload.needs_one_file() {
                continue;
            }
            let directory = self.directory();
            let context = || format!("{} on {}", workload.name(), self.name);
            match (first, &self.place) {
                (Some(Some(requests)), Place::Dure(_)) if workload.is_time() => {
                    let work = || stuff.run(workload, directory).map(drop);
                    let count = requests.during(directory, work).with_context(context)?;
                    self.requests[number] = Some(count.total);
                }
                (first, _) => {
                    let figure = stuff.run(workload, directory).with_context(context)?;
                    if first.is_none() {
                        self.figures[number].push(figure);
                    }
                }
            }
        }
        Ok(())
    }

    fn rows<'t>(&'t self, stuff: &'t Stuff) -> impl Iterator<Item = Row> + 't {
        let measured = |(number, _): &(usize, Workload)| !self.figures[*number].is_empty();
        let all = ALL.into_iter().enumerate().filter(measured);
        all.map(|(number, workload)| {
            let (unit, by) = match workload {
                Workload::ReadLarge | Workload::WriteLarge => ("MiB/s", f64_of(1 << 20)),
                _ if workload.is_time() => ("ms", 1.0),
                _ => ("calls/s", 1.0),
            };
            let mut figures: Vec<f64> = self.figures[number].iter().map(|one| one / by).collect();
            figures.sort_by(f64::total_cmp);
            let per_entry = |count| f64_of(count) / f64_of(stuff.entries());
            Row {
                bench: "mount",
                target: self.name.clone(),
                workload: workload.name(),
                unit,
                median: figures[figures.len() / 2],
                min: figures[0],
                max: figures[figures.len() - 1],
                n: figures.len(),
                requests_per_entry: self.requests[number].map(per_entry),
            }
        })
    }
}

/// How many times as fast as the base a row is; 1 for the base itself.
fn speed(row: &Row, rows: &[Row]) -> Option<f64> {
    let of_base = |other: &&Row| other.target == BASE && other.workload == row.workload;
    let base = rows.iter().find(of_base)?.median;
    Some(match row.unit {
        "ms" => base / row.median,
        _ => row.median / base,
    })
}

fn table(rows: &[Row]) -> Table {
    let heads = [
        "workload",
        "target",
        "median",
        "min-max",
        "n",
        "by ext4",
        "req/entry",
    ];
    let mut table = plain_table(&heads, &[], Columns::Usual);
    for workload in ALL {
        for row in rows.iter().filter(|row| row.workload == workload.name()) {
            let two = |figure: Option<f64>| figure.map_or(String::new(), |one| format!("{one:.2}"));
            table.add_row([
                row.workload.to_owned(),
                row.target.replace("transport=", ""),
                format!("{:.0} {}", row.median, row.unit),
                format!("{:.0}-{:.0}", row.min, row.max),
                row.n.to_string(),
                two(speed(row, rows)),
                two(row.requests_per_entry),
            ]);
        }
    }
    table
}
