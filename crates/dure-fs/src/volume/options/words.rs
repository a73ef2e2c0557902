//! The words of `-o`, and what they set.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use dure_block::{HW_QUEUES_MAX, Hybrid, Wait};
use dure_journal::Order;
use dure_store::alloc::{ActiveLogs, AllocPolicy, NumaPolicy};
use dure_store::media::{BlockMerge, SubmitLock};
use dure_store::node::NodeLock;
use dure_store::{Durability, FlushRule, RecordPolicy, Recover};
use dure_sync::range_lock::Policy as RangePolicy;
use dure_sync::{Arc, Topology};

use super::{
    CrashGuarantee, DataMode, DirtyLimit, FsyncScope, MountOptions, PageCaching, RangeWait,
};

/// The word that waives the crash guarantee.
pub(super) const NO_CRASH_GUARANTEE: &str = "no-crash-guarantee";
/// Most requests of one of them in the device at once, as in Linux.
const REQUESTS_MAX: u32 = 10_240;
/// Minimum for a limit of dirty pages.
const DIRTY_BYTES_MIN: u64 = 1 << 20;
/// Maximum for the pages of an fsync that go into the log.
const LOG_DATA_PAGES_MAX: u32 = 32;

/// The meaning of the word `value`, from a list of words and meanings.
pub(crate) fn choose<T: Copy>(key: &str, value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{key}={value}: it is {}", words.join(" or "))
    })
}

/// A number of bytes, with an optional unit K, M, G or T, of either case.
pub(crate) fn bytes_of(value: &str) -> Option<u64> {
    let value = value.to_ascii_uppercase();
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let with_unit = |(unit, shift): &(&str, u32)| Some((value.strip_suffix(unit)?, *shift));
    let (digits, shift) = units.iter().find_map(with_unit).unwrap_or((&value, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl MountOptions {
    /// Sets the policy `key` to `value`, as in `-o key=value`; a word without a value has an empty
    /// one. Returns `Ok(false)` when no policy
    /// has that name.
    ///
    /// # Errors
    /// A sentence that lists the allowed values, or says which preset sets another one.
    pub fn set_policy(&mut self, key: &str, value: &str) -> Result<bool, String> {
        if key == "preset" {
            return self.set_preset(value).map(|()| true);
        }
        self.said.allows(key, value)?;
        let is_set = self.set_word(key, value)?;
        if is_set {
            self.said.note(key, value);
        }
        Ok(is_set)
    }

    pub(super) fn set_word(&mut self, key: &str, value: &str) -> Result<bool, String> {
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
pub(crate) fn number_of<N>(key: &str, value: &str, range: RangeInclusive<N>) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display,
{
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("{key}={value}: it is a number, {first} to {last}")
    })
}
