//! What statfs shows.

use dure_store::format::slot::{INDEX_CHILDREN, LEAF_SLOTS};
use dure_store::units::Ino;

use super::FileSystem;

/// Room of a mounted volume, in 4 KiB blocks. Sums over few counters: the volume's size does not
/// matter.
///
/// Used (`blocks - blocks_free`) is what holds something or is promised to pages in memory. What is
/// on its way back counts as free, because an allocation that would fail brings it about first:
/// blocks freed by operations that are not durable yet, and log segments beyond the least. Used,
/// available and the reserve (about a hundredth of the volume for deletions and rewrites, and the
/// map of what is available) add up to `blocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks that can hold file data and nodes, free or not; the least that logs need is not
    /// counted.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// Blocks that a new file can have: what its inode and its map need is taken off.
    pub blocks_available: u64,
    /// Inodes in use, and those there can still be, at most, with the room that is left.
    pub inodes: u64,
    /// Of them not in use.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// Nodes that making a file takes: the inode's, those of its directory, the upper part of its map.
const FILE_NODES: u64 = 12;

/// Blocks of one file that find room in so many blocks together with its map.
fn file_blocks_in(blocks: u64) -> u64 {
    let blocks = blocks.saturating_sub(FILE_NODES);
    // One leaf for its slots, one index for its children, the last of each not full.
    let leaves = blocks.div_ceil(LEAF_SLOTS);
    blocks.saturating_sub(leaves + leaves.div_ceil(INDEX_CHILDREN))
}

impl FileSystem {
    /// What the mount bounds its memory by (`cache=`), in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.0.options.cache_bound()
    }

    /// Inodes in memory without a name: those that somebody has open, and those being deleted, whose
    /// blocks [`FileSystem::statistics`] counts as used until that is done. A sum over counters of
    /// the cores: what changes meanwhile counts or not.
    #[must_use]
    pub fn nameless_inodes(&self) -> u64 {
        self.0.inodes.nameless()
    }

    /// The volume's room.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let volume = &self.0;
        let space = volume.space.statistics();
        let spare = volume.spare_log_blocks();
        let logs = u64::from(space.segments_log) * u64::from(volume.layout.segment_blocks);
        let coming = space.freeing + spare;
        let anybody = space.available + coming.saturating_sub(space.kept_lacks);
        // An inode takes an eighth of a node at least; node ids bound all of them together.
        let most = volume.layout.nids() * Ino::PER_NODE;
        let used = u64::try_from(volume.counters.inodes.sum()).unwrap_or(0);
        let used = used.min(most);
        let inodes_free = (anybody * Ino::PER_NODE).min(most - used);
        Statistics {
            blocks: space.total - (logs - spare),
            blocks_free: space.available + space.kept + coming,
            blocks_available: file_blocks_in(anybody),
            inodes: used + inodes_free,
            inodes_free,
            name_max: 255,
        }
    }
}
