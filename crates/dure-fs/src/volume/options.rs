//! Mount options. `words` reads them, `contradictions` refuses those that cannot be together.

mod contradictions;
mod preset;
mod words;

use std::time::Duration;

use dure_block::Wait;
use dure_journal::{Order, Rules};
use dure_store::alloc::{ActiveLogs, AllocPolicy, Numa};
use dure_store::media::{BlockMerge, QueueShape, SubmitLock};
use dure_store::node::NodeLock;
use dure_store::{Durability, FlushRule, RecordPolicy, Recover, StoreOptions};
use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;
use dure_sync::range_lock::Config as RangeLock;

pub use self::preset::{Preset, Said};
pub(crate) use self::words::{bytes_of, choose, number_of};
use super::VolumeRules;
use super::nvram::NvramOptions;

/// When a read changes the access time. The change is kept in memory until the next sync, commit
/// interval, unmount, or other write of the inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessTime {
    /// Never.
    Never,
    /// When it is not younger than the last change, or is at least a day old (as Linux does by
    /// default). A change of nothing but attributes or names may count only from the next time the
    /// file is changed or written back.
    #[default]
    Relative,
    /// At every read.
    Always,
}

/// Whether dure commits, writes back and checkpoints by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Background {
    /// By workers, threads that sleep while there is nothing to do.
    #[default]
    Workers,
    /// None: for simulation and tests that decide themselves.
    None,
}

/// Which file data goes through the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// Data is written to its blocks before the slots that name them join the log; an fsync of a
    /// few pages may put them into the log instead.
    #[default]
    Ordered,
    /// Like `Ordered`, but after a crash an operation is kept even if its data did not get to the
    /// medium: a page that was not synced may then read as zeroes, and nothing else is lost with
    /// it.
    Writeback,
    /// All pages that are written back go into the log, and to their blocks at a checkpoint.
    Journal,
}

/// Whether the volume must survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CrashGuarantee {
    /// It must: a mount without a log is refused.
    #[default]
    Needed,
    /// The caller has said outright that it need not.
    Waived,
}

/// What an fsync commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsyncScope {
    /// What the inode's operations depend on.
    #[default]
    Closure,
    /// Everything that has joined in every journal, as the released Z-Journal does.
    All,
}

/// What a task does that finds its range of a shared file taken, and whether readers take theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeWait {
    /// It tries for some microseconds, then takes the inode exclusively instead. Readers take no
    /// range: they check the sequence counts of pages.
    #[default]
    Try,
    /// It waits, as in hybridF2FS and pNOVA, here in order of arrival. Readers take their range
    /// shared, and every file that is used has a range lock.
    InTurn,
}

/// Whether the content of files is in memory, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCaching {
    /// In pages in DRAM: read from there, and written back later.
    Dram,
    /// In pages in DRAM, and what would be written back goes to persistent memory first. For
    /// volumes with persistent memory and a block device.
    Nvram,
    /// No: it is read and written where it lies. For volumes wholly in persistent memory.
    None,
}

/// How many bytes of dirty pages there may be before writers wait for write-back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirtyLimit {
    /// Half of the pages that memory has room for.
    #[default]
    Half,
    /// So many bytes, or half of the pages if that is less.
    Bytes(u64),
    /// As many as memory has room for: writers are not slowed down before, and then one that wants
    /// a page writes back itself.
    None,
}

