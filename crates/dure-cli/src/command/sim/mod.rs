//! `dure sim`: crash enumeration, in shares that can be continued.
//!
//! **Structure.** The campaign of dure-sim runs batches; after each, the file of `--resume` is
//! replaced by one that says where to go on and what was found (`report`). `volume` says on what
//! the workloads run.

mod report;
#[cfg(test)]
mod tests;
mod volume;

use anyhow::{Result, anyhow, bail};
use dure_bench::say;
use dure_sim::crash::campaign::{Campaign, Plan, Tally};
use dure_sim::crash::{Workload, chipmunk};

use self::report::{Report, load, save};
use self::volume::options;
pub(super) use self::volume::with_policies;
use crate::args::{Mechanism, Sim, SimCrash, SimExplain, Suite};
use crate::progress;

pub(crate) fn run(args: &Sim) -> Result<u8> {
    match args {
        Sim::Crash(args) => crash(args),
        Sim::Conflicts(args) => super::conflicts::run(args),
        Sim::Explain(args) => explain(args),
        Sim::Scale(args) => super::room::scale(args),
        Sim::Experiments(args) => super::room::experiments(args),
        Sim::Calibrate(args) => super::room::calibrate(args),
        Sim::Validate(args) => super::room::validate(args),
    }
}

fn explain(args: &SimExplain) -> Result<u8> {
    let told = match args.mechanism {
        Mechanism::Zjournal => dure_sim::explain::zjournal(),
    };
    say!("{}", told.map_err(|error| anyhow!("{error}"))?.trim_end());
    Ok(0)
}

/// Operations, cores and seed of ACE's workloads.
fn of_ace(args: &SimCrash) -> (u32, u32, u64) {
    let (seq, cores) = (args.seq.unwrap_or(1), args.cores.unwrap_or(3));
    (seq, cores, args.seed.unwrap_or(1))
}

fn milliseconds(since: u64) -> u64 {
    (dure_sync::clock::monotonic_ns() - since) / 1_000_000
}

fn crash(args: &SimCrash) -> Result<u8> {
    let report = match &args.replay {
        Some(text) => replay(args, text)?,
        None => enumerate(args)?,
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(report.code())
}

fn replay(args: &SimCrash, text: &str) -> Result<Report> {
    let workload: Workload = text
        .parse()
        .map_err(|what: String| anyhow!("--replay: {what}"))?;
    let begin = dure_sync::clock::monotonic_ns();
    let tally = Campaign::replay(&workload, &options(args)?);
    let mut report = Report::new(args, 1);
    report.add(Tally { place: 1, ..tally }, milliseconds(begin));
    Ok(report)
}

fn campaign(args: &SimCrash, threads: usize) -> Result<Campaign> {
    let options = options(args)?;
    if args.suite == Suite::Chipmunk {
        if args.seq.is_some() || args.cores.is_some() || args.seed.is_some() {
            bail!(
                "--suite chipmunk: its workloads are a list; --seq, --cores and --seed are for ace"
            );
        }
        return Ok(Campaign::chipmunk(&chipmunk::CLASSES, threads, options));
    }
    let (operations, cores, seed) = of_ace(args);
    let cores = dure_fs::units::to_usize(cores.into());
    let plan = Plan {
        operations,
        cores,
        seed,
    };
    Ok(Campaign::new(plan, threads, options))
}

fn enumerate(args: &SimCrash) -> Result<Report> {
    let threads = match args.threads {
        Some(threads) => dure_fs::units::to_usize(threads.into()),
        None => dure_sync::core_count(),
    };
    let campaign = campaign(args, threads)?;
    let mut report = Report::new(args, campaign.groups());
    if let Some(path) = &args.resume
        && let Some(earlier) = load(path, &report)?
    {
        report = earlier;
    }
    let count = args.count.unwrap_or(u64::MAX);
    let bar = match args.count {
        Some(count) => progress::bar(count, "workloads"),
        None => progress::bar(report.groups, "groups of workloads"),
    };
    while report.workloads < count {
        let place = report.groups_done;
        let mut tally = Tally {
            place,
            ..Tally::default()
        };
        let begin = dure_sync::clock::monotonic_ns();
        if !campaign.batch(&mut tally) {
            break;
        }
        report.add(tally, milliseconds(begin));
        if let Some(path) = &args.resume {
            save(path, &report)?;
        }
        bar.set_position(if args.count.is_some() {
            report.workloads
        } else {
            report.groups_done
        });
    }
    bar.finish_and_clear();
    Ok(report)
}
