//! Lock ranks of dure-store: a thread takes locks in ascending rank only. `docs/design/locking.md`
//! has the whole table; dure-sync checks it in debug builds and in simulation.

/// Free blocks that are being trimmed; held over I/O.
pub const TRIM: u8 = 53;
/// The one checkpoint at a time; held over I/O. Begun wherever an `Op` may begin.
pub const CHECKPOINT: u8 = 55;
/// One bucket of a directory that tasks share; several in ascending (nid, index); held over reads
/// of nodes.
pub const BUCKET: u8 = 65;
/// One shard of the node cache.
pub const NODE_SHARD: u8 = 90;
/// One granule; several in ascending (nid, index).
pub const GRANULE: u8 = 100;
/// A core's list of dirty nodes; pushed to while granule locks are held.
pub const DIRTY_NODES: u8 = 105;
/// One NAT pair in memory.
pub const NAT_PAIR: u8 = 110;
/// The snapshots of a volume, and what is kept for them; nothing is read under it.
pub const SNAPSHOTS: u8 = 112;
/// Where the lists of shared blocks lie, and blocks reserved for them; nothing is read under it.
pub const SHARED: u8 = 114;
/// One allocation partition.
pub const PARTITION: u8 = 120;
/// A partition's free nids.
pub const NID_POOL: u8 = 125;
/// One segment's bitmaps and summary.
pub const SEGMENT: u8 = 130;
/// Blocks whose content is in a log only: some of them.
pub const LOGGED: u8 = 135;
/// A core's stack of unused page frames and its buffer for write-back; a leaf.
pub const FRAMES: u8 = 140;
/// Blocks that were read damaged and have a copy; a leaf.
pub const DAMAGED: u8 = 146;
/// Making of requests, if a policy asks for it; held over I/O, whatever else is held.
pub const SUBMITTING: u8 = 147;
/// Shares of the checkpoint that runs; nothing else is taken under it.
pub const CREW: u8 = 148;
