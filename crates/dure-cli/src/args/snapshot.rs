//! `dure snapshot`.

use std::path::PathBuf;

use clap::Subcommand;

pub(super) const HELP: &str = "\
A snapshot is the volume as it was, read-only. `dure snapshot mount` shows one of a mounted volume, `dure mount -o \
snapshot=NAME` one of a volume that is not mounted.

Everything that was acknowledged before `create` began is in the snapshot, and every operation wholly or not at \
all. It keeps the blocks that the volume had then, and takes room only for what changes afterwards. `delete` gives \
back what only that snapshot needed.";

const DIFF_HELP: &str = "\
A line for each path: \"+\" only later, \"-\" only before, \"M\" modified (content, attributes, or the entries of a \
directory), \"R OLD -> NEW\" renamed; of a renamed directory, what is below it is shown only if it changed, too. \
A file that another one replaced under its name is \"M\". Bytes that do not print are shown as \\xNN.";

const RESTORE_HELP: &str = "\
The volume must not be mounted. The files as they are now are kept as snapshot \"before-NAME\": restore that to have \
them back, delete it to have the room. Only what differs is written; files that are the same keep their inodes. After \
a crash or an error the files are a mixture; the same command goes on, and the volume is mounted with -o ro only \
until it is done.

If the snapshot was received, increments of it are taken again afterwards, also where a stream was half received; \
they then need the snapshot \"restored-NAME\".";

/// `dure snapshot`.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Take a snapshot.
    Create(SnapshotCreate),
    /// List the snapshots, the oldest first.
    List(SnapshotList),
    /// Show what differs between a snapshot and a later one, or the present.
    Diff(SnapshotDiff),
    /// Delete snapshots.
    Delete(SnapshotDelete),
    /// Give a snapshot another name.
    Rename(SnapshotRename),
    /// Make the files those of a snapshot again.
    #[command(after_long_help = RESTORE_HELP)]
    Restore(SnapshotRestore),
    /// Show a snapshot of a mounted volume in a directory, until that is unmounted.
    Mount(SnapshotMount),
}

impl Snapshot {
    /// The volume.
    pub(super) fn volume(&self) -> &PathBuf {
        match self {
            Snapshot::Create(args) => &args.volume,
            Snapshot::List(args) => &args.volume,
            Snapshot::Diff(args) => &args.volume,
            Snapshot::Delete(args) => &args.volume,
            Snapshot::Rename(args) => &args.volume,
            Snapshot::Restore(args) => &args.volume,
            Snapshot::Mount(args) => &args.volume,
        }
    }
}

/// `dure snapshot create`.
#[derive(Debug, clap::Args)]
pub struct SnapshotCreate {
    /// A block device or image file, or where it is mounted. The server of a mounted one does it.
    pub volume: PathBuf,
    /// Its name: 1 to 64 bytes without a slash.
    pub name: String,
}

/// `dure snapshot list`.
#[derive(Debug, clap::Args)]
pub struct SnapshotList {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// Print one JSON array: id, name, created (seconds since 1970), inodes, bytes.
    #[arg(long)]
    pub json: bool,
}

/// `dure snapshot diff`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DIFF_HELP)]
pub struct SnapshotDiff {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// The older snapshot.
    pub name: String,
    /// A later one; without it, the files as they are now.
    pub later: Option<String>,
    /// Print a JSON object in each line: change (added, removed, modified or renamed), path, and for
    /// a rename from.
    #[arg(long)]
    pub json: bool,
}

/// `dure snapshot delete`.
#[derive(Debug, clap::Args)]
pub struct SnapshotDelete {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// The snapshots.
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// `dure snapshot rename`.
#[derive(Debug, clap::Args)]
pub struct SnapshotRename {
    /// A block device or image file, or where it is mounted.
    pub volume: PathBuf,
    /// What it is called.
    pub name: String,
    /// What it is to be called.
    pub to: String,
}

/// `dure snapshot restore`.
#[derive(Debug, clap::Args)]
pub struct SnapshotRestore {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// The snapshot.
    pub name: String,
}

/// `dure snapshot mount`.
#[derive(Debug, clap::Args)]
pub struct SnapshotMount {
    /// A block device or image file that is mounted, or where it is mounted.
    pub volume: PathBuf,
    /// The snapshot.
    pub name: String,
    /// Where it is to be seen: an empty directory. `dure umount` ends it, and so does the end of the
    /// mount of the volume.
    pub directory: PathBuf,
}
