//! The software queue of a core: what a queue keeps for each core.
//!
//! **Problem.** Counters and traces of a queue must not be lines that all cores write.
//! **Structure.** A [`Context`] per core with counters, a bounded ring of trace records and a
//! reference to the tags. A request keeps a reference to the context of the core it came from.
//! **Invariants.** Memory is bounded by the trace setting. **Crash.** Nothing is kept.

use std::collections::VecDeque;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, Mutex};

use crate::queue::{Tag, TagSet};
use crate::rank::TRACE_RANK;
use crate::{Bio, Lba, Op, Result, Stamps};

/// Whether a queue stamps its requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// No stamps, no clock is read.
    #[default]
    Off,
    /// The last `records_per_core` requests of each core are kept.
    Ring {
        /// How many to keep.
        records_per_core: usize,
    },
}

/// One request as it was traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// What it did.
    pub op: Op,
    /// First block.
    pub lba: Lba,
    /// Number of blocks.
    pub blocks: u64,
    /// Its tag.
    pub tag: u32,
    /// When it passed each stage.
    pub stamps: Stamps,
}

/// Mean times between the stages, in nanoseconds, as `btt` reports them.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Phases {
    /// Requests the means are taken over.
    pub requests: usize,
    /// Waiting for a tag.
    pub q2g_ns: f64,
    /// From the tag to the hardware queue.
    pub g2i_ns: f64,
    /// In the hardware queue.
    pub i2d_ns: f64,
    /// In the device.
    pub d2c_ns: f64,
    /// All of it.
    pub q2c_ns: f64,
}

impl Phases {
    /// The means over `records`.
    #[must_use]
    pub fn of(records: &[TraceRecord]) -> Self {
        let mean = |from: fn(&Stamps) -> u64, to: fn(&Stamps) -> u64| {
            let sum: u64 = records
                .iter()
                .map(|record| to(&record.stamps).saturating_sub(from(&record.stamps)))
                .fold(0, u64::saturating_add);
            #[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
            let mean = sum as f64 / records.len().max(1) as f64;
            mean
        };
        Self {
            requests: records.len(),
            q2g_ns: mean(|s| s.queued_ns, |s| s.tagged_ns),
            g2i_ns: mean(|s| s.tagged_ns, |s| s.inserted_ns),
            i2d_ns: mean(|s| s.inserted_ns, |s| s.dispatched_ns),
            d2c_ns: mean(|s| s.dispatched_ns, |s| s.completed_ns),
            q2c_ns: mean(|s| s.queued_ns, |s| s.completed_ns),
        }
    }
}

/// The counters of a queue. Each request counts when it completes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Blocks of them.
    pub blocks_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks of them.
    pub blocks_written: u64,
    /// Discard requests.
    pub discards: u64,
    /// Calls that needed a flush.
    pub flush_requests: u64,
    /// Flushes sent to the device.
    pub device_flushes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that had to wait for a tag.
    pub tag_waits: u64,
}

/// The software queue of one core. Counters are written by the core's tasks (rarely by others,
/// after migration) and summed on demand by any task; they publish nothing, hence Relaxed.
#[derive(Debug)]
pub(crate) struct Context {
    reads: AtomicU64,
    blocks_read: AtomicU64,
    writes: AtomicU64,
    blocks_written: AtomicU64,
    discards: AtomicU64,
    pub(super) flush_requests: AtomicU64,
    device_flushes: AtomicU64,
    errors: AtomicU64,
    tag_waits: AtomicU64,
    trace: Trace,
    records: Mutex<TRACE_RANK, VecDeque<TraceRecord>>,
    tags: Arc<TagSet>,
    device_name: String,
}

/// Adds to a statistic.
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Context {
    pub(super) fn new(tags: Arc<TagSet>, trace: Trace, device_name: &str) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            reads: zero(),
            blocks_read: zero(),
            writes: zero(),
            blocks_written: zero(),
            discards: zero(),
            flush_requests: zero(),
            device_flushes: zero(),
            errors: zero(),
            tag_waits: zero(),
            trace,
            records: Mutex::new(VecDeque::new()),
            tags,
            device_name: device_name.to_owned(),
        }
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device_name
    }

    pub(crate) fn release(&self, tag: Tag) {
        self.tags.release(tag);
    }

    pub(super) fn waited_for_tag(&self) {
        bump(&self.tag_waits, 1);
    }

    #[inline]
    pub(crate) fn completed(&self, op: Op, blocks: u64, result: &Result<()>) {
        match op {
            Op::Read => {
                bump(&self.reads, 1);
                bump(&self.blocks_read, blocks);
            }
            Op::Write => {
                bump(&self.writes, 1);
                bump(&self.blocks_written, blocks);
            }
            Op::Flush => bump(&self.device_flushes, 1),
            Op::Discard => bump(&self.discards, 1),
        }
        if result.is_err() {
            bump(&self.errors, 1);
        }
    }

    pub(super) fn is_traced(&self) -> bool {
        self.trace != Trace::Off
    }

    pub(crate) fn trace(&self, bio: &Bio, tag: Tag, stamps: Stamps) {
        self.trace_request(bio.op(), bio.lba(), bio.blocks(), tag, stamps);
    }

    pub(super) fn trace_request(&self, op: Op, lba: Lba, blocks: u64, tag: Tag, stamps: Stamps) {
        let Trace::Ring { records_per_core } = self.trace else {
            return;
        };
        let mut records = self.records.lock();
        while records.len() >= records_per_core.max(1) {
            records.pop_front();
        }
        records.push_back(TraceRecord {
            op,
            lba,
            blocks,
            tag: tag.number(),
            stamps,
        });
    }

    pub(super) fn take_trace(&self) -> Vec<TraceRecord> {
        self.records.lock().drain(..).collect()
    }

    pub(super) fn add_to(&self, sum: &mut Counters) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.reads += get(&self.reads);
        sum.blocks_read += get(&self.blocks_read);
        sum.writes += get(&self.writes);
        sum.blocks_written += get(&self.blocks_written);
        sum.discards += get(&self.discards);
        sum.flush_requests += get(&self.flush_requests);
        sum.device_flushes += get(&self.device_flushes);
        sum.errors += get(&self.errors);
        sum.tag_waits += get(&self.tag_waits);
    }
}
