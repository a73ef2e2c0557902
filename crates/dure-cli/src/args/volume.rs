//! Commands about a whole volume: its size, its free blocks, what there is to know of it.

use std::path::PathBuf;

use super::Regions;
use crate::size::Size;

pub(super) const RESIZE_HELP: &str = "\
A volume never becomes smaller: files, nodes and logs may lie anywhere on it. For a smaller one make a new \
volume and copy (`dure get`, `dure put`, or cp(1) between two mounts).

While a mounted volume grows, files stay open, and calls wait: its server writes everything back, and mounts it \
again. A volume on several media does not grow, and one in persistent memory not while it is mounted.

The new tables are written behind the old end of the volume, then one block makes them count: a crash leaves \
the volume with the old or with the new size.";

pub(super) const UPGRADE_HELP: &str = "\
A volume of version 4 is mounted as it is by this dure and every later one: nobody has to upgrade. A feature is \
turned on when it is first used, and from then on a dure that does not know it refuses the volume by name. An \
upgrade turns it on before that, at a time of your choice. It cannot be turned off again.

Only the superblock is written. A crash leaves the features off or on.";

/// `dure upgrade`.
#[derive(Debug, clap::Args)]
pub struct Upgrade {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Show all features, and change nothing.
    #[arg(long)]
    pub list: bool,
    /// Turn on this one; may be given again [default: all that can be].
    #[arg(long = "feature", value_name = "NAME", conflicts_with = "list")]
    pub features: Vec<String>,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// `dure resize`.
#[derive(Debug, clap::Args)]
pub struct Resize {
    /// A block device or image file, or where it is mounted. The server of a mounted one does it:
    /// files stay open.
    pub volume: PathBuf,
    /// The new size of an image file, as in 2G; a block device is used as it is.
    pub size: Option<Size>,
}

/// `dure trim`.
#[derive(Debug, clap::Args)]
pub struct Trim {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
}

/// `dure info`.
#[derive(Debug, clap::Args)]
pub struct Info {
    /// A block device or image file, or where it is mounted. A mounted one is asked by its server.
    pub volume: PathBuf,
    /// The journals: headers, rings, tails, the transactions in the logs, and what recovery would
    /// do. Of a mounted volume what `dure top --once` shows.
    #[arg(long)]
    pub journal: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// `dure top`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = TOP_HELP)]
pub struct Top {
    /// A mounted volume (block device or image file), or the directory it is mounted on.
    pub volume: PathBuf,
    /// Seconds between two looks, 0.01 to 3600 [default: 1; with --trace 0.1].
    #[arg(long, short = 'd', value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<f64>,
    /// End after so many looks.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show the averages since the mount (with --trace: the events that trace=EVENTS has kept), and
    /// end.
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    pub once: bool,
    /// Print a JSON object a line for each look, or for each event.
    #[arg(long)]
    pub json: bool,
    /// Show the transactions in each state too: more than 100 columns.
    #[arg(long, conflicts_with_all = ["json", "trace"])]
    pub wide: bool,
    /// Turn the trace on and print what happens in the journals, event by event.
    #[arg(long)]
    pub trace: bool,
}

const TOP_HELP: &str = "\
Head: commits and flushes per second (fewer of the device than asked: callers share them), bytes that go to \
the logs, marks (what a handle depends on) before and after duplicates go, stalls by reason with their mean \
duration, and what each kind of operation logs.

A line for each journal in use. OPEN: handles that run. RING%: how full the log is. run, writing, written, \
durable, valid: how long transactions that left these states had stayed in them, on average. With --wide also \
RUN: handles of the running transaction; WRT, FLU, DUR, VALID: transactions being written, waiting for a flush, \
for the rest of what they depend on, for a checkpoint.

JSON has the totals since the mount; histograms count zeros first, then what is at least 2^(n-1) and below 2^n ns.

The process that serves the mount answers its own user and root, also while the device hangs.";

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is between 0.01 and 3600 seconds".into()),
    }
}
