//! The kernel's lookup counts, per core.
//!
//! Each core counts the lookups it answered in its own table; a FORGET may arrive on another core
//! and then takes from the others. A node is unpinned when a core's count of it reaches zero.

use std::collections::BTreeMap;

use dure_fs::InodeRef;
use dure_sync::{CoreId, Mutex, PerCore};

/// Rank of the tables; nothing is taken under them.
const TABLE: u8 = 10;

#[derive(Debug)]
struct Known {
    /// Keeps the inode alive; dropped outside of the table's lock.
    pin: InodeRef,
    lookups: u64,
}

/// Which inodes the kernel knows, and how often it was told of each.
#[derive(Debug)]
pub struct NodeTable {
    tables: PerCore<Mutex<TABLE, BTreeMap<u64, Known>>>,
}

impl NodeTable {
    /// An empty table for `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> NodeTable {
        NodeTable {
            tables: PerCore::new(cores, |_: CoreId| Mutex::new(BTreeMap::new())),
        }
    }

    /// The kernel is told of `inode` once more.
    pub fn remember(&self, inode: &InodeRef) {
        let mut table = self.tables.local().lock();
        let known = table.entry(inode.ino().0);
        known
            .or_insert_with(|| Known {
                pin: inode.clone(),
                lookups: 0,
            })
            .lookups += 1;
    }

    /// The kernel forgets `count` of the lookups of inode `ino`. More than it was told of are
    /// ignored.
    pub fn forget(&self, ino: u64, count: u64) {
        let mut left = count;
        let local = std::iter::once(self.tables.local());
        for table in local.chain(self.tables.iter()) {
            if left == 0 {
                return;
            }
            let mut table = table.lock();
            let Some(known) = table.get_mut(&ino) else {
                continue;
            };
            let taken = known.lookups.min(left);
            known.lookups -= taken;
            left -= taken;
            let unpinned = if known.lookups == 0 {
                table.remove(&ino)
            } else {
                None
            };
            drop(table);
            // The last pin of an unlinked inode deletes it: not under the table's lock.
            drop(unpinned.map(|known| known.pin));
        }
    }

    /// Lookups the kernel holds of inode `ino`.
    #[must_use]
    pub fn lookups(&self, ino: u64) -> u64 {
        let count = |table: &Mutex<TABLE, BTreeMap<u64, Known>>| {
            table.lock().get(&ino).map_or(0, |known| known.lookups)
        };
        self.tables.iter().map(count).sum()
    }

    /// Unpins everything: the kernel is gone and need not have sent its FORGETs.
    pub fn clear(&self) {
        for table in self.tables.iter() {
            let all = std::mem::take(&mut *table.lock());
            drop(all);
        }
    }
}
