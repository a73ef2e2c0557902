//! What a mounted volume has done: the numbers behind `dure top`.

use dure_block::{LateRequest, LateWatch};
use dure_journal::{LogStatistics, Trace};
use dure_sync::Counter;

use super::{FileSystem, Statistics};
use crate::background::WorkerActivity;

/// What a mounted volume has counted since the mount. Read without any lock that is held over I/O,
/// so it can be read while the device hangs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Activity {
    /// By journal; empty for a read-only mount.
    pub journals: Vec<LogStatistics>,
    /// Requests to the device.
    pub device: dure_block::Counters,
    /// Bytes copied from and to persistent memory on the NUMA node of the core and on others; `None`
    /// of a volume on one device.
    pub nodes: Option<dure_block::NodeCounters>,
    /// What tasks waited for the lock of `submit_lock=`; `None` without it.
    pub submit_lock: Option<dure_store::media::SubmitLockWaits>,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Node images that checkpoints wrote.
    pub images: u64,
    /// Segments added to log rings.
    pub rings_grown: u64,
    /// Blocks moved by the cleaner.
    pub cleaned_blocks: u64,
    /// The counters of `page_cache=nvram`.
    pub absorbed: Option<Absorbed>,
    /// The workers in the background; empty for a read-only mount.
    pub workers: Vec<WorkerActivity>,
    /// Writes that slept because there were many dirty pages.
    pub pauses: u64,
    /// Used and free space.
    pub room: Statistics,
    /// Why the volume has become read-only by itself, if it has.
    pub stopped: Option<String>,
}

/// Data that lies in persistent memory before it moves to the block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Absorbed {
    /// Blocks that such data takes, and what is unused of open segments.
    pub blocks: u64,
    /// Blocks that it may have.
    pub blocks_max: u64,
    /// Pages moved to the device since the mount.
    pub moved: u64,
    /// Times that there was no room, so that data went to the device at once.
    pub refused: u64,
}

impl FileSystem {
    /// What has been counted since the mount.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let volume = &self.0;
        let sum = |counter: &Counter| u64::try_from(counter.sum()).unwrap_or(0);
        let journal = volume.store.journal_if_any();
        Activity {
            journals: journal.map_or_else(Vec::new, |journal| journal.statistics()),
            device: volume.store.region.counters(),
            nodes: volume.store.region.node_counters(),
            submit_lock: volume.store.region.submit_lock_waits(),
            checkpoints: sum(&volume.store.counters.checkpoints),
            images: sum(&volume.store.counters.images),
            rings_grown: sum(&volume.store.counters.rings_grown),
            cleaned_blocks: sum(&volume.cleaner.counters.cleaned_blocks),
            absorbed: volume.cleaner.absorbed(),
            workers: volume.background.activity(),
            pauses: sum(&volume.files.pages.counters.pauses),
            room: self.statistics(),
            stopped: self.stopped(),
        }
    }

    /// Requests to the device that have become late since the last look of `watch`.
    #[must_use]
    pub fn late_requests(&self, watch: &mut LateWatch) -> Vec<LateRequest> {
        self.0.store.region.late(watch)
    }

    /// The trace of the journals; a read-only mount has none.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        Some(self.0.store.journal_if_any()?.trace())
    }
}
