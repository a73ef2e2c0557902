//! Mount options.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use dure_block::{Hybrid, Wait};
use dure_journal::{Order, Rules};
use dure_store::alloc::{ActiveLogs, AllocPolicy, Numa, NumaPolicy};
use dure_store::error::Error;
use dure_store::format::name::FileKind;
use dure_store::media::{BlockMerge, QueueShape, SubmitLock};
use dure_store::node::NodeLock;
use dure_store::{Durability, FlushRule, RecordPolicy, Recover, StoreOptions, VolumeMedia};
use dure_sync::atomic::AtomicUsize;
use dure_sync::range_lock::{Config as RangeLock, Policy as RangePolicy};
use dure_sync::{Arc, Topology};

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
    /// As `Ordered`, but after a crash an operation is kept even if its data did not get to the
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
    /// It waits in order of arrival, as hybridF2FS and pNOVA publish it. Readers take their range
    /// shared, and every file that is used has a range lock.
    InTurn,
}

/// Whether the content of files is in memory, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCaching {
    /// In pages in DRAM: read from there, and written back later.
    Dram,
    /// The same, and what would be written back goes to persistent memory first. For volumes with
    /// persistent memory beside a block device.
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

/// The word that waives the crash guarantee.
const NO_CRASH_GUARANTEE: &str = "no-crash-guarantee";
/// Bytes in memory: the default, and the minimum.
const CACHE_BYTES: u64 = 256 << 20;
const CACHE_BYTES_MIN: u64 = 64 << 10;
/// Most queues in front of a device.
const HW_QUEUES_MAX: u32 = 1024;
/// Most requests of one of them in the device at once, as in Linux.
const REQUESTS_MAX: u32 = 10_240;
/// Minimum for a limit of dirty pages.
const DIRTY_BYTES_MIN: u64 = 1 << 20;
/// Default for the pages of an fsync that go into the log.
const LOG_DATA_PAGES: u32 = 4;
/// Maximum for the pages of an fsync that go into the log.
const LOG_DATA_PAGES_MAX: u32 = 32;

/// Mount options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written, not even by recovery (which then happens in memory).
    pub read_only: bool,
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
    /// Of `PageCaching::Nvram`.
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
    /// Who excludes whom while a request is made.
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
            recover: Recover::default(),
            order: Order::PerCore,
            records: RecordPolicy::default(),
            crash_guarantee: CrashGuarantee::default(),
            data: DataMode::default(),
            page_cache: None,
            nvram: NvramOptions::default(),
            durability: None,
            commit_interval: Duration::from_secs(5),
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

/// The meaning of the word `value`, from a list of words and meanings.
pub(super) fn choose<T: Copy>(key: &str, value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{key}={value}: it is {}", words.join(" or "))
    })
}

