//! A block device under load, as `fio` puts it there.
//!
//! **Problem.** What bounds a device - its own time, tags, the path to it - shows only when the
//! load is chosen: how many jobs, how many requests each has under way, which blocks. **Structure.**
//! `device` opens what is measured, `load` lets jobs submit and wait on cores of their own, and
//! `report` prints rates, percentiles of the latency, and the phases of requests.
//! **Invariants.** A file that is there is written only with `--overwrite`. **On a crash** an image
//! file that was made for the run stays behind.

pub mod analyze;
mod choices;
mod depth;
mod device;
pub mod export;
mod job;
mod load;
mod phases;
mod report;
#[cfg(test)]
mod tests;
mod through;
pub mod trace;

use anyhow::Result;

use crate::interrupt;
pub use choices::{Engine, Pattern};
pub use depth::Requester;
use load::Stamping;
pub use load::{Load, Work};
pub(crate) use report::Report;

/// `dure bench blk`.
#[derive(Debug, Clone, clap::Args)]
pub struct Blk {
    /// What is done, and on what.
    #[command(flatten)]
    pub load: Load,
    /// Stamp requests, and tell how long they were in each phase.
    #[arg(long)]
    pub phases: bool,
    /// Make a volume on the device, and put the load on a file of each job instead. Its mount
    /// policies may be given, as in --through-fs=submit_lock=all.
    #[arg(long, value_name = "POLICIES", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "phases")]
    pub through_fs: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `dure blk`.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Tell how long requests are in each phase, as btt does, and which hardware queues they take.
    Trace(trace::Trace),
    /// Find where a device ends to scale with jobs, and why: tags, queues, locks, cores or the
    /// device itself.
    Analyze(analyze::Analyze),
    /// Offer a device as a block device of the kernel, until SIGINT or SIGTERM; of one that is
    /// killed instead, the kernel keeps the requests for --recover.
    Export(export::Export),
}

/// Runs `dure blk`, and removes what it made when it is interrupted.
///
/// # Errors
/// Those of the command.
pub fn command(command: &Command) -> Result<()> {
    match command {
        Command::Trace(args) => interrupt::run(|| trace::run(args)),
        Command::Analyze(args) => interrupt::run(|| analyze::run(args)),
        Command::Export(args) => export::run(args),
    }
}

/// Measures and prints the report.
///
/// # Errors
/// A device that cannot be opened, and a request that fails.
pub(crate) fn run(args: &Blk) -> Result<()> {
    let report = measure(args)?;
    if args.json {
        crate::report::print(&serde_json::to_string_pretty(&report)?);
    } else {
        crate::report::print(&report.text());
    }
    Ok(())
}

/// Measures once.
///
/// # Errors
/// A device that cannot be opened, and a request that fails.
pub(crate) fn measure(args: &Blk) -> Result<Report> {
    if let Some(policies) = &args.through_fs {
        return through::measure(&args.load, policies);
    }
    let queue = args.load.queue(match args.phases {
        true => Stamping::On,
        false => Stamping::Off,
    })?;
    let done = load::run(&args.load, &queue)?;
    Ok(Report::new(&args.load, &queue, done))
}
