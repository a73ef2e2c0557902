//! The store below the dure file system: what is on the media, and how it changes atomically.
//!
//! **Problem.** Files, directories and names are changed by many cores at once; whatever fails, and
//! after a crash, a change must be there wholly or not at all.
//!
//! **Structure.** [`mod@format`] has every byte of the media, [`layout`] where they are, [`media`]
//! the way to them; [`node`], [`space`] and [`data_log`] are what a mount keeps of them in memory;
//! [`placement`] brings pages to blocks and back; an [`op::Op`] changes nodes atomically through the
//! journal, a [`checkpoint`] lets the log go on, [`recovery`] rebuilds what the log has. [`Store`]
//! owns all of it. The crate knows blocks, nodes and slots; it knows no inode in memory, no path
//! and no page cache, and asks the file system above it through [`Above`] only.
//!
//! # Invariants
//! After a failed durable write nothing is written any more.
//!
//! **On a crash** see [`recovery`].
//!
//! This is a crate of the file system's own: its interface may change with every version. Programs
//! use `dure`.

pub mod alloc;
mod backlog;
pub mod census;
pub mod checkpoint;
pub mod data_log;
mod diff;
pub mod error;
pub mod format;
pub mod frames;
mod headers;
pub mod layout;
pub mod media;
pub mod members;
pub mod node;
mod offer;
pub mod op;
mod options;
pub mod packs;
pub mod pair;
mod partition;
pub mod placement;
pub mod ranks;
pub mod recovery;
mod rules;
mod settle;
pub mod snapshot;
pub mod space;
mod sparse;
mod store;
pub mod units;

pub use backlog::Backlog;
pub use error::{Error, Result};
pub use headers::{check_numbers, impossible_count, log_layout, read_header, read_layout};
pub use media::VolumeMedia;
pub use options::{
    Absorb, Durability, FlushRule, RecordPolicy, Recover, StoreOptions, StoreShares,
};
#[doc(hidden)]
pub use partition::serve;
pub use rules::StoreRules;
pub use settle::Settler;
pub use store::{
    Above, Damage, IMAGES_MIN, JournalInfo, JournalsInfo, LoggedCounts, Mount, OpKind, Past, Place,
    RING_SEGMENTS, RecoveryPlan, RecoveryStatistics, Scrubbed, Store, StoreCounters, VolumeInfo,
    VolumeState, grow_volume, grown, make_volume, turn_on,
};