/// A number of bytes, with an optional unit K, M, G or T, of either case.
pub(super) fn bytes_of(value: &str) -> Option<u64> {
    let value = value.to_ascii_uppercase();
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let with_unit = |(unit, shift): &(&str, u32)| Some((value.strip_suffix(unit)?, *shift));
    let (digits, shift) = units.iter().find_map(with_unit).unwrap_or((&value, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl MountOptions {
    /// Access times of inodes of this type.
    pub(crate) fn access_time_of(&self, kind: FileKind) -> AccessTime {
        match self.directory_access_time {
            Some(policy) if kind == FileKind::Directory => policy,
            _ => self.access_time,
        }
    }

    /// Sets the policy `key` to `value`, as in `-o key=value`; a word without a value has an empty
    /// one. Returns `Ok(false)` when no policy
    /// has that name.
    ///
    /// # Errors
    /// A sentence that lists the allowed values.
    pub fn set_policy(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "journal" => {
                let words = [
                    ("per-core", (Order::PerCore, RecordPolicy::Delta)),
                    ("single", (Order::Single, RecordPolicy::Delta)),
                    ("jbd2", (Order::Single, RecordPolicy::Image)),
                    ("zjournal", (Order::PerCore, RecordPolicy::Image)),
                    ("none", (Order::PerCore, RecordPolicy::None)),
                ];
                (self.order, self.records) = choose(key, value, &words)?;
            }
            NO_CRASH_GUARANTEE if value.is_empty() => {
                self.crash_guarantee = CrashGuarantee::Waived;
            }
            "data" => {
                let words = [
                    ("ordered", DataMode::Ordered),
                    ("writeback", DataMode::Writeback),
                    ("journal", DataMode::Journal),
                ];
                self.data = choose(key, value, &words)?;
            }
            "page_cache" => {
                let words = [
                    ("dram", PageCaching::Dram),
                    ("nvram", PageCaching::Nvram),
                    ("none", PageCaching::None),
                ];
                self.page_cache = Some(choose(key, value, &words)?);
            }
            "durability" => {
                let words = [("posix", Durability::Posix), ("strict", Durability::Strict)];
                self.durability = Some(choose(key, value, &words)?);
            }
            "flush" => {
                let words = [("one", FlushRule::One), ("two", FlushRule::Two)];
                self.flush = Some(choose(key, value, &words)?);
            }
            "fsync" => {
                let words = [("closure", FsyncScope::Closure), ("all", FsyncScope::All)];
                self.fsync = choose(key, value, &words)?;
            }
            "log-data" => {
                self.log_data_pages = number_of(key, value, 0..=LOG_DATA_PAGES_MAX)?;
            }
            "recover" => {
                let words = [("whole", Recover::Whole), ("tolerate", Recover::Tolerate)];
                self.recover = choose(key, value, &words)?;
            }
            _ if self.set_placement_policy(key, value)? => {}
            _ if self.nvram.set_policy(key, value)? => {}
            _ if self.set_device_policy(key, value)? => {}
            _ => return self.set_range_policy(key, value),
        }
        Ok(true)
    }

    /// `set_policy` for what lies where, and nodes.
    fn set_placement_policy(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "alloc" => {
                let words = [
                    ("local", AllocPolicy::Local),
                    ("global", AllocPolicy::Global),
                ];
                self.alloc = choose(key, value, &words)?;
            }
            "numa" => self.numa.policy = choose(key, value, &NumaPolicy::ALL)?,
            "topology" => {
                let topology = value.parse::<Topology>();
                let topology = topology.map_err(|why| format!("{key}={why}"))?;
                self.numa.topology = Some(Arc::new(topology));
            }
            "active_logs" => {
                let words = [("2", ActiveLogs::Two), ("4", ActiveLogs::Four)];
                self.active_logs = choose(key, value, &words)?;
            }
            "node_lock" => {
                let words = NodeLock::ALL.map(|policy| (policy.name(), policy));
                self.node_lock = choose(key, value, &words)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `set_policy` for the way to the device.
    fn set_device_policy(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "blk.hw_queues" => self.hw_queues = number_of(key, value, 1..=HW_QUEUES_MAX)?,
            "blk.nr_requests" => self.nr_requests = number_of(key, value, 1..=REQUESTS_MAX)?,
            "blk.merge" => {
                let words = [("on", BlockMerge::Contiguous), ("off", BlockMerge::Off)];
                self.block_merge = choose(key, value, &words)?;
            }
            "blk.poll" => {
                let words = [
                    ("sleep", Wait::Sleep),
                    ("poll", Wait::Poll),
                    ("hybrid", Wait::Hybrid(Hybrid::default())),
                ];
                self.wait = choose(key, value, &words)?;
            }
            "submit_lock" => {
                let words = [
                    ("none", SubmitLock::None),
                    ("writes", SubmitLock::Writes),
                    ("all", SubmitLock::All),
                ];
                self.submit_lock = choose(key, value, &words)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `set_policy` for the ranges of files.
    fn set_range_policy(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "range_lock" => {
                let words = RangePolicy::ALL.map(|policy| (policy.name(), policy));
                self.range_lock = self.range_lock.with_policy(choose(key, value, &words)?);
            }
            "range_lock_wait" => {
                let words = [("try", RangeWait::Try), ("queue", RangeWait::InTurn)];
                self.range_wait = choose(key, value, &words)?;
            }
            "dirty_limit" => self.dirty_limit = dirty_limit_of(key, value)?,
            "workers" => self.workers = Some(number_of(key, value, 1..=1024)?),
            "segment_size" => {
                let wrong = || format!("{key}={value}: it is a power of two, 4K to 1T");
                let bytes = bytes_of(value).ok_or_else(wrong)?;
                let made = self.range_lock.with_segment_bytes(bytes);
                self.range_lock = made.map_err(|_| wrong())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> dure_store::error::Result<()> {
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "journal=none",
                why: why.into(),
            })
        };
        match (self.records, self.crash_guarantee, self.data) {
            _ if self.is_read_only() => Ok(()),
            (RecordPolicy::None, CrashGuarantee::Needed, _) => refused(
                "a crash may then lose all files, also those that were synced; if that does not matter, say \
                 no-crash-guarantee, too",
            ),
            (RecordPolicy::None, _, DataMode::Journal) => {
                refused("with data=journal file data goes into the log, of which there is none")
            }
            (RecordPolicy::None, ..) | (_, CrashGuarantee::Needed, _) => Ok(()),
            (_, CrashGuarantee::Waived, _) => Err(Error::BadOption {
                option: NO_CRASH_GUARANTEE,
                why: "only journal=none is without one".into(),
            }),
        }
    }

    /// Whether the content of files is in memory, too, on a volume on such media.
    ///
    /// # Errors
    /// `BadOption` when that cannot be.
    pub(crate) fn page_caching(
        &self,
        media: VolumeMedia,
    ) -> dure_store::error::Result<PageCaching> {
        self.check_nvram(media)?;
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "page_cache=none",
                why: why.into(),
            })
        };
        match (self.page_cache, self.data) {
            (None | Some(PageCaching::Dram), _) => Ok(PageCaching::Dram),
            (Some(PageCaching::Nvram), _) => Ok(PageCaching::Nvram),
            (Some(PageCaching::None), _) if media != VolumeMedia::Nvm => refused(
                "the volume is not wholly in persistent memory (nvm=emulated uses a file as if it were)",
            ),
            (Some(PageCaching::None), DataMode::Ordered) => Ok(PageCaching::None),
            (Some(PageCaching::None), DataMode::Writeback | DataMode::Journal) => {
                refused("without pages in memory data can only be written as with data=ordered")
            }
        }
    }

    /// When what a call has done is durable, with files in memory or not.
    ///
    /// # Errors
    /// `BadOption` when that cannot be.
    pub(crate) fn durability(&self, pages: PageCaching) -> dure_store::error::Result<Durability> {
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "durability=strict",
                why: why.into(),
            })
        };
        let default = match (pages, self.records) {
            (PageCaching::None, RecordPolicy::Delta) => Durability::Strict,
            _ => Durability::Posix,
        };
        match (self.durability.unwrap_or(default), pages, self.records) {
            (Durability::Posix, ..) => Ok(Durability::Posix),
            (Durability::Strict, PageCaching::Dram, _) => {
                refused("pages in memory are written back later; with page_cache=none they are not")
            }
            (Durability::Strict, PageCaching::Nvram, _) => refused(
                "page_cache=nvram makes data durable at once, and not each call; page_cache=none does",
            ),
            (Durability::Strict, _, RecordPolicy::Image | RecordPolicy::None) => {
                refused("only journal=per-core and journal=single log an operation by itself")
            }
            (Durability::Strict, PageCaching::None, RecordPolicy::Delta) => Ok(Durability::Strict),
        }
    }

    /// Pages of an fsync that may go into the log.
    #[inline]
    pub(crate) fn pages_in_log(&self) -> u32 {
        match (self.records, self.page_cache) {
            // Their blocks are as near as the log.
            (_, Some(PageCaching::Nvram)) | (RecordPolicy::None, _) => 0,
            (RecordPolicy::Delta | RecordPolicy::Image, _) => self.log_data_pages,
        }
    }

    /// Whether tasks queue for ranges of files.
    #[inline]
    pub(crate) fn ranges_queue(&self) -> bool {
        self.range_wait == RangeWait::InTurn && !self.range_lock.policy().is_whole_file()
    }

    /// The options that the store needs.
    pub(crate) fn of_store(&self) -> StoreOptions {
        StoreOptions {
            read_only: self.read_only,
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
        self.read_only || self.recover == Recover::Tolerate
    }

    /// The maximum bytes of the cache.
    pub(crate) fn cache_bound(&self) -> u64 {
        self.cache_bytes.max(CACHE_BYTES_MIN)
    }
}

/// Bytes of dirty pages.
fn dirty_limit_of(key: &str, value: &str) -> Result<DirtyLimit, String> {
    if value == "none" {
        return Ok(DirtyLimit::None);
    }
    let bytes = bytes_of(value).filter(|bytes| (DIRTY_BYTES_MIN..=1 << 40).contains(bytes));
    let bytes = bytes.ok_or_else(|| format!("{key}={value}: it is a size, 1M to 1T, or none"))?;
    Ok(DirtyLimit::Bytes(bytes))
}

/// A number in a range.
pub(super) fn number_of<N>(key: &str, value: &str, range: RangeInclusive<N>) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("{key}={value}: it is a number, {first} to {last}")
    })
}
