//! Lock ranks of dure-fs: a thread takes locks in ascending rank only. `docs/design/locking.md` has
//! the whole table; dure-sync checks it in debug builds and in simulation.

/// Pages of a file that a task is reading, for others that miss them; held over I/O.
pub const MISS: u8 = 39;
/// Directories that change their parent: one such rename at a time.
pub const RENAME: u8 = 40;
/// The limits of users, groups and projects while they are stored; held over I/O.
pub const QUOTA_TABLE: u8 = 41;
/// A range of a file that tasks share; held over I/O.
pub const RANGE: u8 = 45;
/// A part of a file that the device is reading ahead; held over I/O by a task that needs it.
pub const READ_AHEAD: u8 = 47;
/// Write-back, truncate and allocation of one inode; held over I/O.
pub const WRITEBACK: u8 = 50;
/// The overwrites of a contended file without a page cache: overwrites hold it shared, a holder of
/// [`WRITEBACK`] exclusively. Held over I/O.
pub const OVERWRITES: u8 = 51;
/// One inode's state; several in ascending inode number.
pub const INODE: u8 = 60;
/// The times of a contended file without a page cache, for an overwrite that stores them.
pub const OVERWRITE_TIMES: u8 = 61;
/// The attributes of an inode, held by a task that changes them; several in ascending inode number,
/// held over reads of nodes.
pub const ATTRIBUTES: u8 = 62;
/// What the tasks that share a file have added to it; held over reads of nodes.
pub const GROWTH: u8 = 64;
/// A core's list of inodes with dirty pages.
pub const DIRTY_LIST: u8 = 70;
/// A core's list of inodes with pages.
pub const CACHED_LIST: u8 = 71;
/// A partition's list of orphan slots; held while the node that extends it is linked.
pub const ORPHANS: u8 = 74;
/// A partition's free inode numbers.
pub const INODE_POOL: u8 = 76;
/// One shard of the inode cache.
pub const INODE_SHARD: u8 = 80;
/// What is measured of a partition's write-back; a leaf.
pub const DIRTY_METER: u8 = 139;
/// A part of the pages that tasks are reading; a leaf.
pub const MISS_LIST: u8 = 134;
/// Inodes that a core has listed; a leaf.
pub const LAST_LISTED: u8 = 136;
/// A shard of the parts of files that are read ahead; a leaf.
pub const READ_AHEAD_LIST: u8 = 137;
/// Rounds of fsync of one file; a leaf.
pub const SYNC_ROUNDS: u8 = 138;
/// State of a background worker; nothing else is taken under it.
pub const WORKER: u8 = 149;
/// A core's buffer for write-back; a leaf.
pub const SCRATCH: u8 = 140;
/// Which users, groups and projects have something.
pub const QUOTA_ACCOUNTS: u8 = 141;
/// Names that are moved while a directory becomes a project; a leaf.
pub const PROJECT_MOVES: u8 = 143;
/// The limits of one of them; a leaf.
pub const QUOTA_LIMITS: u8 = 142;
