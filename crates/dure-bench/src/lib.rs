//! Measurements of dure, side by side with directories of other file systems.
//!
//! **Problem.** Times of one run say little: the machine is noisy, a second core comes up slowly.
//! **Structure.** A [`target::Target`] is a volume (through the library), a directory (through system
//! calls), a device or a plain copy; a bench makes a crew of workers, each of which loops over one
//! operation; [`measure`] lets the crews of all targets run in turn, `repeat` times, warmed up;
//! [`report`] prints a table or a list of flat JSON objects. [`options`] are the same for all.
//!
//! **Invariants.** Targets are interleaved, so that drift hits all alike. Every figure comes with its
//! number of repetitions, minimum and maximum. Nothing here is a test: no figure fails anything.
//!
//! **On a crash** of a run the target's working directory `dure-bench` may stay behind; the next run
//! removes it.

pub mod fxmark;
pub mod journal;
pub mod locks;
pub mod measure;
pub mod medium;
pub mod micro;
pub mod options;
pub mod report;
pub mod target;

use anyhow::Result;
use clap::Subcommand;

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
    Micro(micro::Micro),
    /// The 19 workloads of `FxMark`: how data and metadata calls scale with cores.
    #[command(name = "fxmark")]
    FxMark(fxmark::FxMark),
    /// Synchronous writes: all policies of the journal, ext4, xfs, and the floor below them.
    Journal(journal::Journal),
    /// Range locks: acquire and release of each policy, alone and beside others.
    Locks(locks::Locks),
    /// A worker process of another bench (internal).
    #[command(hide = true)]
    Worker {
        /// What it is to do, as JSON.
        assignment: String,
    },
}

/// Runs a bench and prints its report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub fn run(args: &Args) -> Result<()> {
    match &args.bench {
        Bench::Micro(micro) => micro::run_micro(micro),
        Bench::FxMark(fxmark) => fxmark::run(fxmark),
        Bench::Worker { assignment } => fxmark::run_worker(assignment),
        Bench::Journal(journal) => journal::run(journal),
        Bench::Locks(locks) => locks::run(locks),
    }
}
