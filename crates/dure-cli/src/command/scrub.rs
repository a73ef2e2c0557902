//! `dure scrub`: through the server of a mounted volume.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use dure_bench::say;
use dure_block::count::Count;
use dure_sync::{clock, thread};

use crate::args::Scrub;
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request, ScrubReport, ScrubState, ScrubTask};
use crate::log;
use crate::progress;
use crate::size::Size;

/// How long a server may take: one that pauses ends what it is at.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at how far it is: a fiftieth of the time so far, so that the end of a short scrub
/// is seen soon, and a long one is not asked often.
const LOOK_MS: std::ops::RangeInclusive<u64> = 5..=200;
const LOOK_PART: u64 = 50;

pub(crate) fn run(args: &Scrub) -> Result<u8> {
    match args {
        Scrub::Start(args) => {
            let mut client = connect(&args.volume)?;
            let rate = args.rate.map(|mib| u64::from(mib) << 20);
            let report = ask(&mut client, ScrubTask::Start { rate })?;
            if !args.wait {
                say!("{}: {}", args.volume.display(), summary(&report));
                return Ok(exit::OK);
            }
            let report = wait(&mut client)?;
            show(&args.volume, &report);
            if report.state == ScrubState::Paused {
                bail!("it was paused meanwhile; `dure scrub start` lets it go on");
            }
            code(&report)
        }
        Scrub::Status(args) => {
            let report = ask(&mut connect(&args.volume)?, ScrubTask::Status)?;
            if args.json {
                let report = serde_json::to_value(&report)?;
                say!("{report:#}");
            } else {
                show(&args.volume, &report);
            }
            code(&report)
        }
        Scrub::Pause(args) => {
            let report = ask(&mut connect(&args.volume)?, ScrubTask::Pause)?;
            say!("{}: {}", args.volume.display(), summary(&report));
            Ok(exit::OK)
        }
    }
}

fn connect(volume: &Path) -> Result<Client> {
    let (path, client) = Client::of(volume)?;
    match client {
        Some(client) => Ok(client),
        None => bail!(
            "{}: it is not mounted; `dure check --data {0}` reads and compares everything of a volume that is \
             not",
            path.display()
        ),
    }
}

fn ask(client: &mut Client, task: ScrubTask) -> Result<ScrubReport> {
    let at = client.volume().display().to_string();
    match client.ask_patiently(&Request::Scrub(task), PATIENCE)? {
        Some(Reply::Scrub(report)) => Ok(*report),
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => bail!("{at}: its server ended meanwhile; the scrub goes on when it is mounted"),
    }
}

/// Waits until it runs no more.
fn wait(client: &mut Client) -> Result<ScrubReport> {
    let bar = progress::bar(1, "scrubbing");
    let began = clock::monotonic_ns();
    loop {
        let report = ask(client, ScrubTask::Status)?;
        bar.set_length(report.counts.blocks_total.max(1));
        bar.set_position(report.counts.blocks_done);
        if report.state != ScrubState::Running {
            bar.finish_and_clear();
            return Ok(report);
        }
        let passed_ms = (clock::monotonic_ns() - began) / 1_000_000;
        let pause_ms = (passed_ms / LOOK_PART).clamp(*LOOK_MS.start(), *LOOK_MS.end());
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// How it ended or stands: as that of a check.
fn code(report: &ScrubReport) -> Result<u8> {
    if let (ScrubState::Failed, Some(error)) = (report.state, &report.error) {
        bail!("{error}");
    }
    Ok(match (report.counts.bad_blocks, report.counts.left()) {
        (0, _) => exit::OK,
        (_, 0) => exit::CHECK_REPAIRED,
        _ => exit::CHECK_ERRORS_LEFT,
    })
}

fn show(volume: &Path, report: &ScrubReport) {
    for bad in &report.bad {
        say!("{bad}");
    }
    if report.bad_left_out > 0 {
        say!("and {} more", report.bad_left_out);
    }
    say!("{}: {}", volume.display(), summary(report));
}

/// A line about it.
fn summary(report: &ScrubReport) -> String {
    let counts = &report.counts;
    let percent = 100 * counts.blocks_done.min(counts.blocks_total) / counts.blocks_total.max(1);
    let at = format!("at {percent}%");
    let state = match report.state {
        ScrubState::Never => return "no scrub yet".into(),
        ScrubState::Running => format!("running, {at}"),
        ScrubState::Paused => format!("paused {at}"),
        ScrubState::Complete => format!("complete on {}", log::date(report.ended)),
        ScrubState::Failed => format!("failed {at}"),
    };
    let read = Size(counts.blocks_read * 4096);
    let bad = Count::of(counts.bad_blocks, "damaged block");
    let mended = match counts.mended {
        0 => String::new(),
        mended => format!(", {mended} of them mended"),
    };
    let unknown = match counts.unknown {
        0 => String::new(),
        unknown => format!(", {} of no known owner", Count::of(unknown, "block")),
    };
    format!("{state}; {read} read, {bad}{mended}{unknown}")
}
