//! Numbers for statfs.

use dure_store::format::slot::{INDEX_CHILDREN, LEAF_SLOTS};
use dure_store::units::Ino;

use super::FileSystem;

/// Space of a mounted volume, in 4 KiB blocks. Sums over few counters: the time does not depend on
/// the volume's size.
///
/// Used blocks (`blocks - blocks_free`) hold something or are reserved for pages in memory. Blocks
/// about to be freed count as free, because an allocation that would fail frees them first: blocks
/// freed by operations that are not durable yet, and log segments above the minimum. Used blocks,
/// available blocks and the reserve (about a hundredth of the volume for deletions and rewrites,
/// what is promised by [`FileSystem::promise_room`], and the map of what is available) add up to
/// `blocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks that can hold file data and nodes, free or not; without the minimum that logs need.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// The free blocks that [`FileSystem::promise_room`] keeps.
    pub blocks_promised: u64,
    /// Blocks that a new file can have: what its inode and its map need is subtracted.
    pub blocks_available: u64,
    /// Inodes in use, plus the most that the remaining space allows.
    pub inodes: u64,
    /// Those of them that are not in use.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// What takes the room of a volume, in 4 KiB blocks, as `VolumeInfo` says it of one that is not mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomTaken {
    /// Blocks with live data or nodes.
    pub used: u64,
    /// Blocks in log rings.
    pub in_logs: u64,
    /// Blocks that only snapshots need.
    pub of_snapshots: u64,
    /// Blocks that clones spare: as many more there would be, if each file had its own.
    pub spared: u64,
}

/// Nodes that creating a file takes: the inode's, those of its directory, the upper part of its
/// map.
const FILE_NODES: u64 = 12;

/// How many blocks of one file fit into `blocks` blocks together with its map.
fn file_blocks_in(blocks: u64) -> u64 {
    let blocks = blocks.saturating_sub(FILE_NODES);
    // One leaf for its slots, one index for its children, the last of each not full.
    let leaves = blocks.div_ceil(LEAF_SLOTS);
    blocks.saturating_sub(leaves + leaves.div_ceil(INDEX_CHILDREN))
}

impl FileSystem {
    /// The limit that the mount sets for its memory (`cache=`), in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.0.options.cache_bound()
    }

    /// Inodes in memory without a name: those that are open, and those being deleted, whose blocks
    /// [`FileSystem::statistics`] counts as used until that is done. A sum over per-core counters:
    /// concurrent changes may count or not.
    #[must_use]
    pub fn nameless_inodes(&self) -> u64 {
        self.0.inodes.cache.nameless()
    }

    /// What takes the room. Looks at all segments with blocks that files share.
    #[must_use]
    pub fn room_taken(&self) -> RoomTaken {
        let store = &self.0.store;
        let space = store.space.statistics();
        let in_logs = u64::from(space.segments_log) * u64::from(store.layout.segment_blocks);
        let others = space.free + space.pinned_only + in_logs;
        RoomTaken {
            used: space.total.saturating_sub(others),
            in_logs,
            of_snapshots: space.pinned_only,
            spared: store.space.spared_blocks(),
        }
    }

    /// The volume's used and free space.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let volume = &self.0;
        let space = volume.store.space.statistics();
        let spare = volume.store.spare_log_blocks();
        let logs = u64::from(space.segments_log) * u64::from(volume.store.layout.segment_blocks);
        let coming = space.freeing + spare;
        let anybody = space.available + coming.saturating_sub(space.aside_lacks);
        // An inode takes at least an eighth of a node; the number of node ids limits all of them
        // together.
        let most = volume.store.layout.nids() * Ino::PER_NODE;
        let used = u64::try_from(volume.inodes.counters.used.sum()).unwrap_or(0);
        let used = used.min(most);
        let inodes_free = (anybody * Ino::PER_NODE).min(most - used);
        Statistics {
            blocks: space.total - (logs - spare),
            blocks_free: space.available + space.kept + space.promised + coming,
            blocks_promised: space.promised,
            blocks_available: file_blocks_in(anybody),
            inodes: used + inodes_free,
            inodes_free,
            name_max: 255,
        }
    }
}