/// Bytes in memory: the default, and the minimum.
const CACHE_BYTES: u64 = 256 << 20;
const CACHE_BYTES_MIN: u64 = 64 << 10;
/// Default for the pages of an fsync that go into the log.
const LOG_DATA_PAGES: u32 = 4;
/// Mount options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What [`MountOptions::set_policy`] was told, and the preset.
    pub said: Said,
    /// Nothing is written, not even by recovery (which then happens in memory).
    pub read_only: bool,
    /// The snapshot to mount, read-only; `None`: the volume as it is now.
    pub snapshot: Option<String>,
    /// What to do if the logs have lost something durable. `Tolerate` mounts read-only.
    pub recover: Recover,
    /// One journal per core, or one for all.
    pub order: Order,
    /// What a log record holds of a change.
    pub records: RecordPolicy,
    /// Whether `records` may be `None`, with which a crash may lose everything.
    pub crash_guarantee: CrashGuarantee,
    /// Which file data goes through the log.
    pub data: DataMode,
    /// Whether the content of files is in memory, too; `None`: it is.
    pub page_cache: Option<PageCaching>,
    /// Options of `PageCaching::Nvram`.
    pub nvram: NvramOptions,
    /// When what a call has done is durable; `None`: when it returns, if there is no page cache,
    /// else when fsync says so.
    pub durability: Option<Durability>,
    /// Age from which on changes are committed and written back in the background; 1 ms .. 1 h.
    pub commit_interval: Duration,
    /// Bytes for pages, nodes and inodes in memory; at least 64 KiB. A server of the whole machine
    /// needs more than the default of 256 MiB.
    pub cache_bytes: u64,
    /// Dirty pages from which on writers slow down. Without meaning if nothing works in the
    /// background.
    pub dirty_limit: DirtyLimit,
    /// Access times.
    pub access_time: AccessTime,
    /// Access times of directories, if they differ.
    pub directory_access_time: Option<AccessTime>,
    /// Flushes per fsync; `None`: one, and two with `PageCaching::Nvram`.
    pub flush: Option<FlushRule>,
    /// What an fsync commits.
    pub fsync: FsyncScope,
    /// Maximum number of pages of one fsync whose data goes into the log, to be placed by the next
    /// checkpoint; 0 = none.
    pub log_data_pages: u32,
    /// Where cores allocate.
    pub alloc: AllocPolicy,
    /// In which region of persistent memory they do, and on what machine.
    pub numa: Numa,
    /// Whether long-lived data is kept apart from short-lived data.
    pub active_logs: ActiveLogs,
    /// How tasks that share a file exclude each other from ranges.
    pub range_lock: RangeLock,
    /// What they do when a range is taken; without meaning where a file is locked as a whole.
    pub range_wait: RangeWait,
    /// How readers and writers of a node are synchronized.
    pub node_lock: NodeLock,
    /// Queues with tags of their own in front of the device, each for cores of one NUMA node as far
    /// as there are enough; 1 .. 1024, of which no more are made than there are cores.
    pub hw_queues: u32,
    /// Requests that each of them lets into the device at once; 1 .. 10240. Others wait in order of
    /// arrival.
    pub nr_requests: u32,
    /// Whether blocks that are written together and lie next to one another are one request.
    pub block_merge: BlockMerge,
    /// How callers wait for the device.
    pub wait: Wait,
    /// Which requests exclude each other while they are made.
    pub submit_lock: SubmitLock,
    /// Background work.
    pub background: Background,
    /// How many workers there are, at most one per core; `None`: one for each NUMA node and eight
    /// of its cores.
    pub workers: Option<usize>,
    /// Events of the journal's trace that are kept per core, from the start; `None`: the trace is
    /// off until it is turned on.
    pub trace: Option<usize>,
    /// Threads that scan logs and rebuild nodes at mount; `None`: one per core.
    pub recovery_threads: Option<usize>,
    /// Which rules of the journal hold: all of them, except in tests that show what breaking one
    /// would do.
    #[doc(hidden)]
    pub rules: Rules,
    /// Which rules of the file system hold.
    #[doc(hidden)]
    pub volume_rules: VolumeRules,
    /// The core that every operation runs on, whatever the scheduler says; `None`: the task's own.
    /// For tests: which journal an operation goes to must not depend on where it runs.
    #[doc(hidden)]
    pub core: Option<Arc<AtomicUsize>>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            snapshot: None,
            recover: Recover::default(),
            order: Order::PerCore,
            records: RecordPolicy::default(),
            crash_guarantee: CrashGuarantee::default(),
            data: DataMode::default(),
            page_cache: None,
            nvram: NvramOptions::default(),
            durability: None,
            commit_interval: Duration::from_secs(5),
            said: Said::default(),
            cache_bytes: CACHE_BYTES,
            dirty_limit: DirtyLimit::default(),
            access_time: AccessTime::default(),
            directory_access_time: None,
            flush: None,
            fsync: FsyncScope::default(),
            log_data_pages: LOG_DATA_PAGES,
            alloc: AllocPolicy::default(),
            numa: Numa::default(),
            active_logs: ActiveLogs::default(),
            range_lock: RangeLock::default(),
            range_wait: RangeWait::default(),
            node_lock: NodeLock::default(),
            hw_queues: QueueShape::default().hw_queues,
            nr_requests: QueueShape::default().nr_requests,
            block_merge: BlockMerge::default(),
            wait: Wait::default(),
            submit_lock: SubmitLock::default(),
            background: Background::default(),
            workers: None,
            trace: None,
            recovery_threads: None,
            rules: Rules::default(),
            volume_rules: VolumeRules::default(),
            core: None,
        }
    }
}

impl MountOptions {
    /// The options that the store needs.
    pub(crate) fn of_store(&self) -> StoreOptions {
        StoreOptions {
            read_only: self.read_only,
            snapshot: self.snapshot.clone(),
            recover: self.recover,
            // Known when the media are: `Mount::set_durability`.
            durability: Durability::default(),
            order: self.order,
            records: self.records,
            alloc: self.alloc,
            numa: self.numa.clone(),
            active_logs: self.active_logs,
            flush: self.flush.unwrap_or_default(),
            // Known when the media are: `Mount::set_absorb`.
            absorb: None,
            node_lock: self.node_lock,
            queues: QueueShape {
                hw_queues: self.hw_queues,
                nr_requests: self.nr_requests,
                wait: self.wait,
                merge: self.block_merge,
                submit_lock: self.submit_lock,
            },
            trace: self.trace,
            recovery_threads: self.recovery_threads,
            rules: self.rules,
            store_rules: self.volume_rules.store,
            core: self.core.clone(),
        }
    }

    /// Whether the mount writes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some() || self.recover == Recover::Tolerate
    }

    /// The maximum bytes of the cache.
    pub(crate) fn cache_bound(&self) -> u64 {
        self.cache_bytes.max(CACHE_BYTES_MIN)
    }
}
