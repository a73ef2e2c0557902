//! `dure dump` and `dure demo`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::Regions;
use crate::size::Size;

/// `dure dump`.
#[derive(Debug, clap::Args)]
pub struct Dump {
    /// A block device or image file.
    pub volume: PathBuf,
    /// What to print.
    #[arg(value_enum)]
    pub what: Structure,
    /// Which one: a node id, inode, segment, block or journal number.
    pub number: Option<u64>,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// What `dure dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Structure {
    /// Both copies of the superblock.
    Superblock,
    /// The volume header.
    Volume,
    /// All journal headers.
    Journals,
    /// The transactions in a journal's log, or in all.
    Log,
    /// The NAT entry of a node id.
    Nat,
    /// A node, by node id.
    Node,
    /// An inode.
    Inode,
    /// A directory's buckets, by its inode.
    Directory,
    /// A file's block map, by its inode.
    Map,
    /// A segment's SIT entry and summary.
    Segment,
    /// A block, raw.
    Block,
}

/// `dure demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Leave the volume behind and say where it is.
    #[arg(long)]
    pub keep: bool,
    /// Size of the volume.
    #[arg(long, default_value = "1G")]
    pub size: Size,
    /// Go through the library even where FUSE could be used.
    #[arg(long)]
    pub no_mount: bool,
    /// The writer that gets killed (internal).
    #[arg(long, hide = true)]
    pub child: Option<PathBuf>,
}
