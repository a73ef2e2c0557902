//! `dure bench buffered`: how long a buffered write takes on a device that is slower than its
//! writers, with the limit of dirty pages and without.
//!
//! **Structure.** Volumes in memory behind a device that serves one request after the other, at a
//! given rate: one for each `dirty_limit=`. They take turns: a thread on each core appends so many
//! pages to a file of its own, and each write is timed. Then the file is removed, and everything
//! synced.
//!
//! **Invariants.** All volumes do the same writes. What is timed is the call, pauses included.
//! **On a crash** nothing is left behind.

use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::Table;
use dure_block::delay::DelayDevice;
use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::share;
use dure_fs::{FileSystem, FormatOptions, MountOptions, NewInode, Stamp};
use dure_sync::{Arc, CoreId, clock, thread};
use serde::Serialize;

use crate::micro::content;
use crate::report::{self, Columns};
use crate::target::options_of;

/// `dure bench buffered`.
#[derive(Debug, clap::Args)]
pub struct Buffered {
    /// Megabytes that each thread appends, a page a call.
    #[arg(long, default_value_t = 200, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub mib: u32,
    /// Megabytes per second that the device does.
    #[arg(long, default_value_t = 200, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Megabytes of the cache; about half is for pages.
    #[arg(long, default_value_t = 128, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub cache: u32,
    /// Limits of dirty pages to compare, as of the mount option.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "half,none",
        value_name = "SIZE|half|none"
    )]
    pub dirty_limit: Vec<String>,
    /// Threads, each on a core of its own [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Policies of dure, as mount options.
    #[arg(long, default_value = "", value_name = "OPTION[,OPTION...]")]
    pub policy: String,
    /// Runs of each volume.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
}

const PAGE: u64 = 4096;

#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    dirty_limit: String,
    threads: u16,
    n: usize,
    writes: usize,
    mib_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// The longest write of each run: the median of runs, the least and the most.
    longest_ms: f64,
    longest_min: f64,
    longest_max: f64,
    pauses: u64,
}

struct Subject {
    limit: String,
    fs: FileSystem,
    ns: Vec<u64>,
    longest: Vec<u64>,
    run_ns: u64,
}

/// Measures and prints the report.
///
/// # Errors
/// An operation that fails.
pub(crate) fn run(args: &Buffered) -> Result<()> {
    let rows = measure(args)?;
    if args.json {
        report::print(&serde_json::to_string_pretty(&rows).context("writing JSON")?);
    } else {
        report::print(&table(&rows).to_string());
    }
    Ok(())
}

fn measure(args: &Buffered) -> Result<Vec<Row>> {
    let cores = u16::try_from(dure_sync::core_count()).unwrap_or(u16::MAX);
    let threads = args.threads.unwrap_or(cores);
    let subjects = args.dirty_limit.iter();
    let subjects = subjects.map(|limit| Subject::new(args, limit, threads));
    let mut subjects: Vec<Subject> = subjects.collect::<Result<_>>()?;
    for _ in 0..args.repeat {
        for subject in &mut subjects {
            subject.append(args.mib, threads)?;
        }
    }
    subjects
        .into_iter()
        .map(|subject| row(subject, threads))
        .collect()
}

impl Subject {
    fn new(args: &Buffered, limit: &str, threads: u16) -> Result<Subject> {
        let blocks = u64::from(args.mib) * 256 * u64::from(threads) * 2 + (1 << 15);
        let medium = share(OverlayRam::new("buffered", Arc::new(Image::zeroed(blocks))));
        let format = FormatOptions {
            journals: Some(u32::from(threads)),
            ..FormatOptions::default()
        };
        FileSystem::format(medium.clone(), &format)?;
        let block = Duration::from_nanos(1_000_000_000 / (u64::from(args.rate) * 256));
        // A little for each request, too.
        let slow = DelayDevice::new(medium, block, block).in_turn(block);
        let mut mount = MountOptions {
            cache_bytes: u64::from(args.cache) << 20,
            ..options_of("dure", &args.policy)?
        };
        if limit != "half" {
            let set = mount.set_policy("dirty_limit", limit);
            set.map_err(anyhow::Error::msg)?;
        }
        Ok(Subject {
            limit: limit.to_owned(),
            fs: FileSystem::open(share(slow), mount)?,
            ns: Vec::new(),
            longest: Vec::new(),
            run_ns: 0,
        })
    }

