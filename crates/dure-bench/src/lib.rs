//! Measurements of dure, side by side with directories of other file systems.
//!
//! **Problem.** Times of one run say little: the machine is noisy, a second core comes up slowly.
//! **Structure.** A [`workload::Workload`] is a loop of one operation; a [`target::Target`] carries it
//! out on a volume through the library, or on a directory through system calls; [`measure`] runs
//! every workload on every target in turn, `repeat` times, warmed up; [`report`] prints a table or a
//! list of flat JSON objects.
//!
//! **Invariants.** Targets are interleaved, so that drift hits all alike. Every figure comes with its
//! number of repetitions, minimum and maximum. Nothing here is a test: no figure fails anything.
//!
//! **On a crash** of a run the target's working directory `dure-bench` may stay behind; the next run
//! removes it.

#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

pub mod journal;
pub mod locks;
pub mod measure;
pub mod medium;
pub mod report;
pub mod target;
pub mod workload;

use anyhow::{Result, bail};
use clap::Subcommand;

use measure::Plan;
use target::Target;
use workload::Workload;

/// `dure bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to measure.
    #[command(subcommand)]
    pub bench: Bench,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Single operations, warm: overwrite, read, stat, create + unlink, overwrite + fsync.
    Micro(Micro),
    /// Synchronous writes: all policies of the journal, ext4, xfs, and the floor below them.
    Journal(journal::Journal),
    /// Range locks: acquire and release of each policy, alone and beside others.
    Locks(locks::Locks),
}

/// `dure bench micro`.
#[derive(Debug, clap::Args)]
pub struct Micro {
    /// What to measure on, several times: dure:VOLUME[,OPTION...] (a volume that is not mounted; options:
    /// the policies of `dure mount -o`), dir:PATH (a directory of any mounted file system),
    /// raw:PATH[,pages=N] (a device or file, which is overwritten), or copy (a plain copy of 4 KiB: what the machine can do).
    #[arg(long = "target", required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Workloads [default: all].
    #[arg(long = "workload", value_enum)]
    pub workloads: Vec<Workload>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Measurements of each point; their median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Milliseconds of one measurement.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub milliseconds: u64,
    /// Milliseconds of warm-up before each measurement.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub warm_up: u64,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
}

/// Runs a bench and prints its report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub fn run(args: Args) -> Result<()> {
    match args.bench {
        Bench::Micro(micro) => run_micro(micro),
        Bench::Journal(journal) => run_journal(&journal),
        Bench::Locks(locks) => locks::run(&locks),
    }
}

fn run_journal(args: &journal::Journal) -> Result<()> {
    let (points, left_out) = journal::run(args)?;
    if args.json {
        println!("{}", report::json("journal", &points)?);
    } else {
        println!("{}", report::table(&points));
    }
    for what in left_out {
        say(&format!("left out: {what}"));
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "not part of the report")]
fn say(text: &str) {
    eprintln!("{text}");
}

fn run_micro(micro: Micro) -> Result<()> {
    if micro.threads.contains(&0) {
        bail!("--threads: at least one thread");
    }
    let all = [
        Workload::Overwrite,
        Workload::Read,
        Workload::Stat,
        Workload::CreateUnlink,
        Workload::OverwriteFsync,
    ];
    let workloads = if micro.workloads.is_empty() {
        all.to_vec()
    } else {
        micro.workloads
    };
    let targets = micro
        .targets
        .iter()
        .map(|text| Target::open(text))
        .collect::<Result<Vec<_>>>()?;
    let plan = Plan {
        workloads,
        threads: micro.threads,
        repeat: micro.repeat,
        run_ms: micro.milliseconds,
        warm_up_ms: micro.warm_up,
    };
    let results = measure::run(&targets, &plan)?;
    for target in targets {
        target.close()?;
    }
    if micro.json {
        println!("{}", report::json("micro", &results)?);
    } else {
        println!("{}", report::table(&results));
    }
    Ok(())
}
