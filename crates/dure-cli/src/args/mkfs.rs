//! `dure mkfs`.

use std::path::PathBuf;

use clap::ValueEnum;
use dure_fs::{NumaPolicy, Owner};
use dure_sync::Topology;

use crate::size::Size;

/// `dure mkfs`.
#[derive(Debug, clap::Args)]
pub struct Mkfs {
    /// A block device, or the path of an image file.
    pub volume: PathBuf,
    /// Size of a new image file, as in 512M, 1G; an existing file or device has its own.
    #[arg(long)]
    pub size: Option<Size>,
    /// Journals and allocation partitions, 1 to 1000 [default: the larger of 16 and the cores,
    /// fewer on a small volume].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub journals: Option<u32>,
    /// A name for the volume, at most 64 bytes.
    #[arg(long, short = 'L', default_value = "")]
    pub label: String,
    /// Overwrite whatever is there.
    #[arg(long, short)]
    pub force: bool,
    /// Allocate the blocks of a new image file now.
    #[arg(long)]
    pub preallocate: bool,
    /// Owner of the root directory: numbers of a user and a group [default: the caller's].
    #[arg(long, value_name = "UID[:GID]", value_parser = owner)]
    pub owner: Option<Owner>,
    /// Copies of the node address table and the segment table on the media, 1 or 2: with 2 what is
    /// damaged in one is read, and written anew, from the other. Superblock, volume header, packs and
    /// journal headers always have two copies; nodes, owners of blocks, and pages of files have one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub metadata_copies: u8,
    /// A file on persistent memory for tables, logs and nodes, so that the volume has only data;
    /// once for each region. NODE is the NUMA node it is on, if the system does not tell.
    #[arg(long, value_name = "FILE[@NODE]", value_parser = region)]
    pub nvm: Vec<NvmFile>,
    /// Size of the --nvm files that are not there yet.
    #[arg(long, value_name = "SIZE", requires = "nvm")]
    pub nvm_size: Option<Size>,
    /// Refuse --nvm files, and with --node the VOLUME, that are not mapped directly (DAX).
    #[arg(long, requires = "nvm")]
    pub require_dax: bool,
    /// Where logs and nodes go: to persistent memory, or with the data.
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        requires = "nvm",
        default_value = "nvm"
    )]
    pub node_log: NodeLog,
    /// VOLUME is on persistent memory, too, of this NUMA node: all regions are one space, of which
    /// each core uses what is on its own node first.
    #[arg(long, value_name = "NODE", conflicts_with = "node_log")]
    pub node: Option<u32>,
    /// Place the logs as on a machine of so many NUMA nodes, with so many cores each [default: this
    /// machine].
    #[arg(long, value_name = "NODESxCORES")]
    pub topology: Option<Topology>,
    /// Where the logs of a core begin: on its own node, on each in turn, or on the first.
    #[arg(long, value_name = "POLICY", default_value = "local", value_parser = numa)]
    pub numa: NumaPolicy,
}

/// A file of `--nvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmFile {
    /// The file.
    pub path: PathBuf,
    /// Its NUMA node, if that was said.
    pub node: Option<u32>,
}

/// "FILE@NODE", or "FILE"; a file whose name ends with @ and digits needs its node behind it.
fn region(text: &str) -> Result<NvmFile, String> {
    let with_node = text.rsplit_once('@').and_then(|(path, node)| {
        let node = node.parse::<u32>().ok()?;
        (!path.is_empty()).then_some((path, Some(node)))
    });
    let (path, node) = with_node.unwrap_or((text, None));
    let path = PathBuf::from(path);
    Ok(NvmFile { path, node })
}

fn numa(text: &str) -> Result<NumaPolicy, String> {
    let found = NumaPolicy::ALL.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, policy)| *policy)
        .ok_or_else(|| "local, interleave or first".to_owned())
}

/// Where logs and nodes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeLog {
    /// To persistent memory.
    Nvm,
    /// To the block device: the baseline.
    Block,
}

fn owner(text: &str) -> Result<Owner, String> {
    let number = |text: &str| {
        let number = text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
        number.ok_or_else(|| format!("'{text}' is not the number of a user or group"))
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    Ok(Owner {
        uid: number(uid)?,
        gid: number(gid)?,
    })
}