    fn append(&mut self, mib: u32, threads: u16) -> Result<()> {
        let begin = clock::monotonic_ns();
        let writers: Vec<_> = (0..threads)
            .map(|core| {
                let fs = self.fs.clone();
                let run = move || append_to(&fs, core, u64::from(mib) * 256);
                thread::spawn_on("writer", CoreId::new(core), run)
            })
            .collect();
        let mut longest = 0;
        for writer in writers {
            let times = writer.join().expect("writing does not panic")?;
            longest = longest.max(times.iter().copied().max().unwrap_or(0));
            self.ns.extend(times);
        }
        self.run_ns += clock::monotonic_ns() - begin;
        self.longest.push(longest);
        let root = self.fs.root()?;
        for core in 0..threads {
            self.fs.unlink(&root, name_of(core).as_bytes())?;
        }
        Ok(self.fs.sync()?)
    }
}

fn name_of(core: u16) -> String {
    format!("file{core}")
}

fn append_to(fs: &FileSystem, core: u16, pages: u64) -> Result<Vec<u64>> {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&fs.root()?, name_of(core).as_bytes(), &new)?;
    let page = content(usize::from(core));
    let mut times = Vec::new();
    for n in 0..pages {
        let begin = clock::monotonic_ns();
        fs.write(&file, n * PAGE, &page, Stamp::Set)?;
        times.push(clock::monotonic_ns() - begin);
    }
    Ok(times)
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn row(mut subject: Subject, threads: u16) -> Result<Row> {
    subject.ns.sort_unstable();
    subject.longest.sort_unstable();
    let (ns, longest) = (&subject.ns, &subject.longest);
    let at = |permille: usize| {
        let ns = ns.get(ns.len() * permille / 1000);
        ns.map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    let milliseconds = |ns: Option<&u64>| ns.map_or(0.0, |ns| *ns as f64 / 1e6);
    let mib = ns.len() as f64 / 256.0;
    let pauses = subject.fs.activity().pauses;
    subject.fs.close()?;
    Ok(Row {
        bench: "buffered",
        dirty_limit: subject.limit,
        threads,
        n: longest.len(),
        writes: ns.len(),
        mib_per_second: mib * 1e9 / subject.run_ns as f64,
        p50_us: at(500),
        p99_us: at(990),
        p999_us: at(999),
        longest_ms: milliseconds(longest.get(longest.len() / 2)),
        longest_min: milliseconds(longest.first()),
        longest_max: milliseconds(longest.last()),
        pauses,
    })
}

fn table(rows: &[Row]) -> Table {
    let header = [
        "dirty_limit",
        "threads",
        "n",
        "writes",
        "MiB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "longest ms",
        "min",
        "max",
        "pauses",
    ];
    let mut table = report::plain_table(&header, &[0], Columns::Usual);
    for row in rows {
        let short = |value: f64| format!("{value:.1}");
        table.add_row([
            row.dirty_limit.clone(),
            row.threads.to_string(),
            row.n.to_string(),
            row.writes.to_string(),
            short(row.mib_per_second),
            short(row.p50_us),
            short(row.p99_us),
            short(row.p999_us),
            short(row.longest_ms),
            short(row.longest_min),
            short(row.longest_max),
            row.pauses.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_sleep_with_a_limit_only() {
        let args = Buffered {
            mib: 24,
            rate: 100,
            cache: 16,
            dirty_limit: vec!["half".into(), "2M".into(), "none".into()],
            threads: Some(1),
            policy: String::new(),
            repeat: 1,
            json: false,
        };
        let rows = measure(&args).unwrap();
        assert!(rows.iter().all(|row| row.writes == 24 * 256));
        assert!(rows[0].pauses > 0 && rows[1].pauses > 0 && rows[2].pauses == 0);
    }
}
