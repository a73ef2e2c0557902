//! Every command and option; a file for each kind of command.

mod check;
mod files;
mod inspect;
mod mkfs;
mod mount;
mod quota;
mod run;
mod scrub;
mod sim;
mod snapshot;
mod stream;
mod volume;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

pub use check::{Check, Rescue, Undo};
pub use files::{Copy, Ls, Mkdir, Paths, Rm};
pub use inspect::{Demo, Dump, Structure};
pub use mkfs::{Mkfs, NodeLog, NvmFile};
pub use mount::{Mount, Umount};
pub use quota::{Quota, QuotaList, QuotaProject, QuotaSet, QuotaVolume};
pub use run::Run;
pub use scrub::{Scrub, ScrubPause, ScrubStart, ScrubStatus};
pub use sim::{
    Mechanism, Media, Sim, SimCalibrate, SimConflicts, SimCrash, SimExperiments, SimExplain,
    SimScale, SimValidate, Suite,
};
pub use snapshot::{
    Snapshot, SnapshotCreate, SnapshotDelete, SnapshotDiff, SnapshotList, SnapshotMount,
    SnapshotRename, SnapshotRestore,
};
pub use stream::{Receive, Send};
pub use volume::{Info, Resize, Top, Trim, Upgrade};

/// A many-core file system in user space that loses nothing in a crash.
#[derive(Debug, Parser)]
#[command(name = "dure", version, max_term_width = 100, propagate_version = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume on a block device or in an image file.
    Mkfs(Mkfs),
    /// Mount a volume on a directory.
    Mount(Mount),
    /// Unmount a directory.
    Umount(Umount),
    /// Run a program with a volume mounted, whose calls on files of the volume do not leave it.
    #[command(after_long_help = run::HELP)]
    Run(Run),
    /// Check a volume that is not mounted, and repair what is safe to repair.
    Check(Check),
    /// Take back a repair that had an undo file.
    #[command(after_long_help = check::UNDO_HELP)]
    Undo(Undo),
    /// Copy what can be read of a damaged volume to a directory of the host, and say what is lost.
    #[command(after_long_help = check::RESCUE_HELP)]
    Rescue(Rescue),
    /// Let a volume use more room, mounted or not.
    #[command(after_long_help = volume::RESIZE_HELP)]
    Resize(Resize),
    /// Turn on features of a volume that is not mounted.
    #[command(after_long_help = volume::UPGRADE_HELP)]
    Upgrade(Upgrade),
    /// Take, list, delete and rename snapshots of a volume, mounted or not.
    #[command(subcommand, after_long_help = snapshot::HELP)]
    Snapshot(Snapshot),
    /// Limit what users, groups and projects have on a volume, mounted or not.
    #[command(subcommand, after_long_help = quota::HELP)]
    Quota(Quota),
    /// Write a snapshot as a stream of bytes: everything, or what differs from an older one.
    #[command(after_long_help = stream::SEND_HELP)]
    Send(Send),
    /// Make a volume like a snapshot that was sent, and take that snapshot of it.
    #[command(after_long_help = stream::RECEIVE_HELP)]
    Receive(Receive),
    /// Read everything that a mounted volume holds, in idle time, and compare it with its checksums.
    #[command(subcommand, after_long_help = scrub::HELP)]
    Scrub(Scrub),
    /// Tell the device or the host's file system which blocks of a volume hold nothing.
    Trim(Trim),
    /// Show what a volume is and holds.
    Info(Info),
    /// Show what the journals of a mounted volume are doing, again and again.
    Top(Top),
    /// List a directory of a volume that is not mounted.
    Ls(Ls),
    /// Print files of a volume that is not mounted.
    Cat(Paths),
    /// Copy files and trees of the host into a volume.
    Put(Copy),
    /// Copy files and trees of a volume to the host.
    Get(Copy),
    /// Copy files and trees within a volume that is not mounted, sharing their blocks.
    Clone(Copy),
    /// Remove files, or trees with --recursive, from a volume.
    Rm(Rm),
    /// Make directories in a volume.
    Mkdir(Mkdir),
    /// Print a structure of the volume as it lies on the medium.
    Dump(Dump),
    /// Make a volume, use it, crash it, recover it, and show that nothing is lost.
    Demo(Demo),
    /// Measure a volume side by side with directories of other file systems.
    Bench(dure_bench::Args),
    /// Look into the requests of block devices.
    #[command(subcommand)]
    Blk(dure_bench::blk::Command),
    /// Prove on simulated devices that no crash loses what was promised.
    #[command(subcommand)]
    Sim(Sim),
}

impl Command {
    /// The volume that the command is about, if it names one.
    #[must_use]
    pub fn volume(&self) -> Option<&Path> {
        let volume = match self {
            Command::Mkfs(args) => &args.volume,
            Command::Mount(args) => &args.volume,
            Command::Check(args) => &args.volume,
            Command::Undo(args) => &args.volume,
            Command::Rescue(args) => &args.volume,
            Command::Resize(args) => &args.volume,
            Command::Upgrade(args) => &args.volume,
            Command::Snapshot(args) => args.volume(),
            Command::Quota(args) => args.volume(),
            Command::Send(args) => &args.volume,
            Command::Receive(args) => return args.volume.as_deref(),
            Command::Scrub(args) => args.volume(),
            Command::Trim(args) => &args.volume,
            Command::Info(args) => &args.volume,
            Command::Top(args) => &args.volume,
            Command::Ls(args) => &args.volume,
            Command::Cat(args) => &args.volume,
            Command::Put(args) | Command::Get(args) | Command::Clone(args) => &args.volume,
            Command::Rm(args) => &args.volume,
            Command::Mkdir(args) => &args.volume,
            Command::Dump(args) => &args.volume,
            Command::Umount(_)
            | Command::Run(_)
            | Command::Demo(_)
            | Command::Bench(_)
            | Command::Blk(_)
            | Command::Sim(_) => return None,
        };
        Some(volume)
    }
}

/// The persistent memory of a volume.
#[derive(Debug, Default, clap::Args)]
pub struct Regions {
    /// Where the volume's regions of persistent memory are, once for each, in the order of mkfs
    /// [default: where they were then].
    #[arg(long = "nvm", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
