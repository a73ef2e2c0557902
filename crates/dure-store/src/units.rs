//! The numbers of the file system, one newtype each, so that an inode number cannot be passed for a
//! block number, and the conversions between them. dure runs on 64-bit machines only, which makes
//! `u64` and `usize` interchangeable; the two functions below are the only place that says so.

use std::fmt;

use dure_sync::CoreId;

pub use dure_journal::{GranuleId, JournalId, Mark, Nid};

/// Bytes of a block, a page and a node image.
pub const BLOCK_BYTES: usize = dure_block::BLOCK_BYTES;
/// Bytes of a block, a page and a node image, as a `u64`.
pub const BLOCK_BYTES_U64: u64 = 4096;
const _: () = assert!(BLOCK_BYTES == 4096);
const _: () = assert!(usize::BITS == 64, "dure needs a 64-bit machine");

/// A `u64` as an index.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits, asserted above"
)]
#[must_use]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// An index as a `u64`.
#[must_use]
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// Whether all bytes are zero; a chunk at a time, which the compiler makes wide compares of.
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(64);
    let any = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte);
    chunks.by_ref().all(|chunk| any(chunk) == 0) && any(chunks.remainder()) == 0
}

/// The journal counted `index` from 0.
pub fn journal_id(index: u32) -> JournalId {
    let id = u16::try_from(index).ok().and_then(JournalId::new);
    id.expect("a volume has at most 1000 journals")
}

/// An inode number: `nid * 8 + place in the node`. 1 is the root directory, 0 is never used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
    /// Inodes in one node.
    pub const PER_NODE: u64 = 8;

    /// The numbers of a node, ascending.
    pub fn all_of(nid: Nid) -> impl DoubleEndedIterator<Item = Ino> {
        let first = nid.0 * Ino::PER_NODE;
        (first..first + Ino::PER_NODE).map(Ino)
    }

    /// The inode at place `index` of node `nid`.
    #[must_use]
    pub fn new(nid: Nid, index: u8) -> Ino {
        assert!(
            u64::from(index) < Ino::PER_NODE,
            "an inode node has 8 inodes, not {index}"
        );
        Ino(nid.0 * Ino::PER_NODE + u64::from(index))
    }

    /// The node that holds it.
    #[must_use]
    pub fn nid(self) -> Nid {
        Nid(self.0 / Ino::PER_NODE)
    }

    /// Its place within the node, which is the granule of its attributes.
    #[must_use]
    pub fn index(self) -> u8 {
        u8::try_from(self.0 % Ino::PER_NODE).expect("a place in a node is below 8")
    }

    /// The granule of its data within the node.
    #[must_use]
    pub fn data_index(self) -> u8 {
        u8::try_from(Ino::PER_NODE + self.0 % Ino::PER_NODE)
            .expect("a granule of a node is below 16")
    }

    /// The granule of its attributes.
    #[must_use]
    pub fn granule(self) -> GranuleId {
        GranuleId {
            nid: self.nid(),
            index: self.index(),
        }
    }

    /// The granule of its data.
    #[must_use]
    pub fn data_granule(self) -> GranuleId {
        GranuleId {
            nid: self.nid(),
            index: self.data_index(),
        }
    }

    /// The inode whose data granule `index` of inode node `nid` holds; `None` if it holds
    /// attributes.
    #[must_use]
    pub fn of_data(nid: Nid, index: u8) -> Option<Ino> {
        let place = u64::from(index).checked_sub(Ino::PER_NODE)?;
        (place < Ino::PER_NODE).then_some(Ino(nid.0 * Ino::PER_NODE + place))
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ino {}", self.0)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A block of the volume's linear space. 0 holds the superblock, so as an address it means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// No block: a hole, or a node without an image.
    pub const NONE: BlockNo = BlockNo(0);

    /// Whether this is an address at all.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A segment of the main area, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegNo(pub u32);

/// A 4 KiB page of a file, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u64);

/// `count` blocks in a row from `first`. Never empty where it is passed about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first block.
    pub first: BlockNo,
    /// How many blocks.
    pub count: u32,
}

/// The slots some blocks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRef {
    /// An inode node or a leaf.
    pub nid: Nid,
    /// Granule within it.
    pub granule: u8,
    /// Slot within the granule.
    pub slot: u8,
}

/// The `n`-th core or list, counted around.
pub fn nth_core(n: usize, count: usize) -> CoreId {
    CoreId::new(u16::try_from(n % count).expect("cores are counted by 16 bits"))
}
