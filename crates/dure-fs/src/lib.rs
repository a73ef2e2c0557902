//! The dure file system.
mod alloc;
pub mod check;
mod checkpoint;
mod cleaner;
mod directory;
pub mod dump;
pub mod error;
mod file;
pub mod format;
mod frames;
mod inode;
pub mod layout;
mod logged;
mod namespace;
mod node;
mod op;
mod packs;
mod pair;
pub mod ranks;
mod recovery;
mod space;
mod sparse;
mod store;
pub mod units;
mod volume;
mod xattr;

pub use alloc::{ActiveLogs, AllocPolicy};
#[doc(hidden)]
pub use dure_journal::Rules;
pub use dure_journal::{
    LogStatistics, Order, Stall, TRACE_EVENTS_MAX, Trace, TraceBatch, TraceEvent, TraceRecord,
};
pub use error::{Error, Result};
pub use file::{AllocateMode, Extents, FILE_BYTES_MAX, ReadMode, SeekTarget, Stamp, SyncScope};
pub use format::name::FileKind;
pub use inode::{Attributes, InodeRef, NewInode, Permissions, SetAttributes, SetTime};
pub use layout::{FormatOptions, Layout, Owner};
pub use namespace::{DirectoryEntry, EntryBatch, InodeId, Peek, RenameMode};
pub use node::NodeLock;
pub use op::OpKind;
#[doc(hidden)]
pub use store::StoreRules;
pub use store::{
    JournalInfo, JournalsInfo, LoggedCounts, RecordPolicy, Recover, RecoveryPlan,
    RecoveryStatistics, VolumeInfo,
};
pub use volume::{
    AccessTime, Activity, Background, DataMode, FileSystem, FlushRule, FsyncScope, MountOptions,
    Statistics,
};
#[doc(hidden)]
pub use volume::{AttributeRule, DirectoryRule, RangeRule, VolumeRules};
pub use xattr::{SetGid, XattrMode};
