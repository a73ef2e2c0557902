//! `dure quota`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::size::Size;

pub(super) const HELP: &str = "\
A quota limits what a user, a group or a project has on a volume: bytes of its files, in blocks of 4 KiB that are \
allocated, and inodes. A project is a directory with all below it. A call that would exceed the hard limit fails with EDQUOT and changes nothing. The soft limit may be exceeded \
for the grace time. A file counts for its owner and project, whoever writes it; blocks that snapshots keep count for nobody.

`enable` counts what all have; until then quotas cost nothing.";

const PROJECT_HELP: &str = "\
All below the directory counts for the project, also what was there and what had another; what is made there later \
inherits it. Prints how many inodes got it. If the command is interrupted, do it again. A name cannot be moved or linked from one project into another, \
or into or out of one: mv(1) copies instead. df(1) of a directory shows the limit of its project.";

const LIST_HELP: &str = "\
All users, groups and projects that have something or have a limit. \"left\" is what is left of the grace time of a soft limit \
that is exceeded.";

/// `dure quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Count what users, groups and projects have from now on.
    Enable(QuotaVolume),
    /// Stop counting, and forget all limits.
    Disable(QuotaVolume),
    /// Set limits of a user, a group or a project.
    Set(QuotaSet),
    /// Let a directory and all below it count for a project, or show for which it does.
    #[command(after_long_help = PROJECT_HELP)]
    Project(QuotaProject),
    /// Show what users, groups and projects have, and may have.
    #[command(after_long_help = LIST_HELP)]
    List(QuotaList),
}

impl Quota {
    /// The volume.
    pub(super) fn volume(&self) -> &PathBuf {
        match self {
            Quota::Enable(args) | Quota::Disable(args) => &args.volume,
            Quota::Set(args) => &args.volume,
            Quota::Project(args) => &args.volume,
            Quota::List(args) => &args.volume,
        }
    }
}

/// `dure quota enable` and `disable`.
#[derive(Debug, clap::Args)]
pub struct QuotaVolume {
    /// A block device or image file, or where it is mounted. The server of a mounted one does it: it
    /// writes everything back, and mounts the volume again; files stay open.
    pub volume: PathBuf,
}

/// `dure quota set`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "dure quota set <--user <UID>|--group <GID>|--project <ID>> [OPTIONS] <VOLUME>"
)]
#[command(group(clap::ArgGroup::new("whom").required(true).args(["user", "group", "project"])))]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args([
    "soft", "hard", "soft_inodes", "hard_inodes", "grace",
])))]
pub struct QuotaSet {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// Of this user: a number, but 0.
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
    pub user: Option<u32>,
    /// Of this group: a number.
    #[arg(long, value_name = "GID")]
    pub group: Option<u32>,
    /// Of this project: a number, but 0.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub project: Option<u32>,
    /// Bytes that may be exceeded for the grace time, as in 10G; 0: no limit.
    #[arg(long, value_name = "BYTES")]
    pub soft: Option<Size>,
    /// Bytes that are never exceeded, as in 12G; 0: no limit.
    #[arg(long, value_name = "BYTES")]
    pub hard: Option<Size>,
    /// Inodes that may be exceeded for the grace time; 0: no limit.
    #[arg(long, value_name = "COUNT")]
    pub soft_inodes: Option<u64>,
    /// Inodes that are never exceeded; 0: no limit.
    #[arg(long, value_name = "COUNT")]
    pub hard_inodes: Option<u64>,
    /// Hours that a soft limit may be exceeded, up to 10000 [default: 168 with the first limit].
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub grace: Option<u32>,
}

/// `dure quota project`.
#[derive(Debug, clap::Args)]
pub struct QuotaProject {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// A directory in the volume, as in /home/a; / is its root, also of one that is mounted. Without ID
    /// a file will do.
    pub directory: String,
    /// The project: a number; 0: none any more. Without, the present one is printed.
    pub id: Option<u32>,
}

/// `dure quota list`.
#[derive(Debug, clap::Args)]
pub struct QuotaList {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// Print one JSON array: kind (user, group or project), id, bytes, inodes; soft, hard, soft_inodes and
    /// hard_inodes (0: none); grace (seconds); since and inodes_since (seconds since 1970 when the soft
    /// limit was exceeded; 0: it is not).
    #[arg(long)]
    pub json: bool,
}
