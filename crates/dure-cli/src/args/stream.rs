//! `dure send` and `dure receive`.

use std::path::PathBuf;

pub(super) const SEND_HELP: &str = "\
The stream says in files what a volume needs to become like the snapshot: it fits volumes of any size, options and \
media. Everything that belongs to files is in it: names, hard links, holes, owners, modes, times of reading and \
writing, extended attributes, access control lists, devices. With --from it has what differs from an older snapshot, \
found without reading what is the same. Each record has a checksum.

A page that is damaged ends the stream, which then says so; `dure scrub` and `dure check --data` tell all of them.";

pub(super) const RECEIVE_HELP: &str = "\
A stream of everything needs a volume without files, as `dure mkfs` makes it. An increment needs the snapshot that it \
is relative to, and the files as they are in that: look into a volume that receives with `dure mount -o ro`. At the \
end the volume has the snapshot, with the name that it had when it was sent, or --snapshot. Several streams may come \
one after the other (`cat whole monday tuesday | dure receive v.img`).

A stream that was cut, or whose receiver was killed or full, is received again from its start: what was durable is \
skipped. Until then the volume has a part of the changes, and its snapshots as before.

Owners, set-id bits and devices are set as the stream says.";

/// `dure send`.
#[derive(Debug, clap::Args)]
pub struct Send {
    /// A block device or image file, or where it is mounted. The server of a mounted one does it.
    pub volume: PathBuf,
    /// The snapshot.
    pub name: String,
    /// Send what differs from this older snapshot.
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
}

/// `dure receive`.
#[derive(Debug, clap::Args)]
pub struct Receive {
    /// A block device or image file that is not mounted.
    #[arg(required_unless_present = "check")]
    pub volume: Option<PathBuf>,
    /// Name of the snapshot here [default: as it was sent].
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub snapshot: Option<String>,
    /// Only read the stream: whether it is whole and every checksum matches.
    #[arg(long, conflicts_with = "volume")]
    pub check: bool,
}
