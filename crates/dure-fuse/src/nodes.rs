//! What the kernel calls a node, and which inodes it keeps although they have no name.
//!
//! **Problem.** The kernel knows as many nodes as its memory holds, millions, and says of each when
//! it has forgotten it; memory for each of them, even for a count, has no bound. **Structure.** A
//! node id is an inode number and the life of that number ([`node_of`]): it is enough to find the
//! inode, and names no other one. Nothing is kept of a node that has a name. Of one that loses its
//! last name while the kernel knows it, because it is open or somebody's working directory,
//! [`Unlinked`] has a pin, until a FORGET comes and the kernel, asked, does not know it any more.
//!
//! # Why it asks
//! A FORGET says how many of its lookups the kernel gives back, and only a count of all lookups
//! would tell whether these are the last:
//!
//! | kernel | server |
//! |---|---|
//! | 1. drops its inode for lack of memory, queues FORGET | |
//! | 2. looks the name up again, a program opens it | |
//! | 3. unlinks the name | pins the inode |
//! | | 4. reads the FORGET of step 1 |
//!
//! To let go of the inode in step 4 would delete an open file. The kernel has the inode or has not
//! (FUSE_NOTIFY_INVAL_INODE says ENOENT then), and without a name it cannot look it up again:
//! lookups hold the directory, shared, until the kernel has the inode, and who removes a name has
//! the directory exclusively.
//!
//! # Room
//! A FORGET has no reply, so close(2) of an unlinked file returns before its blocks are free, and
//! the kernel may ask for room at once. Whoever says how much room there is, or that there is none,
//! first asks the kernel for each inode in the table, and waits until the volume has no other
//! inodes in memory without a name: any pin may be the last one, write-back's too.
//!
//! **Invariants.** An inode in the table is pinned, and its number is not used again. Every object
//! of the kernel's ends with a FORGET, so the one that follows the last use is seen. **On a crash**
//! the volume's orphan slots name these inodes.

use std::collections::BTreeMap;

use dure_fs::InodeRef;
use dure_fs::units::Ino;
use dure_sync::{CachePadded, Mutex};

/// Rank of the tables; nothing is taken under them.
const TABLE: u8 = 10;

/// Tables, by node.
const TABLES: u64 = 64;

/// Bits of a node id for the inode number: more than 2^32 NAT pairs of 252 nodes of 8 inodes need.
const INO_BITS: u32 = 44;
/// The lives that a node id tells from each other.
const LIVES: u64 = 1 << (u64::BITS - INO_BITS);
const _: () = assert!((u32::MAX as u64 + 1) * 252 * 8 <= 1 << INO_BITS);

/// The node id of a life of an inode number: of the first life the number itself, so that the root
/// is 1.
#[must_use]
pub fn node_of(ino: Ino, generation: u32) -> u64 {
    assert!(ino.0 < 1 << INO_BITS, "a volume has fewer inodes");
    let life = u64::from(generation.wrapping_sub(1)) % LIVES;
    ino.0 | life << INO_BITS
}

/// The inode number of a node id.
#[must_use]
pub fn ino_of(node: u64) -> Ino {
    Ino(node & ((1 << INO_BITS) - 1))
}

/// Inodes that the kernel knows and no name leads to.
#[derive(Debug)]
pub struct Unlinked {
    tables: Vec<CachePadded<Table>>,
}

/// Those of some nodes, by node.
type Table = Mutex<TABLE, BTreeMap<u64, InodeRef>>;

impl Default for Unlinked {
    fn default() -> Unlinked {
        Unlinked {
            tables: (0..TABLES).map(|_| CachePadded::default()).collect(),
        }
    }
}

impl Unlinked {
    fn table(&self, node: u64) -> &Table {
        let spread = node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.tables[usize::try_from(spread % TABLES).expect("below 64")]
    }

    /// Keeps the inode until the kernel has forgotten it.
    pub fn keep(&self, inode: InodeRef) {
        let node = node_of(inode.ino(), inode.generation());
        let before = self.table(node).lock().insert(node, inode);
        // Not under the table's lock, though never the last pin here.
        drop(before);
    }

    /// Whether the inode is kept.
    #[must_use]
    pub fn keeps(&self, node: u64) -> bool {
        self.table(node).lock().contains_key(&node)
    }

    /// All inodes that are kept.
    #[must_use]
    pub fn nodes(&self) -> Vec<u64> {
        let of = |table: &CachePadded<Table>| {
            let kept = table.lock();
            kept.keys().copied().collect::<Vec<_>>()
        };
        self.tables.iter().flat_map(of).collect()
    }

    /// How many inodes without a name are kept.
    #[must_use]
    pub fn nameless(&self) -> u64 {
        let of = |table: &CachePadded<Table>| {
            let kept = table.lock();
            kept.values().filter(|inode| inode.is_unlinked()).count() as u64
        };
        self.tables.iter().map(of).sum()
    }

    /// The kernel has forgotten it.
    pub fn let_go(&self, node: u64) {
        let unpinned = self.table(node).lock().remove(&node);
        // The last pin deletes the inode: not under the table's lock.
        drop(unpinned);
    }

    /// The kernel is gone, and need not have sent its FORGETs.
    pub fn clear(&self) {
        for table in &self.tables {
            let all = std::mem::take(&mut *table.lock());
            drop(all);
        }
    }
}
