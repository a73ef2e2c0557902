//! `dure check` and what else mends or reads out a damaged volume.

use std::path::PathBuf;

use super::Regions;

/// `dure check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Repair. What needs no guess first; where structures are lost, all that is left is found
    /// again, what lost its name goes to lost+found, and what is lost is said.
    #[arg(long)]
    pub repair: bool,
    /// With --repair: only what needs no guess, and no rebuild; what fsck(8) asks for at boot (-a,
    /// -p). The exit status is 4 if more is to be done.
    #[arg(long, requires = "repair")]
    pub safe: bool,
    /// Before a block is written, save what stood in it to this new file of another file system:
    /// `dure undo FILE VOLUME` takes the repair back, also one that was cut off.
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub undo: Option<PathBuf>,
    /// Also read all file data and verify its checksums.
    #[arg(long)]
    pub data: bool,
    /// With "tolerate": if synced changes are missing in the logs, look at the rest, as a mount
    /// with `-o recover=tolerate` shows it.
    #[arg(long, value_parser = ["whole", "tolerate"], default_value = "whole")]
    #[arg(value_name = "HOW", conflicts_with = "repair")]
    pub recover: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

impl Check {
    /// Whether the rest is looked at when the logs have holes.
    pub fn tolerates_holes(&self) -> bool {
        self.recover == "tolerate"
    }
}

pub(super) const UNDO_HELP: &str = "\
The volume must be as the repair left it: once it was mounted for writing, or repaired again, the undo is \
refused. A repair that was cut off is taken back too, and an undo that was cut off is done again.";

/// `dure undo`.
#[derive(Debug, clap::Args)]
pub struct Undo {
    /// The file that `dure check --repair --undo FILE` wrote.
    pub file: PathBuf,
    /// The volume that was repaired, not mounted.
    pub volume: PathBuf,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

pub(super) const RESCUE_HELP: &str = "\
Nothing is written to the volume. Modes, times, symbolic links, hard links, holes, extended attributes \
and, for root, owners and devices are kept. What lost its name is in lost+found. A destroyed page reads as zeroes.";

/// `dure rescue`.
#[derive(Debug, clap::Args)]
pub struct Rescue {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// A directory of the host that is empty, or does not exist.
    pub directory: PathBuf,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}
