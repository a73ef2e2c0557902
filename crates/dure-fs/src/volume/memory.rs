//! How the bytes of `cache=` are divided, and what makes room when a share is used up.
//!
//! **Problem.** The server of a mount must stay within the memory its user allowed, with any number
//! of files and any rate of writes; and no core may write a count that others read in each
//! operation.
//!
//! **Structure.** [`Shares`] divides the bytes once, at mount. What can be evicted is evicted when
//! something new is inserted (CLOCK, in each cache). What cannot, because the medium does not have
//! it yet, is counted per core ([`dure_store::Backlog`]); a caller that finds too much of it before
//! its operation begins, with no lock held, makes room itself:
//!
//! | share | of `cache=` | cannot be evicted | which task makes room, and how |
//! |---|---|---|---|
//! | nodes, and the images that a task of a checkpoint writes | 1/4 | dirty nodes | operations: checkpoint |
//! | inodes, dentries, attributes | 1/8 | with pages or atimes | page users, unpins: write-back |
//! | records of the log | 1/16 | records that are not written | operations: commit |
//! | owners of blocks | 1/32 | set since the last checkpoint | write-back: checkpoint |
//! | words of range locks | 1/64 | words of files in memory | a file: its idle words again, or none |
//! | pages | the rest | dirty pages | page users: write-back |
//!
//! **Invariants.** Only what is in use (open inodes without a name, nodes of running operations)
//! exceeds the shares, and the minimum that each cache needs for its shards. **On a crash** nothing
//! of this remains.

use dure_store::StoreShares;
use dure_store::data_log::DataLog;
use dure_store::node::NODE_BYTES;
use dure_store::units::{BLOCK_BYTES_U64, to_u64, to_usize};

use super::{Background, DataMode, DirtyLimit, MountOptions};
use crate::file::PAGE_BYTES;
use crate::inode::{INODE_BYTES, InodeShares};

/// Each of these shares is the cache's bytes divided by its constant.
const NODES: u64 = 4;
const INODES: u64 = 8;
const RECORDS: u64 = 16;
const OWNERS: u64 = 32;
const RANGE_WORDS: u64 = 64;
/// Minimum bytes of the words of range locks: some files' worth.
const RANGE_BYTES_MIN: u64 = 64 << 10;
/// The dentry cache gets the bytes for inodes divided by this, and so does the attribute cache.
const TABLES: u64 = 16;
/// The symlink cache gets the bytes of the dentry cache divided by this.
const TARGETS: u64 = 8;
/// Maximum bytes of the dentry cache, and of the attribute cache.
const TABLE_BYTES_MAX: u64 = 16 << 20;
/// Maximum bytes of the copies and the write that a task of a checkpoint has in hand, or a quarter
/// of the share of nodes if that is less.
const IMAGE_BYTES_MAX: u64 = 2 << 20;
/// A journal's records are in memory at most three times: while they wait, while they are being
/// written, and in the write.
const RECORD_COPIES: u64 = 3;
/// Minimum and maximum bytes of one journal's waiting records: less would cause too many commits,
/// more would save none.
const RECORD_BYTES: (u64, u64) = (64 << 10, 8 << 20);
/// What a checkpoint keeps and makes for each block that got an owner: an entry, and its part of a
/// summary.
const OWNER_BYTES: u64 = 16 + 8;
/// With `data=journal` at least so many pages may be in the data log without a place of their own,
/// or half the page cache if that is less.
const JOURNALED_PAGES: u64 = 256;

/// What each cache may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) nodes: usize,
    pub(crate) inodes: usize,
    /// Bytes of the dentry cache, and as many of the attribute cache.
    pub(crate) table_bytes: u64,
    pub(crate) target_bytes: u64,
    pub(crate) pages: u64,
    pub(crate) logged_pages: u64,
    /// Pages that may be dirty, if that slows down writers.
    pub(crate) dirty_pages: Option<u64>,
    /// Bytes of one journal's records that wait.
    pub(crate) record_bytes: u64,
    /// Blocks whose owners wait.
    pub(crate) owners: usize,
    /// Bytes of the words of range locks.
    pub(crate) range_bytes: u64,
}

