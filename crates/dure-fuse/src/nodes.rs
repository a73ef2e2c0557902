//! FUSE node ids, and pins of inodes that have no name but that the kernel still references.
//!
//! **Problem.** The kernel caches as many inodes as its memory holds, millions, and sends FORGET
//! for each one it drops; memory for each of them, even a lookup count, would be unbounded.
//! **Structure.** A node id is an inode number and its generation ([`node_of`]): enough to find the
//! inode, and different from the ids of earlier inodes with that number. The server keeps nothing
//! for an inode with a name. When an inode loses its last name while the kernel references it (it
//! is open, or the working directory of a process), [`Unlinked`] pins it until a FORGET arrives and
//! the kernel, asked, no longer has it.
//!
//! # Why the server asks the kernel
//! A FORGET says how many lookups the kernel gives back, and only a count of all lookups would tell
//! whether these are the last:
//!
//! | kernel | server |
//! |---|---|
//! | 1. drops its inode for lack of memory, queues FORGET | |
//! | 2. looks the name up again, a program opens it | |
//! | 3. unlinks the name | pins the inode |
//! | | 4. reads the FORGET of step 1 |
//!
//! Dropping the pin in step 4 would delete an open file. So the server asks:
//! FUSE_NOTIFY_INVAL_INODE fails with ENOENT if the kernel does not have the inode. The kernel
//! cannot then look it up again: it has no name, and the kernel locks the directory: shared for a
//! lookup, until it has the inode, and exclusive for a removal.
//!
//! # Free space
//! A FORGET has no reply, so close(2) of an unlinked file returns before its blocks are free, and
//! the kernel may ask for space at once. Before the server reports how much space is free, or
//! ENOSPC, it asks the kernel about each inode in the table, and waits (for a bounded time) until
//! the volume has no other unnamed inodes in memory: any pin may be the last one, write-back's too.
//!
//! **Invariants.** An inode in the table is pinned, and its number is not reused. The kernel sends
//! a FORGET for every inode it drops, so the server sees one after the last use. **On a crash** the
//! volume's orphan slots name these inodes.

use std::collections::BTreeMap;

use dure_fs::InodeRef;
use dure_fs::units::Ino;
use dure_sync::{CachePadded, Mutex};

/// Rank of the tables; no lock is taken while one is held.
const TABLE: u8 = 17;

/// Tables, chosen by a hash of the node id.
const TABLES: u64 = 64;

/// Bits of a node id for the inode number: one more than 2^32 NAT pairs of 252 nodes of 8 inodes
/// need.
const INO_BITS: u32 = 44;
/// The bit of an inode number that no inode has: what is shown and not on the volume.
pub(crate) const HIDDEN: u64 = 1 << (INO_BITS - 1);
/// How many generations of an inode number node ids tell apart.
const LIVES: u64 = 1 << (u64::BITS - INO_BITS);
const _: () = assert!((u32::MAX as u64 + 1) * 252 * 8 <= HIDDEN);

/// The node id of an inode number and generation. For the first generation it is the inode number
/// itself, so that the root is 1.
#[must_use]
pub fn node_of(ino: Ino, generation: u32) -> u64 {
    assert!(
        ino.0 < 1 << INO_BITS,
        "the inode number leaves room for the generation"
    );
    let life = u64::from(generation.wrapping_sub(1)) % LIVES;
    ino.0 | life << INO_BITS
}

/// The inode number of a node id.
#[must_use]
pub fn ino_of(node: u64) -> Ino {
    Ino(node & ((1 << INO_BITS) - 1))
}

/// Whether a node is no inode of the volume.
#[must_use]
pub(crate) fn is_hidden(node: u64) -> bool {
    node & HIDDEN != 0
}

/// Inodes without a name that the kernel still references.
#[derive(Debug)]
pub struct Unlinked {
    tables: Vec<CachePadded<Table>>,
}

/// A part of the inodes, by node id.
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
        &self.tables[usize::try_from(spread % TABLES).expect("below the number of tables")]
    }

    /// Keeps the inode pinned until the kernel has forgotten it.
    pub fn keep(&self, inode: InodeRef) {
        let node = node_of(inode.ino(), inode.generation());
        let before = self.table(node).lock().insert(node, inode);
        // Dropped after the table's lock, although it is never the last pin here.
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

    /// Drops the pin: the kernel has forgotten the inode.
    pub fn let_go(&self, node: u64) {
        let unpinned = self.table(node).lock().remove(&node);
        // Dropping the last pin deletes the inode: not under the table's lock.
        drop(unpinned);
    }

    /// Drops all pins: the kernel has closed the connection, and may not have sent its FORGETs.
    pub fn clear(&self) {
        for table in &self.tables {
            let all = std::mem::take(&mut *table.lock());
            drop(all);
        }
    }
}
