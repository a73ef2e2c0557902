//! Files whose pages are in memory: the page cache.
//!
//! **Problem.** A device is slow and takes whole blocks: overwrites and reads of pages that were
//! used before must not reach it, and a write must not wait for it.
//!
//! **Structure.** [`page`] holds pages per inode and counts their memory; `read`, `write` and
//! [`write_shared`] copy out of them and into them; [`pending_pages`] has new pages of contended
//! files; [`writeback`] turns dirty pages into operations; [`cache`] ties pages to the volume.
//!
//! # Invariants
//! Only what is here knows of pages in memory; the map and what else a file has on the device is
//! above. A page in memory that is neither dirty nor in write-back equals what its slot says.
//!
//! **On a crash** pages are gone: what was not written back was never promised.

pub(in crate::file) mod cache;
pub(in crate::file) mod page;
pub(in crate::file) mod pending_pages;
pub(in crate::file) mod read;
pub(in crate::file) mod write;
pub(in crate::file) mod write_shared;
pub(in crate::file) mod writeback;
