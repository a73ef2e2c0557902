//! Users of a block, a node or a pair, for messages.

use std::fmt;

use dure_store::units::{Ino, Nid};

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUse {
    /// The image of a node.
    Image(Nid),
    /// A page of a file.
    Page(Ino, u64),
    /// A log segment of a journal.
    Log(u32),
}

impl fmt::Display for BlockUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockUse::Image(nid) => write!(f, "the image of node {nid}"),
            BlockUse::Page(ino, page) => write!(f, "page {page} of file {ino}"),
            BlockUse::Log(journal) => write!(f, "the log of journal {journal}"),
        }
    }
}

/// What a node is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeUse {
    /// Inodes.
    Inodes,
    /// Buckets of a directory.
    Directory(Ino),
    /// Block map of a file.
    Map(Ino),
    /// Extended attributes of an inode.
    Xattr(Ino),
    /// Target of a symlink.
    Link(Ino),
    /// Orphan slots of a partition.
    Orphans(u32),
}

impl NodeUse {
    /// The inode the node belongs to; 0 for inode and orphan nodes.
    #[must_use]
    pub fn inode(&self) -> Ino {
        match self {
            NodeUse::Inodes | NodeUse::Orphans(_) => Ino(0),
            NodeUse::Directory(ino)
            | NodeUse::Map(ino)
            | NodeUse::Xattr(ino)
            | NodeUse::Link(ino) => *ino,
        }
    }
}

impl fmt::Display for NodeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeUse::Inodes => write!(f, "the inode table"),
            NodeUse::Directory(ino) => write!(f, "directory {ino}"),
            NodeUse::Map(ino) => write!(f, "the block map of file {ino}"),
            NodeUse::Xattr(ino) => write!(f, "the extended attributes of inode {ino}"),
            NodeUse::Link(ino) => write!(f, "the target of symlink {ino}"),
            NodeUse::Orphans(partition) => write!(f, "the orphan list of partition {partition}"),
        }
    }
}

/// Which kind of pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairKind {
    /// Volume header.
    VolumeHeader,
    /// Checkpoint pack.
    Pack,
    /// Journal header.
    JournalHeader,
    /// Node address table.
    Nat,
    /// Segment information table.
    Sit,
    /// Segment summary.
    Summary,
}

/// A pair, by kind and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairName {
    /// Kind.
    pub kind: PairKind,
    /// Number within the kind; of a summary: the segment.
    pub index: u64,
}

impl fmt::Display for PairName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index;
        match self.kind {
            PairKind::VolumeHeader => write!(f, "volume header"),
            PairKind::Pack => write!(f, "pack pair {index}"),
            PairKind::JournalHeader => write!(f, "header of journal {index}"),
            PairKind::Nat => write!(f, "NAT pair {index}"),
            PairKind::Sit => write!(f, "SIT pair {index}"),
            PairKind::Summary => write!(f, "summary pair of segment {index}"),
        }
    }
}
