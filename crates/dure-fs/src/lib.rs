//! The dure file system: files, directories and names on a `dure_store::Store`.
mod background;
mod calls;
mod changes;
mod cleaner;
mod directory;
mod file;
mod inode;
mod namespace;
mod quota;
pub mod ranks;
mod scrub;
mod volume;
mod xattr;

pub use background::WorkerActivity;
pub use changes::{Change, Named, NamesByInode};
#[doc(hidden)]
pub use dure_journal::Rules;
pub use dure_journal::{
    LogStatistics, Order, Stall, TRACE_EVENTS_MAX, Trace, TraceBatch, TraceEvent, TraceRecord,
};
pub use dure_store::OpKind;
#[doc(hidden)]
pub use dure_store::StoreRules;
pub use dure_store::alloc::{ActiveLogs, AllocPolicy, Numa, NumaPolicy};
pub use dure_store::format::name::FileKind;
pub use dure_store::format::quota::{Bounds, Limits, QuotaKind, Subject, Usage};
pub use dure_store::layout::{FormatOptions, Layout, NodeLog, NvmRegion, Owner, TableCopies};
pub use dure_store::media::SubmitLockWaits;
pub use dure_store::node::NodeLock;
pub use dure_store::snapshot::SnapshotInfo;
pub use dure_store::{
    Durability, FlushRule, JournalInfo, JournalsInfo, LoggedCounts, RecordPolicy, Recover,
    RecoveryPlan, RecoveryStatistics, VolumeInfo, VolumeState,
};
pub use dure_store::{Error, Result};
pub use dure_store::{error, format, layout, members, units};
pub use file::{
    Advice, AllocateMode, Begun, Deduped, Extents, FILE_BYTES_MAX, ReadMode, SeekTarget, Stamp,
    SyncScope, UnderWay,
};
pub use inode::{Attributes, InodeId, InodeRef, NewInode, Permissions};
pub use namespace::{DirectoryEntry, EntryBatch, New, Peek, RenameMode, SetAttributes, SetTime};
pub use quota::Quota;
pub use scrub::{
    BadBlock, BadPart, ScrubCounts, ScrubCursor, ScrubOptions, ScrubProgress, ScrubStage,
};
pub use volume::{
    Absorbed, AccessTime, Activity, Background, CrashGuarantee, DataMode, DirtyLimit, FileSystem,
    FsyncScope, MountOptions, NvramAbsorb, NvramLow, NvramOptions, PageCaching, Preset, RangeWait,
    RoomTaken, Said, Statistics,
};
#[doc(hidden)]
pub use volume::{AttributeRule, DirectoryRule, RangeRule, VolumeRules};
pub use xattr::{SetGid, XattrMode};
