//! What a scrub is told, and what it tells.

use std::fmt;
use std::str::FromStr;

use dure_store::units::{BlockNo, Ino};

/// What a scrub goes through, in this order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrubStage {
    /// Superblocks, headers, packs.
    #[default]
    Headers,
    /// Pairs of the node address table.
    Nat,
    /// Pairs of the segment information table.
    Sit,
    /// Segments: their summaries, nodes and pages.
    Main,
}

impl ScrubStage {
    const WORDS: [(ScrubStage, &str); 4] = [
        (ScrubStage::Headers, "headers"),
        (ScrubStage::Nat, "nat"),
        (ScrubStage::Sit, "sit"),
        (ScrubStage::Main, "main"),
    ];
}

/// Where a scrub is. As text: `main:17`. It stays valid while the volume changes, and grows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrubCursor {
    /// What it goes through.
    pub stage: ScrubStage,
    /// Number of the pair or segment that is next.
    pub index: u64,
}

impl fmt::Display for ScrubCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ScrubStage::WORDS;
        let word = words.iter().find(|(stage, _)| *stage == self.stage);
        write!(f, "{}:{}", word.map_or("", |(_, word)| word), self.index)
    }
}

impl FromStr for ScrubCursor {
    type Err = ();

    /// Of text that [`ScrubCursor`] was written as.
    fn from_str(text: &str) -> Result<ScrubCursor, ()> {
        let (word, index) = text.split_once(':').ok_or(())?;
        let stage = ScrubStage::WORDS.iter().find(|(_, name)| *name == word);
        Ok(ScrubCursor {
            stage: stage.ok_or(())?.0,
            index: index.parse().map_err(drop)?,
        })
    }
}

/// How to scrub.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Where to begin.
    pub from: ScrubCursor,
    /// Bytes a second, at most and whatever others do; `None`: as fast as the device is while others
    /// ask nothing of it, and little while they do.
    pub rate: Option<u64>,
}

/// What is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPart {
    /// A page of a file.
    Page {
        /// The file, or the inode whose large extended attribute it is.
        ino: Ino,
        /// Bytes from the beginning of the file; `None` if it is not found there any more.
        offset: Option<u64>,
    },
    /// A node: of one inode, or eight inodes, or nothing that has a name.
    Node {
        /// Which of them concern files.
        inodes: Vec<Ino>,
    },
    /// A structure of the volume.
    Structure,
}

/// A block whose content is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadBlock {
    /// The block of the volume.
    pub block: BlockNo,
    /// What it holds.
    pub part: BadPart,
    /// What is wrong with it.
    pub why: String,
    /// Paths from the root of what is concerned, without a slash in front; none where nothing has a
    /// name.
    pub paths: Vec<Vec<u8>>,
    /// The snapshot that it is of, if nothing else needs the block.
    pub snapshot: Option<String>,
    /// Its content was written elsewhere, from memory or from a snapshot.
    pub mended: bool,
}

impl BadBlock {
    /// The inodes it concerns.
    #[must_use]
    pub fn inodes(&self) -> &[Ino] {
        match &self.part {
            BadPart::Page { ino, .. } => std::slice::from_ref(ino),
            BadPart::Node { inodes } => inodes,
            BadPart::Structure => &[],
        }
    }
}

/// What a scrub has done since it was begun or went on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubCounts {
    /// Blocks that were to be read when it began, those before its cursor aside.
    pub blocks_total: u64,
    /// Blocks of those that it is through with.
    pub blocks_done: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Pages, nodes and structures whose checksum was compared.
    pub compared: u64,
    /// Blocks that were freed or replaced while it came to them.
    pub replaced: u64,
    /// Blocks whose owner could not be found: a summary or a node is damaged.
    pub unknown: u64,
    /// Blocks that are damaged, mended ones too.
    pub bad: u64,
    /// Damaged blocks whose content was written elsewhere.
    pub mended: u64,
}

/// How far a scrub is.
#[derive(Debug)]
#[non_exhaustive]
pub struct ScrubProgress<'p> {
    /// Where it goes on; `None` if it is at the end.
    pub cursor: Option<ScrubCursor>,
    /// What was done.
    pub counts: ScrubCounts,
    /// What it has found since the last call.
    pub found: &'p [BadBlock],
}
