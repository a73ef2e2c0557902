//! Any structure of a volume as text, for a person looking for a bug: `dure dump`.
//!
//! **Structure.** [`dump`] finds superblock and tables and prints one structure, or a tree of them;
//! a file here per group of structures. The text is stable: one fact per line, `name: value`,
//! indented below what it belongs to. **Invariants.** Only reads, never through the mounted caches.
//! What cannot be read or is not valid becomes a line that says so, and the dump goes on; walks
//! follow no node twice. **Crash.** Nodes are printed as of the last checkpoint; what the logs of a
//! volume that was not unmounted would change is in [`What::Log`].

mod block;
mod log;
mod node;
mod source;
mod tables;
mod tree;

use std::fmt;

use dure_block::Device;
use dure_store::error::{Error, Result};
use dure_store::units::{BlockNo, Ino, JournalId, Nid, SegNo};
use dure_sync::Arc;

use source::Source;

/// What is to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Both copies of the superblock, and the layout.
    Superblock,
    /// The volume header, both slots, and the checkpoint pack.
    VolumeHeader,
    /// All journal headers.
    Journals,
    /// The complete transactions of one journal, or of all, with their records.
    Log(Option<JournalId>),
    /// The NAT entry of a node.
    Nat(Nid),
    /// A node image with every granule.
    Node(Nid),
    /// An inode.
    Inode(Ino),
    /// A directory's buckets with their entries.
    Directory(Ino),
    /// A file's slots.
    Map(Ino),
    /// A segment: its SIT entry and the owners of its blocks.
    Segment(SegNo),
    /// A block: what it is, its owner, and its bytes.
    Block(BlockNo),
}

/// Where the text goes.
pub(super) struct Out<'w> {
    writer: &'w mut dyn fmt::Write,
}

impl Out<'_> {
    /// Writes a line.
    pub(super) fn line(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
        let written = self
            .writer
            .write_fmt(text)
            .and_then(|()| self.writer.write_char('\n'));
        written.map_err(|_| Error::Invalid("the writer of a dump takes no text"))
    }
}

/// Writes a line of a dump.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { $out.line(format_args!($($text)*)) };
}
use line;

/// Prints `what` of the volume on `device`, which should not be mounted.
///
/// # Errors
/// `NotDure`, `Unsupported` or `Corrupt` when there is no superblock; `BadOption` for a number that
/// the volume does not have; a failed read; `Invalid` when the writer fails.
pub fn dump(device: Arc<dyn Device>, what: What, writer: &mut dyn fmt::Write) -> Result<()> {
    let source = Source::open(device)?;
    let out = &mut Out { writer };
    match what {
        What::Superblock => tables::superblocks(&source, out),
        What::VolumeHeader => tables::volume_header(&source, out),
        What::Journals => tables::journals(&source, out),
        What::Log(journal) => log::transactions(&source, out, journal),
        What::Nat(nid) => tables::nat(&source, out, nid),
        What::Node(nid) => node::image(&source, out, nid),
        What::Inode(ino) => node::inode(&source, out, ino),
        What::Directory(ino) => tree::directory(&source, out, ino),
        What::Map(ino) => tree::map(&source, out, ino),
        What::Segment(segment) => tables::segment(&source, out, segment),
        What::Block(block) => block::block(&source, out, block),
    }
}

#[cfg(test)]
mod tests;
