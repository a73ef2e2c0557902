//! Measurements of dure, side by side with directories of other file systems.
//!
//! **Problem.** Times of one run say little: the machine is noisy, a second core comes up slowly.
//! **Structure.** A [`target::Target`] is a volume (through the library), a directory (through
//! system calls), a device or a plain copy; a bench makes a crew of workers, each of which loops
//! over one operation; [`measure`] lets the crews of all targets run in turn, `repeat` times,
//! warmed up; [`report`] prints a table or a list of flat JSON objects. [`options`] are the same
//! for all.
//!
//! **Invariants.** Targets are interleaved, so that drift hits all alike. Every figure comes with
//! its number of repetitions, minimum and maximum. Nothing here is a test: no figure fails
//! anything.
//!
//! **On a crash** of a run the target's working directory `dure-bench` may stay behind; the next
//! run removes it. Ctrl-C is no crash (`interrupt`).

pub mod aged;
pub mod aim7;
pub mod blk;
pub mod buffered;
pub mod checkpoint;
pub mod compare;
pub mod device;
mod directory;
pub mod filebench;
pub mod fxmark;
pub mod interrupt;
pub mod journal;
pub mod locks;
pub mod measure;
pub mod medium;
pub mod micro;
pub mod mount;
pub mod options;
pub mod print;
mod random;
pub mod recovery;
pub mod report;
pub mod requests;
pub mod size;
pub mod target;
pub mod tpcc;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use clap::Subcommand;
use dure_sync::CoreId;
use serde::{Deserialize, Serialize};

use measure::process::obey;

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
    /// The workloads of `FxMark`: how data and metadata calls scale with cores.
    #[command(name = "fxmark")]
    FxMark(fxmark::FxMark),
    /// Servers as Filebench imitates them: files, mail, web, proxy, database.
    Filebench(filebench::Filebench),
    /// The storage tests of AIM7, as many users mix them.
    Aim7(aim7::Aim7),
    /// Synchronous writes on an empty file system, and again after it was filled and churned.
    Aged(aged::Aged),
    /// One directory that grows to a million entries and shrinks again: the rate of each tenth.
    Directory(directory::Directory),
    /// Synchronous writes: all policies of the journal, ext4, xfs, and the floor below them.
    Journal(journal::Journal),
    /// Checkpoints of many dirty nodes, by one task and by several, and fsyncs meanwhile.
    Checkpoint(checkpoint::Checkpoint),
    /// Buffered writes that are faster than the device: how long each takes, with a limit of dirty
    /// pages and without.
    Buffered(buffered::Buffered),
    /// A database's reads, writes and log appends on a modelled disk: page cache in DRAM with a
    /// periodic sync, and with dirty pages in persistent memory.
    Tpcc(tpcc::Tpcc),
    /// Recovery of full logs: how long, at what rate, and where the time goes.
    Recovery(recovery::Recovery),
    /// A block device, a file or memory under a load of requests: rates, latencies, phases.
    Blk(blk::Blk),
    /// Mounted volumes, a transport each, compared with tmpfs, ext4 and xfs: programs and system
    /// calls.
    Mount(mount::Mount),
    /// Range locks: acquire and release of each policy, by one thread and by several.
    Locks(locks::Locks),
    /// The systems of a paper side by side on this machine: its figures as tables and drawings.
    Compare(compare::Compare),
    /// Calls that miss: reads, mixes and writes of files larger than memory, many small files.
    Device(device::Device),
    /// A worker process of another bench (internal).
    #[command(hide = true)]
    Worker {
        /// Its task, as JSON.
        assignment: String,
        /// The core it runs on.
        core: u16,
    },
}

/// The task of a worker process.
#[derive(Debug, Serialize, Deserialize)]
enum Assignment {
    FxMark(fxmark::Assignment),
    Aim7(aim7::Assignment),
}

/// Runs a bench and prints its report; `words` has what documents show.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub fn run(args: &Args, words: compare::Words) -> Result<()> {
    match &args.bench {
        // Its parent tells it when to end, and the terminal tells both.
        worker @ Bench::Worker { .. } => run_bench(worker, words),
        bench => interrupt::run(|| run_bench(bench, words)),
    }
}

fn run_bench(bench: &Bench, words: compare::Words) -> Result<()> {
    match bench {
        Bench::Micro(micro) => micro::run_micro(micro),
        Bench::FxMark(fxmark) => fxmark::run(fxmark),
        Bench::Filebench(filebench) => filebench::run(filebench),
        Bench::Aim7(aim7) => aim7::run(aim7),
        Bench::Aged(aged) => aged::run(aged),
        Bench::Directory(directory) => directory::run(directory),
        Bench::Worker { assignment, core } => {
            let told: Assignment = serde_json::from_str(assignment).context("an assignment")?;
            obey(CoreId::new(*core), || match told {
                Assignment::FxMark(told) => fxmark::worker(told),
                Assignment::Aim7(told) => aim7::worker(&told),
            })
        }
        Bench::Journal(journal) => journal::run(journal),
        Bench::Checkpoint(checkpoint) => checkpoint::run(checkpoint),
        Bench::Buffered(buffered) => buffered::run(buffered),
        Bench::Tpcc(tpcc) => tpcc::run(tpcc),
        Bench::Recovery(recovery) => recovery::run(recovery),
        Bench::Blk(args) => blk::run(args),
        Bench::Mount(mount) => mount::run(mount),
        Bench::Locks(locks) => locks::run(locks),
        Bench::Device(device) => device::run(device),
        Bench::Compare(args) => compare::run(args, words),
    }
}
