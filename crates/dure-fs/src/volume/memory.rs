//! How the bytes of `cache=` are divided, and what makes room when a share is used up.
//!
//! **Problem.** The server of a mount must stay as small as its user said, with any number of files
//! and any pace of writes; and no core may write a count that others read for each operation.
//! **Structure.** [`Shares`] divides the bytes once, at mount. What can be dropped is dropped where
//! something new comes (CLOCK, in each cache). What cannot be dropped, because the medium does not
//! have it yet, is counted per core ([`dure_store::Backlog`]); a caller that finds too much of it before its
//! operation begins, with no lock held, makes room itself:
//!
//! | share | of `cache=` | what cannot be dropped | who makes room, and how |
//! |---|---|---|---|
//! | nodes | 1/4, with the copies that a checkpoint makes | dirty nodes | an operation: a checkpoint |
//! | inodes, known names and attributes | 1/8 | inodes with pages or access times | who gets memory for pages, or leaves an inode: write-back |
//! | records of the log | 1/16 | records that are not written | an operation: a commit |
//! | owners of blocks | 1/32 | those set since the last checkpoint | write-back: a checkpoint |
//! | pages | the rest | dirty pages | who wants pages: write-back |
//!
//! **Invariants.** Only what is in use (open inodes without a name, nodes of running operations) is
//! beyond the shares, and the least that each cache needs for its shards. **On a crash** nothing of
//! this remains.

use dure_store::StoreShares;
use dure_store::logged::LoggedBlocks;
use dure_store::node::NODE_BYTES;
use dure_store::units::{BLOCK_BYTES_U64, to_u64, to_usize};

use super::{DataMode, MountOptions};
use crate::file::PAGE_BYTES;
use crate::inode::INODE_BYTES;

/// Of the cache's bytes, these parts, each one in so many.
const NODES: u64 = 4;
const INODES: u64 = 8;
const RECORDS: u64 = 16;
const OWNERS: u64 = 32;
/// Of the bytes for inodes, the part for known names is one in this many; the same for shown
/// attributes.
const TABLES: u64 = 16;
/// Of the bytes for known names, as many again are for known targets as one part in this many.
const TARGETS: u64 = 8;
/// At most so many bytes for each of these tables.
const TABLE_BYTES_MAX: u64 = 16 << 20;
/// A checkpoint copies dirty nodes, half of all at most: bytes of a copy for each node.
const COPY_BYTES: u64 = (4096 + 128) / 2;
/// A journal's records stand in memory three times at most: while they wait, while they are being
/// written, and in the write.
const RECORD_COPIES: u64 = 3;
/// Records of one journal that wait, at least and at most: fewer make too many commits, more save
/// none.
const RECORD_BYTES: (u64, u64) = (64 << 10, 8 << 20);
/// What the checkpoint keeps, and makes of it, for each block that got an owner: an entry, and its
/// part of a summary.
const OWNER_BYTES: u64 = 16 + 8;
/// With `data=journal` as many pages may be in the log and not in their place, or half the cache if
/// it is small.
const JOURNALED_PAGES: u64 = 256;

/// What each cache may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) nodes: usize,
    pub(crate) inodes: usize,
    /// Bytes of the known names, and of the shown attributes.
    pub(crate) table_bytes: u64,
    pub(crate) target_bytes: u64,
    pub(crate) pages: u64,
    pub(crate) logged_pages: u64,
    /// Bytes of one journal's records that wait.
    pub(crate) record_bytes: u64,
    /// Blocks whose owners wait.
    pub(crate) owners: usize,
}

impl Shares {
    /// Of the options' `cache=`, for so many journals.
    pub(crate) fn of(options: &MountOptions, journals: u32) -> Shares {
        let all = options.cache_bound();
        let table_bytes = (all / INODES / TABLES).min(TABLE_BYTES_MAX);
        let target_bytes = table_bytes / TARGETS;
        let inode_bytes = all / INODES - 2 * table_bytes - target_bytes;
        let page_bytes = all - all / NODES - all / INODES - all / RECORDS - all / OWNERS;
        let pages = page_bytes / PAGE_BYTES;
        let journaled = options.data == DataMode::Journal;
        let small = if journaled { JOURNALED_PAGES } else { 0 };
        let logged_pages = LoggedBlocks::share_of(all / 8 * 5).max(small.min(pages / 2));
        let record_bytes = all / RECORDS / RECORD_COPIES / u64::from(journals);
        // These pages are records too.
        let least = small * BLOCK_BYTES_U64;
        Shares {
            nodes: to_usize(all / NODES / (to_u64(NODE_BYTES) + COPY_BYTES)),
            inodes: to_usize(inode_bytes / to_u64(INODE_BYTES)),
            table_bytes,
            target_bytes,
            pages: pages.saturating_sub(logged_pages).max(1),
            logged_pages,
            record_bytes: record_bytes.clamp(least.max(RECORD_BYTES.0), RECORD_BYTES.1),
            owners: to_usize(all / OWNERS / OWNER_BYTES),
        }
    }

    /// The store's part of them.
    pub(crate) fn of_store(&self) -> StoreShares {
        StoreShares {
            nodes: self.nodes,
            logged_pages: self.logged_pages,
            record_bytes: self.record_bytes,
            owners: self.owners,
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
                let sum = to_u64(shares.nodes) * (to_u64(NODE_BYTES) + COPY_BYTES)
                    + to_u64(shares.inodes * INODE_BYTES)
                    + 2 * shares.table_bytes
                    + shares.target_bytes
                    + (shares.pages + shares.logged_pages) * PAGE_BYTES
                    + shares.record_bytes * RECORD_COPIES * u64::from(journals)
                    + to_u64(shares.owners) * OWNER_BYTES;
                // The least for the records of 64 journals is more than a small cache has.
                let least = RECORD_BYTES.0 * RECORD_COPIES * u64::from(journals);
                assert!(sum <= (mib << 20) + least, "{shares:?}");
                assert!(sum > (mib << 20) / 2, "{shares:?}");
            }
        }
    }
}