impl Shares {
    /// What the inodes of a volume with `cores` parts get.
    pub(crate) fn of_inodes(&self, cores: usize) -> InodeShares {
        InodeShares {
            cores,
            inodes: self.inodes,
            table_bytes: self.table_bytes,
            range_bytes: self.range_bytes,
        }
    }

    /// The shares of the options' `cache=`, for `journals` journals.
    pub(crate) fn of(options: &MountOptions, journals: u32) -> Shares {
        let all = options.cache_bound();
        let table_bytes = (all / INODES / TABLES).min(TABLE_BYTES_MAX);
        let target_bytes = table_bytes / TARGETS;
        let inode_bytes = all / INODES - 2 * table_bytes - target_bytes;
        let range_bytes = all / RANGE_WORDS;
        let waiting = all / RECORDS + all / OWNERS;
        let page_bytes = all - all / NODES - all / INODES - waiting - range_bytes;
        let pages = page_bytes / PAGE_BYTES;
        let journaled = options.data == DataMode::Journal;
        let small = if journaled { JOURNALED_PAGES } else { 0 };
        let logged_pages = DataLog::share_of(all / 8 * 5).max(small.min(pages / 2));
        let record_bytes = all / RECORDS / RECORD_COPIES / u64::from(journals);
        // Pages in the data log are records too.
        let least = small * BLOCK_BYTES_U64;
        let node_bytes = all / NODES - IMAGE_BYTES_MAX.min(all / NODES / 4);
        Shares {
            nodes: to_usize(node_bytes / to_u64(NODE_BYTES)),
            inodes: to_usize(inode_bytes / to_u64(INODE_BYTES)),
            table_bytes,
            target_bytes,
            pages: pages.saturating_sub(logged_pages).max(1),
            logged_pages,
            dirty_pages: dirty_pages(options, pages.saturating_sub(logged_pages)),
            record_bytes: record_bytes.clamp(least.max(RECORD_BYTES.0), RECORD_BYTES.1),
            owners: to_usize(all / OWNERS / OWNER_BYTES),
            range_bytes: range_bytes.max(RANGE_BYTES_MIN),
        }
    }

    /// The store's shares.
    pub(crate) fn of_store(&self) -> StoreShares {
        StoreShares {
            nodes: self.nodes,
            logged_pages: self.logged_pages,
            record_bytes: self.record_bytes,
            owners: self.owners,
        }
    }
}

/// Pages that may be dirty, of `pages`.
fn dirty_pages(options: &MountOptions, pages: u64) -> Option<u64> {
    match (options.background, options.dirty_limit) {
        // Nothing would write back while a writer sleeps.
        (Background::None, _) | (_, DirtyLimit::None) => None,
        (Background::Workers, DirtyLimit::Half) => Some(pages / 2),
        (Background::Workers, DirtyLimit::Bytes(bytes)) => {
            Some((pages / 2).min(bytes / BLOCK_BYTES_U64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_fit_into_the_cache() {
        for mib in [16, 64, 1024, 65536] {
            for journals in [1, 2, 64] {
                let options = MountOptions {
                    cache_bytes: mib << 20,
                    ..MountOptions::default()
                };
                let shares = Shares::of(&options, journals);
                let sum = to_u64(shares.nodes * NODE_BYTES)
                    + IMAGE_BYTES_MAX.min((mib << 20) / NODES / 4)
                    + to_u64(shares.inodes * INODE_BYTES)
                    + 2 * shares.table_bytes
                    + shares.target_bytes
                    + (shares.pages + shares.logged_pages) * PAGE_BYTES
                    + shares.record_bytes * RECORD_COPIES * u64::from(journals)
                    + to_u64(shares.owners) * OWNER_BYTES
                    + shares.range_bytes;
                // The least for the records of 64 journals is more than a small cache has.
                let least = RECORD_BYTES.0 * RECORD_COPIES * u64::from(journals);
                assert!(sum <= (mib << 20) + least, "{shares:?}");
                assert!(sum > (mib << 20) / 2, "{shares:?}");
            }
        }
    }
}
