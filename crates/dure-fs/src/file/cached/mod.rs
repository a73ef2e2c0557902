//! Files whose pages are in memory: the page cache.
//!
//! **Problem.** A device is slow and takes whole blocks: overwrites and reads of pages that were
//! used before must not reach it, and a write must not wait for it.
//!
//! **Structure.** [`page`] holds pages per inode and counts their memory; `read`, `write` and
//! [`write_shared`] copy out of them and into them; `seek` and `truncate` look at them besides the
//! map; `waits` tells callers that must not wait; [`growth`] is what writers have added to contended
//! files; [`writeback`] turns dirty pages into
//! operations; [`dirty_count`] counts them, [`dirty_limit`] slows writers down; [`cache`] ties pages to the
//! volume. All calls from outside come through
//! [`Body::Cached`](super::body::Body::Cached); apart from that the state of a file has its
//! [`PageStore`], and what tasks share of it the [`Growth`].
//!
//! # Invariants
//! Only what is here knows of pages in memory; the map and what else a file has on the device is
//! above. A page in memory that is neither dirty nor in write-back equals what its slot says.
//!
//! **On a crash** pages are gone: what was not written back was never promised.

mod cache;
mod dirty_count;
mod dirty_limit;
mod growth;
mod page;
mod read;
mod seek;
mod transaction;
mod truncate;
mod waits;
mod write;
mod write_shared;
mod writeback;

pub(crate) use cache::{PAGE_BYTES, PageCache};
pub(crate) use growth::Growth;
pub(in crate::file) use page::PageStore;
pub(crate) use read::{Misses, ReadAhead, Readings};
pub(super) use writeback::{Extent, Way};
