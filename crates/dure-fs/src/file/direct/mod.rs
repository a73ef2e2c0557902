//! Files whose content is used where it lies: in persistent memory, without a page cache.
//!
//! **Problem.** Persistent memory is read as fast as a cache of it, and a write is durable after a
//! copy and a fence: pages in memory would be a second copy, and write-back a second write.
//!
//! **Structure.** `read` copies bytes out of the blocks that slots name. `write` copies pages to
//! free blocks and names them in one operation: a call changes the map at once, so nothing is
//! dirty, nothing is written back, and size and times are those of the inode's data. Fsync commits,
//! unless operations are durable by themselves (`durability=strict`). What a file is apart from its
//! pages (map, cut, holes, seeks) is as in [`cached`](super::cached), whose store of pages stays
//! empty here.
//!
//! # Invariants
//! A block that a slot names is never written, but for a preallocated one that says "unwritten".
//! Readers hold the inode shared while they copy, and in a contended file the range of their pages:
//! no operation takes these blocks from the map meanwhile, so none is used again under them. Data is
//! fenced before the operation that names it joins the journal.
//!
//! **On a crash** each operation is there wholly, with its data, or not at all.

mod read;
mod truncate;
mod write;
