//! `dure scrub`.

use std::path::PathBuf;

use clap::Subcommand;

pub(super) const HELP: &str = "\
A scrub reads everything that a mounted volume holds, and compares it with its checksums: headers, tables, nodes, \
and pages of files. The server of the mount does it, in idle time; files stay in use meanwhile. What is damaged is \
named by path, and written elsewhere if memory has it. A volume that is not mounted: `dure check --data`.";

/// `dure scrub`.
#[derive(Debug, Subcommand)]
pub enum Scrub {
    /// Start a scrub, or let one that was paused or cut short go on.
    Start(ScrubStart),
    /// Show how far the scrub is, and what is damaged.
    Status(ScrubStatus),
    /// Pause it; `start` lets it go on.
    Pause(ScrubPause),
}

impl Scrub {
    /// The volume.
    pub(super) fn volume(&self) -> &PathBuf {
        match self {
            Scrub::Start(args) => &args.volume,
            Scrub::Status(args) => &args.volume,
            Scrub::Pause(args) => &args.volume,
        }
    }
}

/// `dure scrub start`.
#[derive(Debug, clap::Args)]
pub struct ScrubStart {
    /// A block device or image file that is mounted, or where it is mounted.
    pub volume: PathBuf,
    /// Wait until it has ended, and show what is damaged. A scrub goes on if the command is interrupted.
    #[arg(long)]
    pub wait: bool,
    /// Read so many MiB a second at most, whatever others do, 1 to 1000000 [default: as fast as the device is
    /// while others do not use it, and little while they do].
    #[arg(long, value_name = "MIB/S", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: Option<u32>,
}

/// `dure scrub status`.
#[derive(Debug, clap::Args)]
pub struct ScrubStatus {
    /// A block device or image file that is mounted, or where it is mounted.
    pub volume: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `dure scrub pause`.
#[derive(Debug, clap::Args)]
pub struct ScrubPause {
    /// A block device or image file that is mounted, or where it is mounted.
    pub volume: PathBuf,
}
